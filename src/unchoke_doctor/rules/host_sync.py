"""Does the training loop stop for the GPU, or clean up memory, at every step?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.program import Program
from unchoke_doctor.code.training import Training
from unchoke_doctor.rules import Case, Hit, one_hit

_READS = frozenset({"item", "cpu", "tolist", "numpy"})
_CLEANS = {"empty_cache": "torch.cuda.empty_cache", "collect": "gc.collect", "synchronize": "torch.cuda.synchronize"}
_CLOCKS = frozenset({"time", "perf_counter", "elapsed_time", "monotonic"})
_DEVICE = re.compile(r"cuda|\.to\(|mps|accelerat", re.IGNORECASE)
_SHORT_STEP_S = 0.02
_MANY = 6


def check(case: Case) -> Iterator[Hit]:
    program, done = case.program, set[ast.AST]()
    if not _DEVICE.search(case.texts) or (case.outputs.on_cpu and not case.outputs.gpu):
        return
    for training in case.trainings:
        loop = training.node
        if training.kind not in ("torch", "tape") or loop in done:
            continue
        done.add(loop)
        every = [call for call in program.reached(loop) if program.is_own(call) and not _is_rare(program, call, loop)]
        cleans = [call for call in every if _cleans(program, call)]
        if cleans and not (_cleans(program, cleans[0]) == "torch.cuda.synchronize" and any(program.name(call).rpartition(".")[2] in _CLOCKS for call in program.calls_in(loop))):
            yield _cleaning(case, cleans)
        reads = [call for call in every if _reads(program, call)]
        if reads:
            yield _reading(case, training, reads)


def _cleaning(case: Case, calls: list[ast.Call]) -> Hit:
    program = case.program
    kind, basis, shown = case.weigh()
    names = sorted({_cleans(program, call) for call in calls})
    cost = "frees GPU memory that the next step allocates again" if "torch.cuda.empty_cache" in names else "walks through all Python objects" if "gc.collect" in names else "makes the CPU wait for the GPU"
    said = f"`{'` and `'.join(names)}` at every training step: it {cost}{case.told()}"
    return one_hit(calls, message=said, fix="take it out of the loop over batches; once per epoch is enough", kind=kind, basis=basis, evidence={**shown, "calls": names})


def _reading(case: Case, training: Training, reads: list[ast.Call]) -> Hit:
    """A choke where a read happens for each sample of a batch, many times a step, or where steps are known to be short."""
    program, loop = case.program, training.node
    inner = [call for call in reads if (around := program.loop(call)) is not None and around is not loop and program.contains(loop, around) and isinstance(around, ast.For)]
    cell = case.cell(training)
    steps = case.outputs.steps.get(cell) if cell is not None else None
    epoch = case.outputs.epoch_s(cell) if cell is not None else None
    step_s = epoch / steps if steps and epoch else None
    short = step_s is not None and step_s < _SHORT_STEP_S
    kind, basis, shown = case.weigh("choke" if inner or len(reads) >= _MANY or short else "note")
    first = inner[0] if inner else reads[0]
    often = "for each sample of a batch" if inner else f"{len(reads)} times a step" if len(reads) > 1 else "at every step"
    said = f"`{program.text(first)}` makes the CPU wait for the GPU {often}"
    if short and step_s is not None:
        said += f"; the saved outputs show {step_s * 1000:.0f} ms per step"
    fix = "keep sums as tensors (`total += loss.detach()`) and read them once after the loop, or only every 50th step"
    rest = tuple(call for call in reads if call is not first)
    return Hit(first, said, fix, kind, basis, {**shown, "reads_per_step": len(reads), "step_s": step_s}, further=rest)


def _cleans(program: Program, call: ast.Call) -> str:
    name = program.name(call)
    return next((full for full in _CLEANS.values() if name == full or name.endswith(f".{full}")), "")


def _reads(program: Program, call: ast.Call) -> bool:
    """`loss.item()`, `x.cpu()`, `float(loss)`, `print(loss)`; not the second half of `x.cpu().numpy()`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _READS and not call.args:
        inside = call.func.value
        return not (isinstance(inside, ast.Call) and isinstance(inside.func, ast.Attribute) and inside.func.attr in _READS)
    bare = isinstance(call.func, ast.Name) and call.func.id in ("float", "print") and len(call.args) == 1
    return bare and isinstance(call.args[0], ast.Name) and "loss" in call.args[0].id.lower()


def _is_rare(program: Program, call: ast.Call, loop: ast.AST) -> bool:
    """Behind a condition, in an `except`, in another function's loop setup: not at every step."""
    for part in program.above(call):
        if part is loop:
            return False
        if isinstance(part, ast.If | ast.ExceptHandler | ast.Raise | ast.IfExp):
            return True
    return False
