"""Operators as torch itself counts them, what ran on a device by name, and memory over time, thinned without losing its peak."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import traces
from unchoke.runs.trace.trace_record import MemoryLine, read_trace
from unchoke.runs.trace.trace_source import shapes_text

if TYPE_CHECKING:
    from tests.unit.reports.trace.conftest import Profiled


def test_every_operator_is_as_in_torchs_own_table(profiled: Profiled) -> None:
    ours = {row.name: row for row in read_trace(profiled.file).by_name()}
    assert ours.keys() == profiled.table.keys()
    for name, (calls, self_us, total_us, num_bytes) in profiled.table.items():
        assert (ours[name].calls, ours[name].self_cpu_bytes) == (calls, num_bytes), name
        assert ours[name].self_cpu_us == pytest.approx(self_us, abs=0.01), name
        assert ours[name].total_cpu_us == pytest.approx(total_us, abs=0.01), name


def test_calls_with_other_shapes_are_told_apart(profiled: Profiled) -> None:
    lists = {"aten::cat", "aten::stack"}  # torch's table leaves out shapes of lists of tensors
    rows = [row for row in read_trace(profiled.file).operators if row.name not in lists]
    ours = Counter({(row.name, row.shapes): row.calls for row in rows})
    theirs: Counter[tuple[str, str]] = Counter()
    for (name, shapes), calls in profiled.by_shapes.items():
        theirs[name, shapes_text(json.loads(shapes))] += 0 if name in lists else calls
    assert ours == +theirs
    assert ours["aten::conv2d", "8×3×12×12, 4×3×3×3, 4"] == 3


def test_self_times_add_up_to_the_steps(profiled: Profiled) -> None:
    record = read_trace(profiled.file)
    assert sum(row.self_cpu_us for row in record.operators) == pytest.approx(sum(step.wall_us for step in record.steps), abs=0.1)


def test_device_time_belongs_to_the_launching_operator(tmp_path: Path) -> None:
    record = read_trace(traces.training_on_a_card().save(tmp_path / "card.json"))
    rows = {row.name: row for row in record.by_name()}
    inner, outer, step = rows["aten::cudnn_convolution"], rows["aten::conv2d"], rows["ProfilerStep*"]
    assert (inner.self_device_us, inner.total_device_us) == (600, 600)
    assert (outer.self_device_us, outer.total_device_us) == (0, 600)
    assert step.total_device_us == 2 * (300 + 25)
    assert (inner.self_device_bytes, outer.self_device_bytes) == (2 << 20, 0)
    assert rows["cudaLaunchKernel"].kind == "runtime"
    assert inner.self_cpu_us == 2 * (30 - 10)


def test_repeated_call_counts_once(tmp_path: Path) -> None:
    made = traces.Recording()
    for start, length in ((0, 100), (10, 80), (20, 60)):
        made.op("aten::sum", start, length)
    made.op("aten::fill_", 30, 10)
    rows = {row.name: row for row in read_trace(made.save(tmp_path / "one.json")).by_name()}
    assert (rows["aten::sum"].calls, rows["aten::sum"].self_cpu_us, rows["aten::sum"].total_cpu_us) == (1, 90, 100)


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([[16, 3, 64, 64], [], [8, 3, 3, 3]], "16×3×64×64, 8×3×3×3"),
        ([[[3, 4], [3, 4]], []], "2 of 3×4"),
        ([[[3, 4], [5]]], "2 tensors (3×4, 5)"),
        (None, ""),
        ("odd", ""),
    ],
)
def test_shapes_read_as_a_person_writes_them(dims: object, text: str) -> None:
    assert shapes_text(dims) == text


def test_kernels_and_copies_are_summed_by_launch(tmp_path: Path) -> None:
    made = traces.training_on_a_card()
    made.kernel("sm80_xmma_fprop_implicit_gemm<float>", 1900, 60, link=0, occupancy=100)
    gemm, copy = read_trace(made.save(tmp_path / "card.json")).kernels
    assert (gemm.calls, gemm.total_us, gemm.min_us, gemm.max_us, gemm.mean_us) == (3, 660, 60, 300, 220)
    assert gemm.share == pytest.approx(660 / 710)
    assert (gemm.launched_by, gemm.grid, gemm.block) == ("aten::cudnn_convolution", "16×1×1", "128×1×1")
    assert gemm.occupancy_percent == pytest.approx((600 * 50 + 60 * 100) / 660)
    assert (copy.kind, copy.moved_bytes, copy.occupancy_percent) == ("copy", 2 * 786432, None)


def test_a_trace_without_a_device_has_none(tmp_path: Path) -> None:
    assert read_trace(traces.training_on_a_processor().save(tmp_path / "one.json")).kernels == ()


def lines_of(made: traces.Recording, folder: Path) -> tuple[MemoryLine, ...]:
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


def test_thinned_line_keeps_peak_and_ends(tmp_path: Path) -> None:
    made = traces.Recording()
    totals = np.random.default_rng(0).integers(0, 10**6, 6000)
    totals[4321] = 10**7
    for at, total in enumerate(totals.tolist()):
        made.memory(at, 0, total)
    (line,) = lines_of(made, tmp_path)
    assert len(line.at_us) <= 4000
    assert (max(line.allocated), line.peak_at_us) == (10**7, 4321)
    assert (line.allocated[0], line.allocated[-1]) == (totals[0], totals[-1])
