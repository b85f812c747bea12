"""Rules about what a loop does beside training: reading numbers back, logging, checkpoints, evaluation, and other slow lines.

In: a `TrainingFigures`, and for the last rule the causes found so far. Out: causes.
"""

from __future__ import annotations

from collections.abc import Iterator

from unchoke.chokes.diagnose.line_kinds import reads_back
from unchoke.chokes.diagnose.source_lines import loop_lines, removed_line, source_line
from unchoke.chokes.diagnose.training_figures import TrainingFigures, loader_place
from unchoke.chokes.recording import CallRow, StackRow
from unchoke.core.findings import Cause, CodeLine, per
from unchoke.core.units import format_bytes, format_count, format_seconds

_MANY_READS = 8
_OFTEN = 0.2


def host_sync(run: TrainingFigures) -> Iterator[Cause]:
    """Numbers read back from tensors one by one in every step; on a device each read waits for all work before it."""
    rows = run.calls("item", phases=("step", "outside"))
    count = sum(row.count for row in rows)
    if not rows or per(count, run.num_steps) < _MANY_READS:
        return
    on_device = bool(run.recording.machine.get("device"))
    often = [row for row in rows if row.count >= 0.1 * count and (on_device or _takes_numbers(row))]
    if not often:
        return
    reading = {(row.file, line) for row in often for line in loop_lines(row.file, row.line) or (row.line,)}
    lines_s = sum(
        seconds
        for row, seconds in run.looks
        if row.phase == "step" and row.stage in ("python", "other", "copy")
        if (row.file, row.line) in reading or _reads_back(row)
    )
    each = per(count, run.num_steps)
    yield Cause(
        "host-sync",
        "step",
        # a device's work is waited for once, whoever asks
        (0.9 if on_device else 0.98) * max(lines_s, sum(row.seconds for row in rows)),
        f"{each:,.0f} numbers are read back from tensors in every step (.item(), .cpu(), .tolist()), {count:,} in all",
        "work on whole tensors and keep the results as tensors; read them once an epoch",
        CodeLine.of(max(often, key=lambda row: row.count)),
        {"reads_per_step": each, "reads": count, "seconds": lines_s},
        "correct += (outputs.argmax(1) == labels).sum()  # a tensor; .item() once, after the epoch",
    )


def _takes_numbers(row: CallRow) -> bool:
    """Whether the line takes single numbers out of a tensor; without a device `.cpu()` and `.numpy()` cost nothing."""
    found = source_line(row.file, row.line)
    return found is None or any(found.program.method(call) in ("item", "tolist") for _, call in found.all_calls)


def _reads_back(row: StackRow) -> bool:
    """Whether the piece of the line that was met reads a number back; on the CPU what stands beside it is its own doing."""
    return reads_back(source_line(row.file, row.line, row.span)) if row.file else False


def garbage_collected(run: TrainingFigures) -> Iterator[Cause]:
    """`gc.collect()` in the loop, timed by itself: looks come only after it."""
    rows = run.calls("gc", phases=("step", "outside", "evaluate"))
    count = sum(row.count for row in rows)
    if not rows or per(count, run.num_steps) < _OFTEN:
        return
    spent_s = sum(row.seconds for row in rows)
    yield Cause(
        "gc-per-step",
        "step",
        spent_s,
        f"gc.collect() walks all objects of the process {per(count, run.num_steps):.1f} times a step "
        f"({format_seconds(per(spent_s, count))} each)",
        "take it out; Python collects by itself when there is something to collect",
        CodeLine.of(rows[0]),
        {"collections": count, "seconds": spent_s},
        "gc.collect()  # remove this line",
        diff=removed_line(CodeLine.of(rows[0])),
    )


