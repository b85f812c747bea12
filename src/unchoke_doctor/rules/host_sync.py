"""Does the training loop stop for the GPU, clean up memory, draw or write files, at every step?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.program import Program
from unchoke_doctor.code.training import Training, torch_passes
from unchoke_doctor.rules import Case, Hit

_READS = frozenset({"item", "cpu", "tolist", "numpy"})
_CLEANS = {
    "torch.cuda.empty_cache": "frees GPU memory that the next step allocates again",
    "gc.collect": "walks through all Python objects",
    "torch.cuda.synchronize": "makes the CPU wait for the GPU",
}
_WRITES = frozenset({
    "add_image", "add_images", "add_figure", "add_histogram", "savefig", "imsave", "imwrite", "save_image", "save_weights",
    "save_checkpoint", "to_csv", "clear_output",
})  # fmt: skip
_CLOCKS = frozenset({"time", "perf_counter", "elapsed_time", "monotonic"})
_DEVICE = re.compile(r"cuda|\.to\(|mps|accelerat", re.IGNORECASE)
_MASKS = re.compile(r"mask|unet|segment|pixel", re.IGNORECASE)
_FLAT = re.compile(r"\.(?:flatten|ravel)\(|(?:view|reshape)\(-1\)")
_SHORT_STEP_S, _MANY = 0.02, 6


def check(case: Case) -> Iterator[Hit]:
    program, steps = case.program, [one for one in case.trainings if one.kind in ("torch", "tape")]
    methods = [program.method(owner, "training_step") for owners in program.classes.values() for owner in owners]
    blocks = [*(one for one in methods if one is not None), *(one.node for one in steps if not one.counts)]
    written = [(call, block) for block in blocks if program.is_own(block) for call in program.calls_in(block)]
    written = [(call, block) for call, block in written if _is_written(program, call) and not _is_rare(program, call, block)]
    if written:
        said = f"`{program.text(written[0][0].func)}` at every training step: the step waits until it is drawn or written"
        fix = "do it every hundredth step (`if step % 100 == 0:`) or once per epoch"
        yield case.hit([call for call, _ in written], said, fix)
    if not _DEVICE.search(case.texts) or (case.outputs.on_cpu and not case.outputs.gpu):
        return
    yield from _pixel_metrics(case)
    yield from _reads_per_sample(case)
    for training in {one.node: one for one in reversed(steps)}.values():
        loop = training.node
        every = [call for call in program.reached(loop) if program.is_own(call) and not _is_rare(program, call, loop)]
        cleans = [call for call in every if _cleans(program, call)]
        timed = any(program.last(call) in _CLOCKS for call in program.calls_in(loop))
        if cleans and not (timed and _cleans(program, cleans[0]) == "torch.cuda.synchronize"):
            names = sorted({_cleans(program, call) for call in cleans})
            cost = next(cost for name, cost in _CLEANS.items() if name in names)
            said = f"`{'` and `'.join(names)}` at every training step: it {cost}"
            yield case.hit(cleans, said, "take it out of the loop over batches; once per epoch is enough", calls=names)
        if reads := [call for call in every if _reads(call)]:
            yield _reading(case, training, reads)


def _is_written(program: Program, call: ast.Call) -> bool:
    return program.last(call) in _WRITES or program.name(call) in ("torch.save", "json.dump", "pickle.dump")


def _reads_per_sample(case: Case) -> Iterator[Hit]:
    """Reads for each sample of a batch in loops that evaluate: `for i in range(len(pred)): pred[i].item()`."""
    program, trained = case.program, {one.node for one in case.trainings}
    loops = dict.fromkeys(program.loop(call) for call in torch_passes(program) if program.is_own(call))
    for loop in loops:
        if not isinstance(loop, ast.For) or loop in trained:
            continue
        inner = [part for part in ast.walk(loop) if isinstance(part, ast.For) and part is not loop]
        calls = ((call, part) for part in inner for call in program.calls_in(*part.body))
        if reads := [call for call, part in calls if _reads(call) and not _is_rare(program, call, part)]:
            said = f"`{program.text(reads[0])}` makes the CPU wait for the GPU for each sample of a batch"
            fix = "read once per batch, before the inner loop: `values = tensor.cpu().tolist()`"
            yield case.hit(reads, said, fix, reads_per_sample=len(reads))


def _pixel_metrics(case: Case) -> Iterator[Hit]:
    """scikit-learn's metrics over every pixel of every batch, on the CPU between two passes."""
    program = case.program
    loops = {loop: None for call in torch_passes(program) if (loop := program.loop(call)) is not None}
    reached = [call for loop in loops for call in program.reached(loop) if program.name(call).startswith("sklearn.metrics.")]
    around = {call: program.function(call) or program.loop(call) for call in reached if program.is_own(call)}
    calls = [call for call, part in around.items() if part is not None and _FLAT.search(program.text(part, 20_000))]
    if calls and _MASKS.search(case.texts):
        name = program.last(calls[0])
        said = f"`{name}` counts all pixels of a batch on the CPU, after a copy from the GPU, between two passes of the network"
        fix = "count on the device (`(pred & target).sum()`), keep the counts as tensors, and read them once after the loop"
        yield case.hit(calls, said, fix, metrics=sorted({program.last(call) for call in calls}))


def _reading(case: Case, training: Training, reads: list[ast.Call]) -> Hit:
    """A choke where a read happens for each sample of a batch, many times a step, or where steps are known to be short."""
    program, cell = case.program, case.cell(training)
    inner = [call for call in reads if program.contains(training.node, call)]
    inner = [call for call in inner if isinstance(loop := program.loop(call), ast.For) and loop is not training.node]
    steps, epoch = case.outputs.steps.get(cell or 0), case.outputs.epoch_s(cell) if cell is not None else None
    step_s = epoch / steps if steps and epoch else None
    short = step_s is not None and step_s < _SHORT_STEP_S
    often = "for each sample of a batch" if inner else f"{len(reads)} times a step" if len(reads) > 1 else "at every step"
    took = f" (a step takes {step_s * 1000:.0f} ms by the saved outputs)" if short and step_s is not None else ""
    return case.hit(
        [*inner[:1], *reads],
        f"`{program.text((inner or reads)[0])}` makes the CPU wait for the GPU {often}{took}",
        "keep sums as tensors (`total += loss.detach()`) and read them once after the loop, or only every 50th step",
        "choke" if inner or len(reads) >= _MANY or (short and not case.waits_for_data) else "note",
        reads_per_step=len(reads),
        step_s=step_s,
    )


def _cleans(program: Program, call: ast.Call) -> str:
    return next((full for full in _CLEANS if f".{program.name(call)}".endswith(f".{full}")), "")


def _reads(call: ast.Call) -> bool:
    """`loss.item()`, `x.cpu()`, `float(loss)`, `print(loss)`; not the second half of `x.cpu().numpy()`."""
    match call:
        case ast.Call(func=ast.Attribute(attr=attr, value=inside), args=[]) if attr in _READS:
            return not (isinstance(inside, ast.Call) and isinstance(inside.func, ast.Attribute) and inside.func.attr in _READS)
        case ast.Call(func=ast.Name(id="float" | "print"), args=[ast.Name(id=name)]):
            return "loss" in name.lower()
    return False


def _is_rare(program: Program, call: ast.Call, loop: ast.AST) -> bool:
    """Behind a condition or in an `except`: not at every step."""
    for part in program.above(call):
        if part is loop:
            return False
        if isinstance(part, ast.If | ast.ExceptHandler | ast.Raise | ast.IfExp):
            return True
    return False
