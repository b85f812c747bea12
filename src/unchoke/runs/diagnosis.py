"""What held a run back and what to do about it, from its record alone.

In: a record: clocks, choices, command, machine. Out: findings, the largest gain first, each with the seconds it would save, and
the bottleneck of a step by name. A gain is what the clocks counted, less what would be left of it. Nothing is measured here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unchoke.core.findings import Finding, Severity
from unchoke.core.record import OperatorRecord, RunRecord
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_count, format_seconds

AROUND = ("evaluate", "checkpoint", "profiler")
"""Stages of a training that are not part of its steps."""
_COMPUTE = ("forward", "backward", "optimizer", "replay", "device")
_CACHED = ("open", "read", "verify", "decode", "transform")
"""What a cache of pixels does once instead of in each epoch."""
_LOOP_SHARE = 0.1
"""Waiting that takes less of the steps is not looked at."""
_WORTH_SHARE, _NOTED_SHARE = 0.1, 0.03
"""From which share of the run on a gain is a warning, and from which it is mentioned."""
_MIN_SAVED_S = 1.0
_TORCH_TO_OPENVINO = 6.6
"""How much faster float32 OpenVINO was on a CPU, in docs/claims-history.md."""


def diagnose_run(record: RunRecord, *, out: str = "", min_saved_s: float = _MIN_SAVED_S) -> list[Finding]:
    """What held a run back. Small gains, in seconds or as a share of the run, are left out. `out` ends each command."""
    total_s, found = sum(record.timings.values()), []
    causes = [*_in_training(record, out), *_in_extraction(record, out)]
    for saved_s, cause in sorted(causes, key=lambda one: -one[0]):
        if saved_s >= max(min_saved_s, _NOTED_SHARE * total_s):
            share = min(0.99, saved_s / total_s)
            gain = f"about {format_seconds(saved_s)} of {format_seconds(total_s)} ({share:.0%}), {1 / (1 - share):.1f}× as fast"
            evidence = {**cause.evidence, "saved_s": saved_s, "gain_share": share}
            severity: Severity = "warning" if share >= _WORTH_SHARE else "info"
            found.append(replace(cause, severity=severity, evidence=evidence, expected_gain=gain))
    return found


def _in_training(record: RunRecord, out: str) -> Iterator[tuple[float, Finding]]:
    """Seconds to be saved, and why: pictures that are decoded in each epoch, and steps that wait for too few workers."""
    if (train := record.timeline.get("train")) is None:
        return
    machine, wait_s = record.machine, train.seconds("wait")
    cached_s = sum(row.seconds for row in train.loading if row.stage in _CACHED)
    loading_s = cached_s + sum(row.seconds for row in train.loading if row.stage == "collate")
    decoded = sum(row.calls for row in train.loading if row.stage == "decode")
    epochs = record.planned_epochs or len(train.epochs) or len(record.history)
    # masks are trained on patches, which have no cache of pixels; on a CPU those who decode take cores from the training
    if decoded and epochs > 1 and (cache := _chosen(record, "cache")) is not None:
        taken_s = cached_s / machine.cores if machine.on_cpu else 0.0
        when = f"in these steps, as in each of {epochs} epochs" if record.planned_epochs else f"in {epochs} epochs"
        saved_s = max(wait_s * cached_s / loading_s if loading_s else 0.0, taken_s) * (1 - 1 / epochs)
        finding = Finding(
            code="decoded-every-epoch",
            stage="decode",
            message=f"pictures were read and decoded {format_count(decoded, 'time')} {when}: {format_seconds(cached_s)} of "
            f"the workers' time; the training waited {format_seconds(wait_s)} for data",
            fix="keep the decoded pixels: they are made once, for this run and the next",
            command=_command(record, "--cache", "disk", out=out),
            evidence={"decoded": decoded, "reading_s": cached_s, "wait_s": wait_s, "cache": cache},
            path=record.data.source or None,
        )
        yield saved_s, finding
    share = wait_s / max(train.wall_s - train.seconds(*AROUND), 1e-9)
    if share >= _LOOP_SHARE and machine.workers < machine.cores:
        hidden_s = 0.0 if machine.on_cpu else train.seconds(*_COMPUTE, "prepare", "copy")
        finding = Finding(
            code="too-few-readers",
            stage="wait",
            message=f"{share:.0%} of the steps' time is waiting for {format_count(max(1, train.readers), 'worker')}, mostly "
            f"for {_slowest(train)}, on {format_count(machine.cores, 'core')}",
            fix="let more workers read ahead",
            command=_command(record, "--workers", machine.cores, out=out),
            evidence={"wait_s": wait_s, "readers": train.readers, "workers": machine.workers, "cores": machine.cores},
            path=record.data.source or None,
        )
        yield wait_s - max(0.0, loading_s / machine.cores - hidden_s), finding


def _in_extraction(record: RunRecord, out: str) -> Iterator[tuple[float, Finding]]:
    """The same of the frozen part: it waits for pictures, or runs in plain torch on a CPU."""
    if (extract := record.timeline.get("extract")) is None:
        return
    machine, whole_s, readers = record.machine, record.timings.get("extract", 0.0), max(1, extract.readers)
    waits, encodes = (extract.seconds(stage) / max(extract.wall_s, 1e-9) for stage in ("load", "encode"))
    if waits >= _LOOP_SHARE and readers < machine.cores:
        finding = Finding(
            code="extraction-waits",
            stage="load",
            message=f"the frozen network waited {waits:.0%} of its time for pictures, mostly for {_slowest(extract)}",
            fix=f"let more workers read: {readers} did, on {format_count(machine.cores, 'core')}",
            command=_command(record, "--workers", machine.cores, out=out),
            evidence={"load_share": waits, "extract_s": whole_s, "readers": readers, "cores": machine.cores},
            path=record.data.source or None,
        )
        yield whole_s * waits * (1 - readers / machine.cores), finding
    missing = "openvino" not in record.versions
    # plain torch that was neither asked for nor the only engine was compared with the others, and preferred
    if encodes and machine.on_cpu and record.encoder.engine == "torch" and (missing or "--engine torch" in record.command):
        finding = Finding(
            code="slow-engine",
            stage="encode",
            message=f"the frozen network ran in plain torch, {format_seconds(whole_s * encodes)}; OpenVINO was "
            f"{_TORCH_TO_OPENVINO} times as fast where both were measured, on an x86 CPU",
            fix=f"{'install it' if missing else 'leave the engine open'}: the fastest one is used whose numbers agree",
            command="pip install 'unchoke[openvino]'" if missing else _command(record, "--engine", out=out),
            evidence={"encode_s": whole_s * encodes, "engine": "torch"},
        )
        yield whole_s * encodes * (1 - 1 / _TORCH_TO_OPENVINO), finding


def _command(record: RunRecord, option: str, value: Any = None, *, out: str) -> str:
    """The run's own command with one option changed or left out; nothing where several models were trained within minutes."""
    if record.ladder:
        return ""
    words = shlex.split(record.command or "unchoke train")
    if option in words:
        del words[words.index(option) : words.index(option) + 2]
    return shlex.join(words if value is None else [*words, option, str(value)]) + out


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
    command = "" if record.command.startswith("unchoke segment") else f"unchoke tune{out}"
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
