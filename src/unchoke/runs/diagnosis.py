"""What held a run back and what to do about it, from its record alone.

In: a record: clocks, choices, command, machine. Out: findings, the largest gain first, each with the seconds it would save, and
the bottleneck of a step by name. A gain is what the clocks counted, less what would be left of it. Nothing is measured here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from unchoke.core.findings import Finding
from unchoke.core.record import OperatorRecord, RunRecord
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_count, format_seconds

AROUND = ("evaluate", "checkpoint", "profiler")
"""Stages of a training that are not part of its steps."""
_COMPUTE = ("forward", "backward", "optimizer", "replay", "device")
_CACHED = ("open", "read", "verify", "decode", "transform")
"""What a cache of pixels does once instead of in each epoch."""
_LOOP_SHARE = 0.1
"""A stage that takes less of the steps is not looked at."""
_WORTH_SHARE, _NOTED_SHARE = 0.1, 0.03
"""From which share of the run on a gain is a warning, and from which it is mentioned."""
_MIN_SAVED_S = 1.0
_CHECKPOINT_SHARE, _CHECKPOINT_EVERY_S = 0.02, 60
_EVAL_BATCH, _SMALL_EVAL_BATCH = 64, 16
_TORCH_TO_OPENVINO = 6.6
"""How much faster float32 OpenVINO was on a CPU, in docs/claims-history.md."""


class _Cause(NamedTuple):
    code: str
    stage: str
    saved_s: float
    message: str
    fix: str
    command: str
    evidence: dict[str, Any]
    path: str | None = None


def diagnose_run(record: RunRecord, *, out: str = "", min_saved_s: float = _MIN_SAVED_S) -> list[Finding]:
    """What held a run back. Small gains, in seconds or as a share of the run, are left out. `out` ends each command."""
    total_s, found = sum(record.timings.values()), []
    causes = [*_in_training(record, out), *_in_extraction(record, out)]
    for cause in sorted(causes, key=lambda cause: -cause.saved_s):
        if cause.saved_s >= max(min_saved_s, _NOTED_SHARE * total_s):
            share = min(0.99, cause.saved_s / total_s)
            saved, whole = format_seconds(cause.saved_s), format_seconds(total_s)
            finding = Finding(
                code=cause.code,
                message=cause.message,
                severity="warning" if share >= _WORTH_SHARE else "info",
                path=cause.path or None,
                stage=cause.stage,
                evidence={**cause.evidence, "saved_s": cause.saved_s, "gain_share": share},
                expected_gain=f"about {saved} of {whole} ({share:.0%}), {1 / (1 - share):.1f}× as fast",
                fix=cause.fix,
                command=cause.command,
            )
            found.append(finding)
    return found


def _in_training(record: RunRecord, out: str) -> Iterator[_Cause]:
    """What steps spend on anything but computing, then what goes on around them."""
    if (train := record.timeline.get("train")) is None:
        return
    machine, training, splits, source = record.machine, record.training, record.data.splits, record.data.source
    wait_s, copy_s, prepare_s = (train.seconds(stage) for stage in ("wait", "copy", "prepare"))
    steps_s = max(train.wall_s - train.seconds(*AROUND), 1e-9)
    cached_s = sum(row.seconds for row in train.loading if row.stage in _CACHED)
    loading_s = cached_s + sum(row.seconds for row in train.loading if row.stage == "collate")
    decoded = sum(row.calls for row in train.loading if row.stage == "decode")
    epochs = record.planned_epochs or len(train.epochs) or len(record.history)
    # masks are trained on patches, which have no cache of pixels; on a CPU those who decode take cores from the training
    if decoded and epochs > 1 and (cache := _chosen(record, "cache")) is not None:
        taken_s = cached_s / machine.cores if machine.on_cpu else 0.0
        when = f"in these steps, as in each of {epochs} epochs" if record.planned_epochs else f"in {epochs} epochs"
        yield _Cause(
            "decoded-every-epoch",
            "decode",
            max(wait_s * cached_s / loading_s if loading_s else 0.0, taken_s) * (1 - 1 / epochs),
            f"pictures were read and decoded {format_count(decoded, 'time')} {when}: {format_seconds(cached_s)} of the workers' "
            f"time; the training waited {format_seconds(wait_s)} for data",
            "keep the decoded pixels: they are made once, for this run and the next",
            _command(record, "--cache", "disk", out=out),
            {"decoded": decoded, "reading_s": cached_s, "wait_s": wait_s, "cache": cache},
            source,
        )
    if wait_s / steps_s >= _LOOP_SHARE and machine.workers < machine.cores:
        hidden_s = 0.0 if machine.on_cpu else train.seconds(*_COMPUTE, "prepare", "copy")
        yield _Cause(
            "too-few-readers",
            "wait",
            wait_s - max(0.0, loading_s / machine.cores - hidden_s),
            f"{wait_s / steps_s:.0%} of the steps' time is waiting for {format_count(max(1, train.readers), 'worker')}, mostly "
            f"for {_slowest(train)}, on {format_count(machine.cores, 'core')}",
            "let more workers read ahead",
            _command(record, "--workers", machine.cores, out=out),
            {"wait_s": wait_s, "readers": train.readers, "workers": machine.workers, "cores": machine.cores},
            source,
        )
    if copy_s / steps_s >= _LOOP_SHARE and _is_tunable(record):
        message = f"copying batches to the device takes {copy_s / steps_s:.0%} of the steps' time"
        fix = "`unchoke tune` tries pinned memory, and keeps it if it is faster"
        yield _Cause("slow-copy", "copy", copy_s, message, fix, f"unchoke tune{out}", {"copy_s": copy_s})
    if prepare_s / steps_s >= _LOOP_SHARE and _chosen(record, "augment") == "strong":
        yield _Cause(
            "slow-augmentation",
            "prepare",
            prepare_s / 2,
            f"augmenting and normalising takes {prepare_s / steps_s:.0%} of the steps' time",
            "augment less (which is another training: compare its score), or cache augmented views with --cut -4 --views 3",
            _command(record, "--augment", "light", out=out),
            {"prepare_s": prepare_s, "augment": "strong"},
        )
    batch = int((training.loop.eval_batch if training and training.loop else None) or 0)
    if 0 < batch < _SMALL_EVAL_BATCH:
        judged = splits.get("val", 0) * (max(1, epochs) + 1) + splits.get("test", 0)
        trained, forward_s = splits.get("train", 0) * max(1, epochs), train.seconds("forward")
        spent_s, fair_s = train.seconds("evaluate"), judged * forward_s / trained if trained else 0.0
        yield _Cause(
            "slow-evaluation",
            "evaluate",
            spent_s - fair_s,
            f"evaluation took {format_seconds(spent_s)} in batches of {batch}; the same samples take about "
            f"{format_seconds(fair_s)} in the forward passes of training",
            "larger batches fit, because evaluation keeps nothing for gradients",
            _command(record, "--eval-batch", _EVAL_BATCH, out=out),
            {"evaluate_s": spent_s, "forward_s": fair_s, "eval_batch": batch, "samples": judged},
        )
    saving_s, calls = train.seconds("checkpoint"), train.calls("checkpoint")
    if saving_s and saving_s >= _LOOP_SHARE * train.wall_s:
        yield _Cause(
            "slow-checkpoint",
            "checkpoint",
            saving_s - _CHECKPOINT_SHARE * train.wall_s,
            f"{format_count(calls, 'checkpoint')} took {format_seconds(saving_s)}, {saving_s / train.wall_s:.0%} of the training",
            f"keep one every {_CHECKPOINT_EVERY_S} s: no more than that is done again after a kill",
            _command(record, "--checkpoint-every", _CHECKPOINT_EVERY_S, out=out),
            {"checkpoint_s": saving_s, "snapshots": calls},
        )


def _in_extraction(record: RunRecord, out: str) -> Iterator[_Cause]:
    """The frozen part waits for pictures, or runs in plain torch on a CPU."""
    if (extract := record.timeline.get("extract")) is None:
        return
    machine, whole_s, readers = record.machine, record.timings.get("extract", 0.0), max(1, extract.readers)
    waits, encodes = (extract.seconds(stage) / max(extract.wall_s, 1e-9) for stage in ("load", "encode"))
    if waits >= _LOOP_SHARE and readers < machine.cores:
        yield _Cause(
            "extraction-waits",
            "load",
            whole_s * waits * (1 - readers / machine.cores),
            f"the frozen network waited {waits:.0%} of its time for pictures, mostly for {_slowest(extract)}",
            f"let more workers read: {readers} did, on {format_count(machine.cores, 'core')}",
            _command(record, "--workers", machine.cores, out=out),
            {"load_share": waits, "extract_s": whole_s, "readers": readers, "cores": machine.cores},
            record.data.source,
        )
    missing = "openvino" not in record.versions
    # plain torch that was neither asked for nor the only engine was compared with the others, and preferred
    if encodes and machine.on_cpu and record.encoder.engine == "torch" and (missing or "--engine torch" in record.command):
        yield _Cause(
            "slow-engine",
            "encode",
            whole_s * encodes * (1 - 1 / _TORCH_TO_OPENVINO),
            f"the frozen network ran in plain torch, {format_seconds(whole_s * encodes)}; OpenVINO was {_TORCH_TO_OPENVINO} "
            "times as fast where both were measured, on an x86 CPU",
            f"{'install it' if missing else 'leave the engine open'}: the fastest one is used whose numbers agree",
            "pip install 'unchoke[openvino]'" if missing else _command(record, "--engine", out=out),
            {"encode_s": whole_s * encodes, "engine": "torch"},
        )


def _command(record: RunRecord, option: str, value: Any = None, *, out: str) -> str:
    """The run's own command with one option changed or left out; nothing where several models were trained within minutes."""
    if record.ladder:
        return ""
    words = shlex.split(record.command or "unchoke train")
    if option in words:
        del words[words.index(option) : words.index(option) + 2]
    return shlex.join(words if value is None else [*words, option, str(value)]) + out


