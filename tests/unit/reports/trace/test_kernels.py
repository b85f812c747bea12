"""What ran on the device, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import traces
from unchoke.reports.trace import read_trace


def test_kernels_and_copies_are_summed_with_how_they_were_launched(tmp_path: Path) -> None:
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