def slow_checkpoint(run: TrainingFigures) -> Iterator[Cause]:
    """Checkpoints written so often, or so large, that training stands still for them."""
    rows = run.calls("save", phases=("step", "checkpoint", "outside", "evaluate"))
    saves = sum(row.count for row in rows)
    if not rows or not saves:
        return
    wanted = max(1.0, run.epochs)
    written = sum(row.amount for row in rows)
    spent_s = max(run.total_s("checkpoint_s"), 0.0)
    fewer = max(0.0, 1 - wanted / saves)
    yield Cause(
        "slow-checkpoint",
        "checkpoint",
        spent_s * (fewer if fewer > 0.2 else 0.0),
        f"{format_count(saves, 'checkpoint')} in {format_count(run.num_steps, 'step')}, "
        f"{format_seconds(per(spent_s, saves))} each, {format_bytes(written)} written in all",
        "save once an epoch, or every few minutes, and only what resuming needs",
        CodeLine.of(rows[0]),
        {"saves": saves, "checkpoint_s": spent_s, "bytes": written},
        "save()  # after each epoch, not after each step; in long epochs: if time.monotonic() - saved_at > 300",
    )


def slow_evaluation(run: TrainingFigures) -> Iterator[Cause]:
    """Evaluation that runs more often than once an epoch, with tiny batches, or with gradients."""
    spent_s = run.total_s("evaluate_s")
    evaluated = [loader for loader in run.loaders if loader.evaluation and loader.batches]
    loader = max(evaluated, key=lambda one: one.samples, default=None)
    if loader is None or not spent_s:
        return
    times = per(loader.iterators, run.epochs)
    often = max(0.0, 1 - 1 / times) if times > 1.5 else 0.0
    trained = run.trained.batch_size if run.trained and run.trained.batch_size else 16
    small = (loader.batch_size or trained) <= max(1, trained // 4)
    keeps = [
        module for module in run.recording.modules if module.in_evaluation and module.grad_enabled and module.output_requires_grad
    ]
    each = 1 - (0.4 if small else 1.0) * (0.75 if keeps else 1.0)
    saved_s = spent_s * (1 - (1 - often) * (1 - each))
    if not (often or small or keeps):
        return
    said = [
        f"runs {times:.1f} times an epoch" if often else "",
        f"shows {format_count(loader.batch_size or 1, 'sample')} at a time" if small else "",
        "keeps what gradients need" if keeps else "",
    ]
    yield Cause(
        "slow-evaluation",
        "evaluate",
        saved_s,
        f"evaluation {', '.join(word for word in said if word)}, and takes {per(spent_s, run.span_s):.0%} of the time",
        "evaluate once an epoch, under torch.inference_mode(), with batches at least as large as for training",
        run.common_line("evaluate") or loader_place(loader),
        {
            "evaluate_s": spent_s,
            "passes_per_epoch": times,
            "batch_size": loader.batch_size,
            "gradients": bool(keeps),
            "remedy": "inference-mode",
        },
        f"with torch.inference_mode(): …  # after each epoch, over DataLoader(val, batch_size={4 * trained})",
    )


def slow_logging(run: TrainingFigures) -> Iterator[Cause]:
    """Histories, tables or figures written again in every step."""
    written = run.calls("write_open", "dump", phases=("step", "outside", "checkpoint"))
    looked = [(row, seconds) for row, seconds in run.sampled("step", "outside", stages=("log",)) if row.file]
    sampled = [(row, seconds) for row, seconds in looked if not row.library.startswith("torch.utils.data")]
    lines = {(row.file, row.line) for row in written}
    other_s = sum(
        seconds
        for row, seconds in run.sampled("step", stages=("python", "other", "open", "read"))
        if (row.file, row.line) in lines
    )
    spent_s = max(sum(seconds for _, seconds in sampled) + other_s, sum(row.seconds for row in written))
    if not written and not sampled:
        return
    place = CodeLine.of(sampled[0][0]) if sampled else CodeLine.of(written[0])
    count = sum(row.count for row in written if row.kind == "write_open")
    yield Cause(
        "slow-logging",
        "log",
        # of a history that grows by a row a step the last row is left to write, of other things perhaps one in ten
        (1 - min(0.1, 2 / run.num_steps) if count >= run.num_steps else 0.9) * spent_s,
        f"logging takes {format_seconds(per(spent_s, run.num_steps))} a step"
        + (f"; a file is written {per(count, run.num_steps):.1f} times a step" if count else ""),
        "append one line instead of writing the whole history again, and draw or write tables once an epoch",
        place,
        {"log_s": spent_s, "writes": count},
        'log.write(json.dumps(row) + "\\n")  # a line a step (JSON Lines), to a file that is opened once and closed at the end',
    )