def _is_tunable(record: RunRecord) -> bool:
    return not record.command.startswith("unchoke segment")


def _chosen(record: RunRecord, name: str) -> Any:
    return next((choice.value for choice in reversed(record.choices) if choice.name == name), None)


def _slowest(timeline: Timeline) -> str:
    """``decode (12.1 ms each)``: what workers did longest."""
    rows = [row for row in timeline.loading if row.stage != "hand over"]
    row = max(rows, key=lambda row: row.seconds, default=None)
    return f"{row.stage} ({format_seconds(row.seconds / max(1, row.calls))} each)" if row else "loading"


# -- the bottleneck of a step --------------------------------------------------------------------------------------------------

_LARGER_BATCH = ("launch-bound", "optimizer-bound")
_BY_STAGE = (
    (
        "data-bound",
        "wait",
        0.3,
        "waiting for the next batch: reading and decoding are slower than the network",
        "more workers, decoded pixels that are kept (--cache disk), or smaller pictures; a faster device would wait longer",
    ),
    (
        "copy-bound",
        "copy",
        0.2,
        "copying the batch to the device",
        "pinned memory and copies during the computing are tried by `unchoke tune`; smaller pictures move fewer bytes",
    ),
    (
        "augmentation-bound",
        "prepare",
        0.3,
        "augmenting and normalising",
        "a lighter --augment, or views that are augmented once and cached (--cut -4 --views 3): compare its score",
    ),
    (
        "optimizer-bound",
        "optimizer",
        0.25,
        "updating the weights, whatever the batch: many weights, few samples",
        "larger batches take fewer such steps, a cut nearer the end trains fewer weights: compare its score",
    ),
)
"""Name, stage, the share of a step from which the stage bounds it, what it does, what helps. The first that holds is named."""
_SMALL_CALL_S = 12e-6
"""Calling an operator takes some microseconds by itself: where the mean call is no longer, calling is what takes time."""
_IDLE_DEVICE = _MOVES = _DOMINATES = 0.5
_COMPUTES = ("conv", "mm", "linear", "matmul", "attention", "einsum")
_STEPS_WEIGHTS = ("Optimizer.", "aten::_fused_adam", "aten::_foreach_")


