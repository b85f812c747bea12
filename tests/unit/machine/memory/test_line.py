"""How memory grows with the batch."""

from __future__ import annotations

import pytest

from unchoke.machine.memory.line import Line, fit_line

MB = 10**6


def test_two_points_give_fixed_and_per_sample() -> None:
    line = fit_line([(1, 110.0), (4, 140.0)])
    assert (line.fixed, line.per_sample) == pytest.approx((100, 10))
    assert line.at(16) == pytest.approx(260)


def test_blocks_of_an_allocator_are_averaged_out() -> None:
    def blocks(value: float) -> float:
        return -(-value // (20 * MB)) * 20 * MB

    line = fit_line([(batch, blocks(2000 * MB + 37 * MB * batch)) for batch in (1, 4, 16)])
    assert line.per_sample == pytest.approx(37 * MB, rel=0.1)
    assert line.worst_residual < 0.02


def test_flat_start_is_continued_as_it_grows() -> None:
    line = fit_line([(batch, max(500.0, 100 + 50 * batch)) for batch in (1, 4, 16)])
    assert line.at(32) == pytest.approx(900 + 16 * (900 - 500) / 12)
    assert line.at(2) == 500
    assert line.worst_residual > 0.02


@pytest.mark.parametrize("points", [(1, 4, 16), (1, 4, 12)])
def test_real_peaks_are_met_between_measurements(points: tuple[int, ...]) -> None:
    """MB of training steps on a CPU: `tf_efficientnet_lite0`, `resnet18`, `vit_tiny_patch16_224`, `convnext_atto`."""
    for measured in (
        {1: 417, 2: 519, 4: 676, 6: 921, 8: 1135, 12: 1547, 16: 1869},
        {1: 492, 2: 498, 4: 522, 6: 567, 8: 612, 12: 671, 16: 766},
        {1: 383, 2: 415, 4: 481, 6: 556, 8: 625, 12: 766, 16: 910},
        {1: 356, 2: 377, 4: 410, 6: 448, 8: 484, 12: 567, 16: 624},
    ):
        line = fit_line([(batch, float(measured[batch])) for batch in points])
        assert max(abs(line.at(batch) / peak - 1) for batch, peak in measured.items()) < 0.10


def test_noise_that_falls_is_no_slope() -> None:
    line = fit_line([(1, 105.0), (4, 100.0)])
    assert line.per_sample == 0
    assert line.at(1) == line.at(4) == line.at(100) == 105


def test_a_single_point_is_taken_to_grow_in_full() -> None:
    line = fit_line([(2, 100.0)])
    assert [line.at(batch) for batch in (1, 2, 4)] == [50, 100, 200]


def test_no_point_is_a_bug() -> None:
    with pytest.raises(ValueError, match="at least one"):
        fit_line([])


def test_largest_batch_stays_within_the_room() -> None:
    line = fit_line([(1, 110.0), (4, 140.0)])
    assert [line.largest(room, at_most=64) for room in (109, 110, 119.9, 120, 1000)] == [0, 1, 1, 2, 64]
    assert line.at(line.largest(333, at_most=64)) <= 333 < line.at(line.largest(333, at_most=64) + 1)


def test_a_line_is_read_back_from_plain_values() -> None:
    line = fit_line([(1, 110.0), (4, 140.0), (16, 300.0)])
    assert Line.from_dict(line.to_dict()) == line
