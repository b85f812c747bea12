"""Do a torch model and its batches stay on the CPU, though there is a GPU or is likely to be one?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import sample_functions
from unchoke_doctor.code.program import LOOPS, Program
from unchoke_doctor.code.trace import origins, value, values
from unchoke_doctor.code.training import Training, own_node, torch_passes
from unchoke_doctor.finding import Basis
from unchoke_doctor.rules import Case, Hit
from unchoke_doctor.rules.one_at_a_time import loop_over_samples
from unchoke_doctor.units import format_seconds

_MOVES = frozenset({
    "cuda", "to_device", "prepare", "set_default_device", "set_default_tensor_type", "to_empty", "data_parallel",
    "init_device_mesh",
})  # fmt: skip
_TAKES_DEVICE = ("dataloaders", "Learner", "Trainer", "train", "prepare")
_EVERYWHERE = ("set_default_device", "set_default_tensor_type", "Accelerator", "Fabric")
_LONG_S = 600.0
"""Seconds of a training that is worth moving."""
_NO_DEVICE = re.compile(r"float|half|double|dtype|int|long|memory_format|uint8", re.IGNORECASE)
_LIKELY = re.compile(r"cuda|/content/|google\.colab|/kaggle/|\.\./input|\bgpu\b", re.IGNORECASE)


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    yield from _slow_pace(case)
    yield from _forced(case)
    if not program.imports_any("torch") or program.calls_to(*_EVERYWHERE):
        return
    moves = [call for call in program.calls if is_move(program, call)]
    switches = [test for call in moves if (test := _switch(program, call)) is not None]
    live = [call for call in moves if _switch(program, call) is None]
    stuck: dict[ast.AST, ast.expr | None] = {}
    for training in case.trainings:
        node = own_node(program, training)
        if training.kind == "torch" and node is not None and not _is_moved(program, training, live):
            stuck.setdefault(node, training.model)
    found, model, which = list(stuck), next((one for one in stuck.values() if one is not None), None), "the training loop"
    if found:
        ends = [end for one in (*stuck.values(), *switches) if one is not None for end in origins(program, one)]
        found += [end for end in ends if program.is_own(end) and (isinstance(end, ast.Call) or switches)]
    elif not case.trainings and not moves:
        found, which = _extracting(program), "the code that runs it"
        model = getattr(found[0], "func", None) if found else None
    if not found:
        return
    name, device = program.text(model) if model is not None else "model", case.outputs.gpu
    unused = " (`device` is computed and not used for it)" if re.search(r"\bdevice\s*=", case.texts) else ""
    there = f"; the saved outputs show a {device}" if device else "; a GPU is likely here" if _LIKELY.search(case.texts) else ""
    no_gpu = case.outputs.on_cpu and not device
    why = "the saved outputs show a machine without a GPU" if no_gpu else case.little or None
    said = f"`{name}` and its batches stay on the CPU: {which} moves neither to a device{unused}{there}"
    fix = (
        f"before the loop `device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')` and `{name}.to(device)`; "
        "in the loop move each batch: `images, labels = images.to(device), labels.to(device)`"
    )
    basis: Basis | None = "outputs" if device or no_gpu else None
    yield case.hit(found, said, fix, "note" if no_gpu else "choke", basis=basis, device=device or "not shown", why_note=why)


def _forced(case: Case) -> Iterator[Hit]:
    """Loaders, networks or trainers that are given the CPU by name, in code that trains."""
    program = case.program
    last = max((program.order[one.node] for one in case.trainings), default=-1)
    found: list[ast.AST] = []
    for call in program.calls if case.trainings else ():
        if program.is_own(call) and program.order[call] < last and not call.args[2:]:
            words = {word.arg: word.value for word in call.keywords}
            makes = program.last(call) in _TAKES_DEVICE or program.last(call).startswith("from_")
            fixed = makes and any(_is_cpu(program, words[name]) for name in ("device", "accelerator") if name in words)
            fixed = fixed or any(value(program, words[name]) is True for name in ("no_cuda", "use_cpu") if name in words)
            moved = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "to" else None
            learner = isinstance(moved, ast.Attribute) and moved.attr == "model" and len(call.args) == 1
            if fixed or (learner and _is_cpu(program, call.args[0])):
                found.append(call)
    for target, held in program.stored.get("device", ()) if found else ():
        found += [target] if program.is_own(target) and _is_cpu(program, held) else []
    for node in program.order if case.trainings and "CUDA_VISIBLE_DEVICES" in case.texts else ():
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant("CUDA_VISIBLE_DEVICES"))], value=ast.Constant("" | "-1")):
                found += [node] if program.is_own(node) else []
    if found:
        no_gpu = case.outputs.on_cpu and not case.outputs.gpu
        said = f"`{program.text(found[0])}` keeps the training on the CPU on every machine, also on one with a GPU"
        fix = (
            "leave the device to the library, or choose it: `'cuda' if torch.cuda.is_available() else 'mps' if "
            "torch.backends.mps.is_available() else 'cpu'`"
        )
        yield case.hit(found, said, fix, "note" if no_gpu else "choke")


def _is_cpu(program: Program, expr: ast.expr) -> bool:
    """`"cpu"` or `torch.device("cpu")`, whatever the machine has."""
    texts = [program.text(end, 200) for end in origins(program, expr)]
    return bool(texts) and all(re.fullmatch(r"""(?:torch\.device\()?['"]cpu(?::0)?['"]\)?""", text) for text in texts)


