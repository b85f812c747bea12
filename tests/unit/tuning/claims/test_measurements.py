"""Some claims measured for real, on tiny data and in no time: what they find out, not how fast anything is."""

from __future__ import annotations

import pytest

from unchoke.tuning.claims.claim import ClaimMeasurement
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.frozen_claims import measure_cached_evaluation
from unchoke.tuning.claims.image_claims import ask, measure_image_cache, measure_path_cache
from unchoke.tuning.claims.network_claims import measure_batched_tiles
from unchoke.tuning.claims.scene_claims import measure_handle_reuse, measure_parallel_tiling, measure_unordered_scheduling


def check(measured: ClaimMeasurement) -> None:
    """Both ways ran, gave the same, and the ratio is explained."""
    assert measured.pairs >= 1
    assert measured.low <= measured.ratio <= measured.high
    assert measured.equal is True, measured.equal_figure
    assert measured.why
    assert measured.details


@pytest.mark.parametrize("measure", [measure_path_cache, measure_image_cache, measure_batched_tiles, measure_cached_evaluation])
def test_both_ways_give_the_same(bench: Bench, measure: object) -> None:
    check(measure(bench))  # type: ignore[operator]


def test_tiles_of_open_files_and_their_stages(bench: Bench) -> None:
    measured = measure_handle_reuse(bench)
    check(measured)
    shares = measured.details["shares"]
    assert set(shares) == {"open", "read", "normalise", "write"}
    assert sum(shares.values()) == pytest.approx(1.0)


def test_tiles_are_the_same_from_the_engine(bench: Bench) -> None:
    measured = measure_parallel_tiling(bench)
    check(measured)
    assert measured.details["windows"] == 8


def test_scheduling_tells_how_long_workers_stood_idle(bench: Bench) -> None:
    measured = measure_unordered_scheduling(bench)
    check(measured)
    assert measured.details["windows"] == 25
    assert all(0 <= share < 1 for share in measured.details["idle_share"].values())


def test_picture_in_no_folder_is_an_error(bench: Bench) -> None:
    with pytest.raises(FileNotFoundError):
        ask([str(bench.folder)], "nobody.jpg")
