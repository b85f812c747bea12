"""What ran on the device, by name: kernels, copies and fills, with how long and how often, and how they were launched.

In: a file's spans. Out: one row for each name. A trace without a device gives no rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from unchoke.reports.trace.operators import launchers
from unchoke.reports.trace.spans import DEVICE_WORK, Span
from unchoke.reports.trace.trace_records import Kernel

_GRID, _BLOCK = "grid", "block"
_REGISTERS, _SHARED = "registers per thread", "shared memory"
_OCCUPANCY = "est. achieved occupancy %"


def sum_kernels(spans: Sequence[Span]) -> tuple[Kernel, ...]:
    """One row for each kind and name, longest first; shares are of all device time."""
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if span.kind in DEVICE_WORK:
            found.setdefault((span.kind, span.name), []).append(span)
    whole_ns = sum(span.duration_ns for runs in found.values() for span in runs) or 1
    launched_by = launchers(spans)
    rows = [_row(kind, name, runs, whole_ns, launched_by) for (kind, name), runs in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))


def _row(kind: str, name: str, runs: Sequence[Span], whole_ns: int, launched_by: Mapping[int, Span]) -> Kernel:
    lengths = [run.duration_ns for run in runs]
    return Kernel(
        name=name,
        kind=kind,
        calls=len(runs),
        total_us=sum(lengths) / 1000,
        mean_us=sum(lengths) / len(runs) / 1000,
        min_us=min(lengths) / 1000,
        max_us=max(lengths) / 1000,
        share=sum(lengths) / whole_ns,
        launched_by=_usual(launched_by[run.link].name for run in runs if run.link in launched_by) or "",
        grid=_usual(sizes_text(run.facts.get(_GRID)) for run in runs) or "",
        block=_usual(sizes_text(run.facts.get(_BLOCK)) for run in runs) or "",
        registers=_usual_number(runs, _REGISTERS),
        shared_bytes=_usual_number(runs, _SHARED),
        occupancy_percent=_occupancy(runs),
        moved_bytes=sum(moved for run in runs if isinstance(moved := run.facts.get("bytes"), int)),
    )


def _usual(texts: Iterable[str]) -> str | None:
    counted = Counter(text for text in texts if text).most_common(1)
    return counted[0][0] if counted else None


def _usual_number(runs: Iterable[Span], fact: str) -> int | None:
    counted = Counter(value for run in runs if isinstance(value := run.facts.get(fact), int)).most_common(1)
    return counted[0][0] if counted else None


def _occupancy(runs: Iterable[Span]) -> float | None:
    known = [(run.duration_ns, value) for run in runs if isinstance(value := run.facts.get(_OCCUPANCY), int | float)]
    whole_ns = sum(length for length, _ in known)
    return sum(length * value for length, value in known) / whole_ns if whole_ns else None


def sizes_text(sizes: object) -> str:
    """``[12, 1, 1]`` as ``12×1×1``."""
    return "×".join(map(str, sizes)) if isinstance(sizes, list) else ""
