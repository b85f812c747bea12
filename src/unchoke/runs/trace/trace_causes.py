"""What holds a trace's steps back, as findings of the doctor's catalogue: waiting for data, synchronisations, growing memory,
stages that take more than they should. In: a record. Out: findings, the largest share of a step first; none where nothing
stands out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from unchoke.core.findings import Finding
from unchoke.core.units import format_bytes
from unchoke.runs.trace.trace_record import MemoryLine, TraceRecord
from unchoke.runs.trace.trace_steps import WHOLE
from unchoke_doctor.causes import cause

_STAGES = {"evaluate": ("slow-evaluation", 0.25), "checkpoint": ("slow-checkpoint", 0.1), "optimizer": ("slow-optimizer", 0.35)}
_WAITING, _SYNCHRONISING, _MANY_SYNCHRONISATIONS = 0.2, 0.1, 10
_IDLE, _TINY_KERNEL_US, _MANY_KERNELS = 0.5, 15.0, 100
_GROWTH_BYTES, _LARGE_BYTES = 64_000_000, 256_000_000
_SYNCHRONISE = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "hipStreamSynchronize",
    "hipDeviceSynchronize",
)


def find_causes(record: TraceRecord) -> list[Finding]:
    means = record.mean_stages()
    whole_us = sum(means.values())
    shares = {stage: mean / whole_us for stage, mean in means.items()} if whole_us else {}
    steps = max(1, len(record.steps))
    found = [
        *_waiting(record, shares),
        *_synchronising(record, shares, steps),
        *_small_kernels(record, steps),
        *_memory(record, steps),
    ]
    for stage, (code, enough) in _STAGES.items():
        if shares.get(stage, 0.0) >= enough:
            found.append(_finding(code, f"{stage} takes {shares[stage]:.0%} of a step", shares[stage]))
    return sorted(found, key=lambda finding: -finding.evidence["share"])


def _finding(code: str, message: str, share: float, **figures: float) -> Finding:
    page = cause(code)
    evidence = {"share": round(share, 3), **figures}
    return Finding(code, message, stage=page.stage, fix=page.fix, kind=page.kind, basis="measured", evidence=evidence)


def _waiting(record: TraceRecord, shares: dict[str, float]) -> Iterator[Finding]:
    share = shares.get("wait", 0.0)
    if share >= _WAITING:
        alone = any("_SingleProcessDataLoaderIter" in row.name for row in record.operators)
        how = "the DataLoader has no workers" if alone else "its workers do not keep up"
        yield _finding(
            "no-workers" if alone else "few-workers", f"the training thread waits for data {share:.0%} of the time: {how}", share
        )


def _synchronising(record: TraceRecord, shares: dict[str, float], steps: int) -> Iterator[Finding]:
    share = shares.get("synchronise", 0.0)
    calls = sum(row.calls for row in record.operators if row.name in _SYNCHRONISE)
    if share >= _SYNCHRONISING or calls >= _MANY_SYNCHRONISATIONS * steps:
        message = f"{calls:,} synchronisations with the device ({calls / steps:.0f} per step) take {share:.0%} of a step"
        yield _finding("host-sync", message, share, calls=calls)


def _small_kernels(record: TraceRecord, steps: int) -> Iterator[Finding]:
    kernels = [row for row in record.kernels if row.kind == "kernel"]
    calls, busy_us = sum(row.calls for row in kernels), sum(row.total_us for row in kernels)
    wall_us = sum(step.wall_us for step in record.steps)
    idle = 1 - sum(step.device_busy_us for step in record.steps) / wall_us if wall_us else 0.0
    if idle >= _IDLE and calls >= _MANY_KERNELS * steps and busy_us / calls <= _TINY_KERNEL_US:
        message = (
            f"the GPU is idle {idle:.0%} of the time between {calls / steps:,.0f} kernels of {busy_us / calls:.0f} µs per step"
        )
        yield _finding("small-batches", message, idle, kernels=calls)


def _memory(record: TraceRecord, steps: int) -> Iterator[Finding]:
    rows = record.by_name()
    for line in record.memory:
        growth = _growth(line, record)
        on_device = any(line.reserved)  # a caching allocator, as GPUs have
        most = max(rows, key=lambda row: row.self_device_bytes if on_device else row.self_cpu_bytes, default=None)
        kept = 0 if most is None else most.self_device_bytes if on_device else most.self_cpu_bytes
        if growth >= _GROWTH_BYTES:
            message = f"memory on {line.device} grows by {format_bytes(growth / steps)} per step, {format_bytes(growth)} in all"
            yield _finding(
                "growing-graph", message + (f"; most of it by {most.name}" if most and kept else ""), 0.0, bytes=growth
            )
        elif most is not None and kept >= _LARGE_BYTES:
            message = (
                f"{most.name} allocates {format_bytes(kept)} on {line.device} that it does not free, in {most.calls:,} calls"
            )
            yield _finding("large-allocation", message, 0.0, bytes=kept)


def _growth(line: MemoryLine, record: TraceRecord) -> int:
    """Bytes added from the end of the first step to the end of the last, if nearly every step adds some."""
    if len(record.steps) < 3 or record.steps[0].name == WHOLE or not line.at_us:
        return 0
    ends = [line.allocated[max(0, bisect_right(line.at_us, step.start_us + step.wall_us) - 1)] for step in record.steps]
    rising = sum(after > before for before, after in pairwise(ends))
    return max(0, ends[-1] - ends[0]) if rising >= 0.8 * (len(ends) - 1) else 0
