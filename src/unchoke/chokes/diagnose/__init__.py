"""From a recording to findings: each names the stage, the line, what it costs, what to do, and what that would save.

In: a `Recording` of somebody's training script. Out: findings, the largest gain first. Rules are functions from a
`TrainingFigures` to causes with the seconds they would save; rules that explain what is left over come last and see what others
found. A gain below `WORTH_SHARE` of the training is a note, one below `NOTED_SHARE` is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from unchoke.chokes.diagnose import line_causes as lines
from unchoke.chokes.diagnose import loading_causes as loading
from unchoke.chokes.diagnose import loop_causes as loop
from unchoke.chokes.diagnose import network_causes as network
from unchoke.chokes.diagnose import worker_causes as workers
from unchoke.chokes.diagnose.training_figures import TrainingFigures
from unchoke.chokes.recording import Recording
from unchoke.core.findings import NOTED_SHARE, Cause, Finding
from unchoke.core.units import format_seconds

_MIN_STEPS = 3

RULES: tuple[Callable[[TrainingFigures], Iterator[Cause]], ...] = (
    loading.stat_per_sample,
    loading.list_per_sample,
    loading.oversized_decode,
    loading.repeated_decode,
    loading.reopened_file,
    loading.compressed_npz,
    loading.parsed_per_sample,
    loading.transform_at_full_size,
    lines.full_size_arrays,
    lines.recomputed,
    workers.worker_startup,
    workers.slow_collate,
    workers.fat_handover,
    workers.spinning_thread,
    network.anomaly_mode,
    network.allocator_faults,
    network.double_precision,
    network.dense_optimizer,
    network.padded_batches,
    network.tiny_batches,
    network.tile_loop,
    network.frozen_recomputed,
    network.frozen_gradients,
    network.graph_kept,
    loop.host_sync,
    loop.garbage_collected,
    loop.slow_checkpoint,
    loop.slow_evaluation,
    loop.slow_logging,
)
LEFT_OVER: tuple[Callable[[TrainingFigures, Sequence[Cause]], Iterator[Cause]], ...] = (
    lines.sample_lines,
    lines.loop_lines,
    workers.no_workers,
    workers.waiting,
)


def diagnose(recording: Recording) -> list[Finding]:
    """What holds the recorded training back; nothing where it is too short to tell, or healthy."""
    run = TrainingFigures(recording)
    if run.num_steps < _MIN_STEPS or not run.span_s:
        return []
    causes = [cause for rule in RULES for cause in rule(run) if cause.saved_s >= NOTED_SHARE * run.span_s]
    for rule in LEFT_OVER:
        causes += [cause for cause in rule(run, causes) if cause.saved_s >= NOTED_SHARE * run.span_s]
    return [_finding(cause, run) for cause in sorted(causes, key=lambda cause: -cause.saved_s)]


def _finding(cause: Cause, run: TrainingFigures) -> Finding:
    share = min(0.99, cause.saved_s / run.span_s)
    each_s = cause.saved_s / run.num_steps
    diff = [f"{sign} {line}" for sign, line in zip("-+", cause.diff, strict=False)]
    step_s = run.span_s / run.num_steps
    return Finding(
        code=cause.code,
        message=cause.message,
        severity="warning" if share >= cause.worth_share else "info",
        path=cause.place.file or None,
        line=cause.place.line or None,
        stage=cause.stage,
        evidence={**cause.evidence, "saved_s": cause.saved_s, "gain_share": share, "function": cause.place.function}
        | ({"diff": diff} if diff else {}),
        expected_gain=(
            f"about {format_seconds(each_s)} of {format_seconds(step_s)} a step ({share:.0%}), {1 / (1 - share):.1f}× as fast"
        ),
        fix=cause.fix,
        command=cause.edit,
    )
