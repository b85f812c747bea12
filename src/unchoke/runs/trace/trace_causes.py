"""What holds a trace's steps back, as findings of the doctor's catalogue: waiting for data, synchronisations, growing memory,
stages that take more than they should. In: a record. Out: findings, the largest share of a step first; none where nothing
stands out.
"""

from __future__ import annotations

from bisect import bisect_right
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
    """Findings with their share of a step, the largest first."""
    means, steps, found = record.mean_stages(), max(1, len(record.steps)), list[Finding]()
    whole_us = sum(means.values()) or 1.0

    def find(code: str, message: str, share: float, **figures: float) -> None:
        page, evidence = cause(code), {"share": round(share, 3), **figures}
        found.append(Finding(code, message, stage=page.stage, fix=page.fix, kind=page.kind, basis="measured", evidence=evidence))

    waiting = means.get("wait", 0.0) / whole_us
    if waiting >= _WAITING:
        alone = any("_SingleProcessDataLoaderIter" in row.name for row in record.operators)
        code, how = ("no-workers", "the DataLoader has no workers") if alone else ("few-workers", "its workers do not keep up")
        find(code, f"the training thread waits for data {waiting:.0%} of the time: {how}", waiting)

    share = means.get("synchronise", 0.0) / whole_us
    calls = sum(row.calls for row in record.operators if row.name in _SYNCHRONISE)
    if share >= _SYNCHRONISING or calls >= _MANY_SYNCHRONISATIONS * steps:
        per_step = f"{calls:,} synchronisations with the device ({calls / steps:.0f} per step)"
        find("host-sync", f"{per_step} take {share:.0%} of a step", share, calls=calls)

    kernels = [row for row in record.kernels if row.kind == "kernel"]
    calls, busy_us = sum(row.calls for row in kernels), sum(row.total_us for row in kernels)
    wall_us = sum(step.wall_us for step in record.steps)
    idle = 1 - sum(step.device_busy_us for step in record.steps) / wall_us if wall_us else 0.0
    if idle >= _IDLE and calls >= _MANY_KERNELS * steps and busy_us / calls <= _TINY_KERNEL_US:
        between = f"between {calls / steps:,.0f} kernels of {busy_us / calls:.0f} µs per step"
        find("small-batches", f"the GPU is idle {idle:.0%} of the time {between}", idle, kernels=calls)

    for line in record.memory:
        growth, on_device = _growth(line, record), any(line.reserved)  # a caching allocator, as GPUs have
        kept = [(row.self_device_bytes if on_device else row.self_cpu_bytes, row) for row in record.by_name()]
        held, most = max(kept, key=lambda pair: pair[0], default=(0, None))
        if growth >= _GROWTH_BYTES:
            message = f"memory on {line.device} grows by {format_bytes(growth / steps)} per step, {format_bytes(growth)} in all"
            find("growing-graph", message + (f"; most of it by {most.name}" if most and held else ""), 0.0, bytes=growth)
        elif most is not None and held >= _LARGE_BYTES:
            lost = f"allocates {format_bytes(held)} on {line.device} that it does not free, in {most.calls:,} calls"
            find("large-allocation", f"{most.name} {lost}", 0.0, bytes=held)

    for stage, (code, enough) in _STAGES.items():
        if (share := means.get(stage, 0.0) / whole_us) >= enough:
            find(code, f"{stage} takes {share:.0%} of a step", share)
    return sorted(found, key=lambda finding: -finding.evidence["share"])


def _growth(line: MemoryLine, record: TraceRecord) -> int:
    """Bytes added from the end of the first step to the end of the last, if nearly every step adds some."""
    if len(record.steps) < 3 or record.steps[0].name == WHOLE or not line.at_us:
        return 0
    ends = [line.allocated[max(0, bisect_right(line.at_us, step.start_us + step.wall_us) - 1)] for step in record.steps]
    rising = sum(after > before for before, after in pairwise(ends))
    return max(0, ends[-1] - ends[0]) if rising >= 0.8 * (len(ends) - 1) else 0