def name_bottleneck(
    record: RunRecord,
    stages_s: Mapping[str, float],
    operators: Sequence[OperatorRecord] = (),
    *,
    num_recorded: int = 0,
    num_steps: int = 1,
    out: str = "",
) -> Finding | None:
    """What bounds a step: `num_steps` steps took `stages_s`; a profiler measured the `operators` of `num_recorded` others."""
    total_s = sum(stages_s.values())
    if total_s <= 0:
        return None
    shares = {stage: seconds / total_s for stage, seconds in stages_s.items()}
    seen: dict[str, Any] = {"shares": {stage: round(share, 4) for stage, share in shares.items()}}
    bound = next((one for one in _BY_STAGE if shares.get(one[1], 0.0) >= one[2]), None)
    by_stage = (*bound[:2], f"{shares[bound[1]]:.0%} of a step is {bound[3]}", bound[4], seen) if bound else None
    found = by_stage
    if num_recorded and (by_stage is None or by_stage[0] == "optimizer-bound"):
        by_operators = _by_operators(operators, shares, total_s / num_steps, num_recorded)
        # an operator or many small calls explain a slow optimizer; that much memory is moved does not
        if by_operators and (by_stage is None or by_operators[0] != "memory-bound"):
            found = by_operators
    if found is None:
        compute = sum(shares.get(stage, 0.0) for stage in _COMPUTE)
        what = f"{compute:.0%} of a step is forward, backward and optimizer, most of it convolutions and products"
        fix = "`unchoke tune` tries memory layout, precision and compilation, and keeps what is equal and faster"
        found = "compute-bound", "forward", what, fix, {"compute_share": compute}
    code, stage, message, fix, evidence = found
    batch = _chosen(record, "batch_size") or record.settings.get("batch_size")
    command = f"unchoke tune{out}" if _is_tunable(record) else ""
    if code in _LARGER_BATCH and batch and not record.ladder:
        command = _command(record, "--batch-size", 2 * int(batch), out=out)
    return Finding(code=code, message=message, severity="info", stage=stage, evidence=evidence, fix=fix, command=command)


