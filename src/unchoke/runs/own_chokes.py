"""From the record of a run of ours to findings: what held it back, by how much, and the command that does without.

In: the record of a run: its clocks, ceilings, choices, command and machine. Out: findings, the largest gain first; where
nothing around the computing is worth changing, a note that says so. Nothing is measured here: gains are seconds that the clocks
counted, less what would be left of them. What holds a stage far below its ceiling is found in `ceiling_chokes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from unchoke.core.findings import NOTED_SHARE, WORTH_SHARE, Cause, CodeLine, Finding, per
from unchoke.core.record import RunRecord
from unchoke.core.units import format_count, format_seconds
from unchoke.runs.run_facts import MAKING, RunFacts, loading_s, slowest
from unchoke.runs.step_bottleneck import Bottleneck

_COMPUTE = ("forward", "backward", "optimizer", "replay", "device")
_LOOP_SHARE = 0.1
_CHECKPOINT_SHARE = 0.02
_CHECKPOINT_EVERY_S = 60
_EVAL_BATCH = 64
_SMALL_EVAL_BATCH = 16
_TORCH_TO_OPENVINO = 6.6
"""How much faster float32 OpenVINO was on a CPU, in docs/claims.md."""
_MIN_SAVED_S = 1.0


def decoded_every_epoch(run: RunFacts) -> Iterator[Cause]:
    """No cache of pixels: each epoch reads and decodes every picture again."""
    again_s = loading_s(run.train, *MAKING)
    decoded = sum(row.calls for row in run.train.loading if row.stage == "decode")
    if not decoded or run.epochs < 2 or "cache" not in run.choices:  # masks are trained on patches that have no such cache
        return
    waited_s = run.train.seconds("wait") * per(again_s, loading_s(run.train))
    epochs = format_count(run.epochs, "epoch")
    when = f"in these steps, as in each of {epochs}" if run.planned_epochs else f"in {epochs}"
    taken_s = again_s / run.machine.cores if run.machine.on_cpu else 0.0  # the cores that decode are those that train
    yield Cause(
        "decoded-every-epoch",
        "decode",
        max(waited_s, taken_s) * (1 - 1 / run.epochs),
        f"pictures were read and decoded {format_count(decoded, 'time')} {when}, "
        f"{format_seconds(again_s)} of readers' time; the training waited {format_seconds(run.train.seconds('wait'))} for data",
        "keep the decoded pixels: they are made once, for this run and the next",
        run.place,
        {"decoded": decoded, "reading_s": again_s, "wait_s": run.train.seconds("wait"), "cache": _chosen(run, "cache")},
        run.command("--cache", "disk"),
    )


def too_few_readers(run: RunFacts) -> Iterator[Cause]:
    """The training waits for data while there are cores that read nothing."""
    wait_s, readers = run.train.seconds("wait"), run.train.readers
    workers = run.machine.workers
    if workers >= run.machine.cores or per(wait_s, run.steps_s) < _LOOP_SHARE:
        return
    beside_s = run.train.seconds(*_COMPUTE, "prepare", "copy")
    hidden_s = 0.0 if run.machine.on_cpu else beside_s  # the cores that read are those that train
    left_s = max(0.0, loading_s(run.train) / run.machine.cores - hidden_s)
    yield Cause(
        "too-few-readers",
        "wait",
        wait_s - left_s,
        f"{per(wait_s, run.steps_s):.0%} of the steps' time is waiting for {format_count(max(1, readers), 'thread')} that read, "
        f"mostly {slowest(run.train)}, on {format_count(run.machine.cores, 'core')}",
        "let more threads read ahead",
        run.place,
        {"wait_s": wait_s, "readers": readers, "workers": workers, "cores": run.machine.cores},
        run.command("--workers", run.machine.cores),
    )


def slow_evaluation(run: RunFacts) -> Iterator[Cause]:
    """Evaluation takes longer for a sample than the forward pass of training does, in batches smaller than it could have."""
    training = run.record.training
    batch = int((training.loop.eval_batch if training and training.loop else None) or 0)
    if not 0 < batch < _SMALL_EVAL_BATCH:
        return
    trained = run.splits.get("train", 0) * run.epochs
    judged = run.splits.get("val", 0) * (run.epochs + 1) + run.splits.get("test", 0)
    spent_s, fair_s = run.train.seconds("evaluate"), judged * per(run.train.seconds("forward"), trained)
    yield Cause(
        "slow-evaluation",
        "evaluate",
        spent_s - fair_s,
        f"evaluation took {format_seconds(spent_s)} in batches of {batch}; the same samples take about {format_seconds(fair_s)} "
        "in the forward passes of training",
        "nothing is kept for gradients there, so larger batches fit",
        CodeLine(),
        {"evaluate_s": spent_s, "forward_s": fair_s, "eval_batch": batch, "samples": judged},
        run.command("--eval-batch", _EVAL_BATCH),
    )


def slow_checkpoint(run: RunFacts) -> Iterator[Cause]:
    """More of the training goes into snapshots than losing a minute would cost."""
    spent_s = run.train.seconds("checkpoint")
    calls = sum(row.calls for row in run.train.stages if row.stage == "checkpoint")
    if per(spent_s, run.train.wall_s) < _LOOP_SHARE:
        return
    yield Cause(
        "slow-checkpoint",
        "checkpoint",
        spent_s - _CHECKPOINT_SHARE * run.train.wall_s,
        f"{format_count(calls, 'snapshot')} took {format_seconds(spent_s)}, {per(spent_s, run.train.wall_s):.0%} of the training",
        f"keep one every {_CHECKPOINT_EVERY_S} s: no more than that is done again after a kill",
        CodeLine(),
        {"checkpoint_s": spent_s, "snapshots": calls},
        run.command("--checkpoint-every", _CHECKPOINT_EVERY_S),
    )


def slow_copy(run: RunFacts) -> Iterator[Cause]:
    """Batches take long to reach the device."""
    spent_s = run.train.seconds("copy")
    if not run.is_tunable or per(spent_s, run.steps_s) < _LOOP_SHARE:
        return
    yield Cause(
        "slow-copy",
        "copy",
        spent_s,
        f"copying batches to the device takes {per(spent_s, run.steps_s):.0%} of the steps' time",
        "pinned memory may make it faster: it is tried, and kept if it does; more than the copying cannot be gained",
        CodeLine(),
        {"copy_s": spent_s},
        run.tuning,
    )


def slow_augmentation(run: RunFacts) -> Iterator[Cause]:
    """Augmenting takes a good part of each step; doing less of it is another training, and the finding says so."""
    spent_s, strength = run.train.seconds("prepare"), _chosen(run, "augment")
    if strength != "strong" or per(spent_s, run.steps_s) < _LOOP_SHARE:
        return
    yield Cause(
        "slow-augmentation",
        "prepare",
        spent_s / 2,
        f"augmenting and normalising takes {per(spent_s, run.steps_s):.0%} of the steps' time",
        "augment less (which is another training: compare its score), or cache augmented views with --cut -4 --views 3",
        CodeLine(),
        {"prepare_s": spent_s, "augment": strength},
        run.command("--augment", "light"),
    )


def extraction_waits(run: RunFacts) -> Iterator[Cause]:
    """The frozen part waits for pictures while there are cores that read nothing."""
    share = per(run.extract.seconds("load"), run.extract.wall_s)
    readers = max(1, run.extract.readers)
    if readers >= run.machine.cores or share < _LOOP_SHARE:
        return
    spent_s = run.timings.get("extract", 0.0)
    yield Cause(
        "extraction-waits",
        "load",
        spent_s * share * (1 - readers / run.machine.cores),
        f"the frozen network waited {share:.0%} of its time for pictures, mostly {slowest(run.extract)}",
        f"let more threads read: {readers} did, on {format_count(run.machine.cores, 'core')}",
        run.place,
        {"load_share": share, "extract_s": spent_s, "readers": readers, "cores": run.machine.cores},
        run.command("--workers", run.machine.cores),
    )


def slow_engine(run: RunFacts) -> Iterator[Cause]:
    """The frozen part ran in plain torch on a CPU."""
    share = per(run.extract.seconds("encode"), run.extract.wall_s)
    if not run.machine.on_cpu or run.record.encoder.engine != "torch" or not share:
        return
    asked = "--engine torch" in run.record.command
    missing = "openvino" not in run.record.versions
    if not asked and not missing:  # it was compared with the others, and preferred
        return
    spent_s = run.timings.get("extract", 0.0) * share
    yield Cause(
        "slow-engine",
        "encode",
        spent_s * (1 - 1 / _TORCH_TO_OPENVINO),
        f"the frozen network ran in plain torch, {format_seconds(spent_s)}; OpenVINO was {_TORCH_TO_OPENVINO} times as fast "
        "where both were measured, on an x86 CPU",
        f"{'install it' if missing else 'leave the engine open'}: the fastest one is used whose numbers agree",
        CodeLine(),
        {"encode_s": spent_s, "engine": "torch"},
        "pip install 'unchoke[openvino]'" if missing else run.command("--engine"),
    )


def _chosen(run: RunFacts, name: str) -> Any:
    return run.choices[name].value if name in run.choices else None


RULES: tuple[Callable[[RunFacts], Iterator[Cause]], ...] = (
    decoded_every_epoch,
    too_few_readers,
    slow_evaluation,
    slow_checkpoint,
    slow_copy,
    slow_augmentation,
    extraction_waits,
    slow_engine,
)


def diagnose_run(record: RunRecord, *, out: str = "", min_saved_s: float | None = None) -> list[Finding]:
    """What held a run back. Gains below a second, or below `NOTED_SHARE` of the run, are not told, but for those of a stage that
    stayed far below its ceiling. `out` ends each command.
    """
    run, floor_s = RunFacts(record, out), _MIN_SAVED_S if min_saved_s is None else min_saved_s
    if not run.total_s:
        return []
    least_s = max(floor_s, NOTED_SHARE * run.total_s)
    causes = [cause for rule in RULES for cause in rule(run) if cause.saved_s >= least_s]
    found = [_finding(cause, run) for cause in sorted(causes, key=lambda cause: -cause.saved_s)]
    return found or list(_computing(run, floor_s))


def bounded_by(found: Bottleneck, record: RunRecord, *, out: str = "") -> Finding:
    """What bounds a step, as a finding with the command that tries something about it."""
    run = RunFacts(record, out)
    batch = _chosen(run, "batch_size") or record.settings.get("batch_size")
    larger = run.command("--batch-size", 2 * int(batch)) if found.wants_larger_batch and batch else ""
    return Finding(
        code=found.name,
        message=found.what,
        severity="info",
        stage=found.stage,
        evidence=found.evidence,
        fix=found.fix,
        command=larger or (run.tuning if run.is_tunable else ""),
    )


def _finding(cause: Cause, run: RunFacts) -> Finding:
    share = min(0.99, cause.saved_s / run.total_s)
    saved, total = format_seconds(cause.saved_s), format_seconds(run.total_s)
    return Finding(
        code=cause.code,
        message=cause.message,
        severity="warning" if share >= WORTH_SHARE else "info",
        path=cause.place.file or None,
        stage=cause.stage,
        evidence={**cause.evidence, "saved_s": cause.saved_s, "gain_share": share},
        expected_gain=f"about {saved} of {total} ({share:.0%}), {1 / (1 - share):.1f}× as fast",
        fix=cause.fix,
        command=cause.edit,
    )


def _computing(run: RunFacts, floor_s: float) -> Iterator[Finding]:
    """Nothing around the computing is worth changing; whether the computing itself can be faster is found by trying."""
    spent_s = run.train.seconds(*_COMPUTE)
    tuned = any("tuned" in choice.evidence for choice in run.choices.values())
    share = per(spent_s, run.total_s)
    if tuned or not run.is_tunable or spent_s < 10 * floor_s or share < 0.5:
        return
    yield Finding(
        code="compute-bound",
        message=f"{share:.0%} of the time is forward, backward and optimizer; nothing around them is worth changing",
        severity="info",
        stage="forward",
        evidence={"compute_s": spent_s, "total_s": run.total_s},
        fix="memory layout, precision and compilation are tried on this network, and kept where they are equal and faster",
        command=run.tuning,
    )
