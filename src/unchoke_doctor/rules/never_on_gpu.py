"""Do a torch model and its batches stay on the CPU, though there is a GPU or is likely to be one?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from unchoke_doctor.code.data import sample_functions
from unchoke_doctor.code.program import LOOPS, Program
from unchoke_doctor.code.trace import origins, values
from unchoke_doctor.code.training import Training, own_node, torch_passes
from unchoke_doctor.finding import Basis
from unchoke_doctor.rules import Case, Hit
from unchoke_doctor.rules.one_at_a_time import loop_over_samples
from unchoke_doctor.units import format_seconds

_MOVES = frozenset({
    "cuda", "to_device", "prepare", "set_default_device", "set_default_tensor_type", "to_empty", "data_parallel",
    "init_device_mesh",
})  # fmt: skip
_LONG_S, _CPU_STEP_S = 600.0, 1.5
"""Seconds of a training that is worth moving, and of a step that no GPU needs for a usual batch."""
_NO_DEVICE = re.compile(r"float|half|double|dtype|int|long|memory_format|uint8", re.IGNORECASE)
_LIKELY = re.compile(r"cuda|/content/|google\.colab|/kaggle/|\.\./input|\bgpu\b", re.IGNORECASE)


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    yield from _slow_pace(case)
    everywhere = ("set_default_device", "set_default_tensor_type", "Accelerator", "Fabric")
    if not program.imports_any("torch") or program.calls_to(*everywhere):
        return
    stuck: dict[ast.AST, Training] = {}
    for training in case.trainings:
        node = own_node(program, training)
        if training.kind == "torch" and node is not None and not _is_moved(program, training):
            stuck.setdefault(node, training)
    if stuck:
        models = [one.model for one in stuck.values() if one.model is not None]
        made = [end for model in models for end in origins(program, model) if isinstance(end, ast.Call) and program.is_own(end)]
        switches = [
            end
            for call in program.calls
            if is_move(program, call)
            if (test := _switch(program, call)) is not None
            for end in origins(program, test)
        ]
        yield _hit(
            case,
            [*stuck, *made, *filter(program.is_own, switches)],
            models[0] if models else None,
            "the training loop moves neither",
        )
    elif not case.trainings and (found := _extracting(program)):
        yield _hit(case, found, found[0].func, "the code that runs it moves neither")


def _slow_pace(case: Case) -> Iterator[Hit]:
    """A long training that ran on the CPU by the saved outputs: they say so, or a step took as long as only a CPU takes."""
    outputs = case.outputs
    if outputs.gpu:
        return
    for training in case.trainings:
        node, cell = own_node(case.program, training), case.cell(training)
        epoch, total = (outputs.epoch_s(cell), outputs.training_s(cell)) if cell is not None else (None, None)
        if node is None or epoch is None or total is None or total < _LONG_S:
            continue
        step_s = epoch / steps if (steps := outputs.steps.get(cell or 0)) else 0.0
        if outputs.on_cpu or (step_s >= _CPU_STEP_S and training.kind in ("keras", "tape")):
            said = f"this training ran on the CPU by its saved outputs, for {format_seconds(total)}"
            if not outputs.on_cpu:
                said = f"a step took {step_s:.1f} s by the saved outputs, which show no GPU: the pace of a CPU"
            fix = (
                "choose a runtime with a GPU and check that the library sees it (`torch.cuda.is_available()`, "
                "`tf.config.list_physical_devices('GPU')`, `nvidia-smi`)"
            )
            yield case.hit([node], said, fix, basis="outputs", step_s=step_s or None)
            return


def _hit(case: Case, nodes: Sequence[ast.AST], model: ast.expr | None, which: str) -> Hit:
    name, device = case.program.text(model) if model is not None else "model", case.outputs.gpu
    unused = " (`device` is computed and not used for it)" if re.search(r"\bdevice\s*=", case.texts) else ""
    there = f"; the saved outputs show a {device}" if device else "; a GPU is likely here" if _LIKELY.search(case.texts) else ""
    fix = (
        f"before the loop `device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')` and `{name}.to(device)`; "
        "in the loop move each batch: `images, labels = images.to(device), labels.to(device)`"
    )
    no_gpu = case.outputs.on_cpu and not device
    why = "the saved outputs show a machine without a GPU" if no_gpu else case.little or None
    said = f"`{name}` and its batches stay on the CPU: {which} to a device{unused}{there}"
    basis: Basis | None = "outputs" if device or no_gpu else None
    return case.hit(nodes, said, fix, "note" if no_gpu else "choke", basis=basis, device=device or "not shown", why_note=why)


def _is_moved(program: Program, training: Training) -> bool:
    """Is a batch moved in the loop, or the model anywhere? Or may both have been moved by somebody whose code is not here?"""
    if any(is_move(program, call) and _switch(program, call) is None for call in program.reached(training.node)):
        return True
    moves = [call for call in program.calls if is_move(program, call) and _switch(program, call) is None]
    if training.model is None:
        return bool(moves)
    name = program.text(training.model).removeprefix("self.")
    made = {end for end in origins(program, training.model) if isinstance(end, ast.Call)}
    counts = training.data is None or any(program.last(end) == "range" for end in origins(program, training.data))
    if counts and not made:
        return True
    moved = [call.func.value for call in moves if isinstance(call.func, ast.Attribute)]
    return any(program.text(one).removeprefix("self.") == name or made & set(origins(program, one)) for one in moved)


def _switch(program: Program, call: ast.Call) -> ast.expr | None:
    """`use_gpu` in `if use_gpu: model.cuda()`, where it is only ever False."""
    inner: ast.AST = call
    for part in program.above(call):
        if isinstance(part, ast.If) and inner in part.body and values(program, part.test) == [False]:
            return part.test
        inner = part
    return None


def is_move(program: Program, call: ast.Call) -> bool:
    """`x.to(device)`, `x.cuda()`, a tensor made on a device; `x.to(torch.float32)` is none."""
    devices = [word.value for word in call.keywords if word.arg == "device"]
    if program.last(call) == "to":
        devices = [*call.args, *devices][:1]
        return bool(devices) and not _NO_DEVICE.search(program.text(devices[0])) and not _is_cpu(program, devices[0])
    return program.last(call) in _MOVES or any(not _is_cpu(program, device) for device in devices)


def _is_cpu(program: Program, device: ast.expr) -> bool:
    """Is it the CPU whatever the machine has: `"cpu"`, `torch.device("cpu")`, a name for that?"""
    return all("cpu" in (text := program.text(end, 200)) and "cuda" not in text for end in origins(program, device))


def _extracting(program: Program) -> list[ast.Call]:
    """Where a network with trained weights runs over many images in a program that moves nothing at all, and where it is made."""
    inside = sample_functions(program)
    for call in torch_passes(program) if not any(is_move(program, call) for call in program.calls) else ():
        per_sample = program.function(call) in inside
        makers = [end for end in origins(program, call.func) if isinstance(end, ast.Call)]
        reached = [program.name(one) for end in makers for one in (end, *_init_calls(program, end))]
        trained = any(name.startswith(("torchvision.models", "timm.", "torch.hub")) for name in reached)
        found = [one for one in (call, *makers) if program.is_own(one)]
        looped = isinstance(program.loop(call), LOOPS) or loop_over_samples(program, call) is not None
        if found and (per_sample or looped) and (trained or (per_sample and not makers)):
            return found
    return []


def _init_calls(program: Program, call: ast.Call) -> list[ast.Call]:
    """What making an object of a class of the program calls."""
    return [
        one
        for function in program.runs(call)
        if isinstance(program.target(call), ast.ClassDef)
        for one in program.reached(function)
    ]