def _by_operators(
    operators: Sequence[OperatorRecord], shares: Mapping[str, float], step_s: float, num_recorded: int
) -> tuple[str, str, str, str, dict[str, Any]] | None:
    """One operator that dominates, many small calls, or operators that move numbers instead of computing."""
    calls, cpu_s = sum(one.calls for one in operators), sum(one.self_cpu_s for one in operators)
    device_s = sum(one.self_device_s for one in operators)
    spent = {one.name: one.self_device_s if device_s else one.self_cpu_s for one in operators}
    whole_s = sum(spent.values())
    name = max(spent, key=lambda name: spent[name], default="")
    share = spent[name] / whole_s if whole_s else 0.0
    if share >= _DOMINATES and not any(word in name for word in _COMPUTES) and not name.startswith(_STEPS_WEIGHTS):
        fix = "the trace shows where it is called; where others compute on this machine too, it may be one that waited for a core"
        evidence: dict[str, Any] = {"operator": name, "operator_share": share}
        return "operator-bound", "forward", f"{share:.0%} of the operators' time is {name} alone", fix, evidence
    busy, mean_s = device_s / num_recorded / step_s, cpu_s / max(1, calls)
    evidence = {"calls_per_step": round(calls / num_recorded), "mean_call_s": mean_s}
    launching = sum(shares.get(stage, 0.0) for stage in ("forward", "backward", "optimizer")) >= 0.5
    if (busy < _IDLE_DEVICE and launching) if device_s else mean_s < _SMALL_CALL_S:
        seen = f"the GPU computes {busy:.0%} of a step" if device_s else f"the mean call takes {mean_s * 1e6:.0f} µs"
        what = (
            f"a step is {evidence['calls_per_step']:,} small operations, and {seen}: calling them takes longer than what they do"
        )
        fix = "larger batches give each call more to do (another training: compare its score), compiling merges calls"
        return "launch-bound", "forward", what, fix, {**evidence, "device_busy_share": busy if device_s else None}
    others = {name: seconds for name, seconds in spent.items() if not name.startswith(_STEPS_WEIGHTS)}
    moving_s = sum(seconds for name, seconds in others.items() if not any(word in name for word in _COMPUTES))
    moving = moving_s / (sum(others.values()) or 1.0)
    if moving >= _MOVES:
        what = f"{moving:.0%} of the operators' time goes to those that move numbers (norms, activations, additions, copies)"
        fix = "memory layout, a shorter precision and compiling move fewer bytes: `unchoke tune` keeps what is equal and faster"
        return "memory-bound", "forward", what, fix, {**evidence, "moving_share": moving}
    return None
