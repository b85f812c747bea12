"""Do a torch model and its batches stay on the CPU, though there is a GPU or is likely to be one?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.program import LOOPS, Program
from unchoke_doctor.code.trace import origins
from unchoke_doctor.code.training import NETWORK, Training, own_node
from unchoke_doctor.rules import Case, Hit

_MOVES = frozenset({"cuda", "to_device", "prepare", "set_default_device", "set_default_tensor_type", "to_empty", "data_parallel", "init_device_mesh"})
_NO_DEVICE = re.compile(r"float|half|double|dtype|int|long|memory_format|uint8", re.IGNORECASE)
_LIKELY = re.compile(r"cuda|/content/|google\.colab|/kaggle/|\.\./input|\bgpu\b", re.IGNORECASE)


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    if not program.imports_any("torch") or program.calls_to("set_default_device", "set_default_tensor_type", "Accelerator", "Fabric"):
        return
    stuck: dict[ast.AST, Training] = {}
    for training in case.trainings:
        node = own_node(program, training)
        if training.kind == "torch" and node is not None and not _is_moved(program, training):
            stuck.setdefault(node, training)
    if stuck:
        yield _hit(case, list(stuck), next(iter(stuck.values())).model, "the training loop moves neither")
    elif not case.trainings and (loop := _extracting_loop(program)) is not None:
        yield _hit(case, [loop], loop.func, "the loop that runs it moves neither")


def _hit(case: Case, nodes: list[ast.AST], model: ast.expr | None, which: str) -> Hit:
    program = case.program
    name = program.text(model) if model is not None else "model"
    kind, basis, evidence = case.weigh()
    device = case.outputs.gpu
    if not device and case.outputs.on_cpu:
        kind, evidence = "note", {**evidence, "why_note": "the saved outputs show a machine without a GPU"}
    unused = " (`device` is computed and not used for it)" if re.search(r"\bdevice\s*=", case.texts) else ""
    there = f"; the saved outputs show a {device}" if device else "; a GPU is likely here" if _LIKELY.search(case.texts) else ""
    return Hit(
        nodes[0], f"`{name}` and its batches stay on the CPU: {which} to a device{unused}{there}{case.told()}",
        f"before the loop `device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')` and `{name}.to(device)`; "
        "in the loop move each batch: `images, labels = images.to(device), labels.to(device)`",
        kind, "outputs" if device else basis, {**evidence, "device": device or "not shown"}, further=tuple(nodes[1:]),
    )  # fmt: skip


def _is_moved(program: Program, training: Training) -> bool:
    """Is a batch moved in the loop, or the model anywhere?"""
    if any(is_move(program, call) for call in program.reached(training.node)):
        return True
    if training.model is None:
        return any(is_move(program, call) for call in program.calls)
    names = {program.text(training.model).removeprefix("self.")}
    made = {end for end in origins(program, training.model) if isinstance(end, ast.Call)}
    for call in program.calls:
        if not is_move(program, call) or not isinstance(call.func, ast.Attribute):
            continue
        moved = call.func.value
        if program.text(moved).removeprefix("self.") in names or any(end in made for end in origins(program, moved)):
            return True
    return False


def is_move(program: Program, call: ast.Call) -> bool:
    """`x.to(device)`, `x.cuda()`, a tensor made on a device; `x.to(torch.float32)` is none."""
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return False
    last = program.name(call).rpartition(".")[2]
    if last == "to":
        given = [*call.args, *(word.value for word in call.keywords if word.arg == "device")]
        return bool(given) and not _NO_DEVICE.search(program.text(given[0])) and "cpu" not in program.text(given[0])
    device = next((word.value for word in call.keywords if word.arg == "device"), None)
    return last in _MOVES or (device is not None and "cpu" not in program.text(device))


def _extracting_loop(program: Program) -> ast.Call | None:
    """A call of a network in a loop, in a program that moves nothing at all: features or predictions on the CPU."""
    if any(is_move(program, call) for call in program.calls):
        return None
    for call in program.calls:
        name = program.text(call.func).removeprefix("self.")
        if program.is_own(call) and isinstance(call.func, ast.Name | ast.Attribute) and NETWORK.search(name) and isinstance(program.loop(call), LOOPS):
            makers = [end for end in origins(program, call.func) if isinstance(end, ast.Call)]
            if any(program.name(end).startswith(("torchvision.models", "timm.", "torch.hub")) for end in makers):
                return call
    return None