def _slow_pace(case: Case) -> Iterator[Hit]:
    """A long training or evaluation that ran on the CPU by the saved outputs: by their words, or by the pace of its steps."""
    outputs, program = case.outputs, case.program
    shown: list[tuple[ast.AST, str, float, float, int]] = []  # what ran, its seconds in all and for the steps beside them
    for training in case.trainings if not outputs.gpu else ():
        node, cell = own_node(program, training), case.cell(training)
        epoch, total = (outputs.epoch_s(cell), outputs.training_s(cell)) if cell is not None else (None, None)
        if node is not None and epoch is not None and total is not None:
            steps = outputs.steps.get(cell or 0, 0) if training.kind in ("keras", "tape") else 0
            shown.append((node, "training", total, epoch, steps))
    for call in program.own_calls("evaluate", "predict") if outputs.passes and not outputs.gpu else ():
        seconds, steps = outputs.passes.get(program.place(call).cell or 0, (0.0, 0))
        shown.append((call, "evaluation", seconds, seconds, steps))
    for node, what, total, seconds, steps in shown:
        if total >= _LONG_S and (outputs.on_cpu or case.has_cpu_pace(seconds, steps)):
            said = f"this {what} ran on the CPU by its saved outputs, for {format_seconds(total)}"
            if not outputs.on_cpu:
                said = f"a step took {seconds / steps:.1f} s by the saved outputs, which show no GPU: the pace of a CPU"
            fix = (
                "choose a runtime with a GPU and check that the library sees it (`torch.cuda.is_available()`, "
                "`tf.config.list_physical_devices('GPU')`, `nvidia-smi`)"
            )
            yield case.hit([node], said, fix, basis="outputs", step_s=seconds / steps if steps else None)
            return


def _is_moved(program: Program, training: Training, live: list[ast.Call]) -> bool:
    """Is a batch moved in the loop, or the model anywhere? Or may both have been moved by somebody whose code is not here?"""
    reached = set(program.reached(training.node))
    if training.model is None or any(call in reached for call in live):
        return bool(live)
    name = program.text(training.model).removeprefix("self.")
    made = {end for end in origins(program, training.model) if isinstance(end, ast.Call)}
    if training.counts and not made:
        return True
    moved = [call.func.value for call in live if isinstance(call.func, ast.Attribute)]
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
    """`x.to(device)`, `x.cuda()`, a tensor made on a device; `x.to(torch.float32)` and `x.to("cpu")` are none."""
    devices = [word.value for word in call.keywords if word.arg == "device"]
    if program.last(call) == "to":
        devices = [one for one in [*call.args, *devices][:1] if not _NO_DEVICE.search(program.text(one))]
    for device in devices:  # `"cpu"`, `torch.device("cpu")` or a name for that is the CPU whatever the machine has
        texts = [program.text(end, 200) for end in origins(program, device)]
        if not all("cpu" in text and "cuda" not in text for text in texts):
            return True
    return program.last(call) in _MOVES


def _extracting(program: Program) -> list[ast.AST]:
    """Where a network with trained weights runs over many images, and where it is made."""
    inside = sample_functions(program)
    for call in torch_passes(program):
        per_sample = program.function(call) in inside
        makers = [end for end in origins(program, call.func) if isinstance(end, ast.Call)]
        made = [end for end in makers if isinstance(program.target(end), ast.ClassDef)]  # what making one calls counts too
        calls = [*makers, *(one for end in made for function in program.runs(end) for one in program.reached(function))]
        trained = any(program.name(one).startswith(("torchvision.models", "timm.", "torch.hub")) for one in calls)
        looped = isinstance(program.loop(call), LOOPS) or loop_over_samples(program, call) is not None
        found: list[ast.AST] = [one for one in (call, *makers) if program.is_own(one)]
        if found and (per_sample or looped) and (trained or (per_sample and not makers)):
            return found
    return []
