"""Memory over time, thinned without losing its peak."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import traces
from unchoke.reports.trace import read_trace
from unchoke.reports.trace.trace_records import Memory


def lines_of(made: traces.Recording, folder: Path) -> tuple[Memory, ...]:
    made.op("aten::empty", 0, 1)
    return read_trace(made.save(folder / "one.json")).memory


def test_each_device_has_its_line_with_the_peak(tmp_path: Path) -> None:
    made = traces.Recording()
    for at, total in ((10, 500), (20, 900), (30, 100)):
        made.memory(at, 0, total)
        made.memory(at, 0, 10 * total, device=1, reserved=20_000)
    processor, card = lines_of(made, tmp_path)
    assert (processor.device, processor.peak_bytes, processor.peak_at_us, processor.whole) == ("CPU", 900, 20, False)
    assert (card.device, card.allocated, card.reserved, card.whole) == ("CUDA 1", (5000, 9000, 1000), (20_000,) * 3, True)


def test_without_totals_what_was_allocated_is_added_up(tmp_path: Path) -> None:
    made = traces.Recording()
    for at, num_bytes in ((10, 500), (20, 400), (30, -600)):
        made.memory(at, num_bytes, None)
    (line,) = lines_of(made, tmp_path)
    assert (line.allocated, line.peak_bytes) == ((500, 900, 300), 900)


def test_a_long_line_is_thinned_but_keeps_its_peak_and_its_ends(tmp_path: Path) -> None:
    made = traces.Recording()
    totals = np.random.default_rng(0).integers(0, 10**6, 6000)
    totals[4321] = 10**7
    for at, total in enumerate(totals.tolist()):
        made.memory(at, 0, total)
    (line,) = lines_of(made, tmp_path)
    assert len(line.at_us) <= 4000
    assert (max(line.allocated), line.peak_at_us) == (10**7, 4321)
    assert (line.allocated[0], line.allocated[-1]) == (totals[0], totals[-1])
