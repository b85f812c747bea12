"""Choices from measured figures: the usual way unless another is clearly better, and the figures are in the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unchoke.scenes.tiling.tile_choices import (
    WritingTrial,
    choose_compress,
    choose_parallel,
    choose_tile_px,
    measure_disk,
    measure_tile_sizes,
    measure_writing,
    tile_sizes_px,
)


@pytest.mark.parametrize(
    ("plain_s", "plain_bytes", "chosen"),
    [(0.9, 3000, "isal"), (0.1, 3000, "isal"), (0.8, 1100, "isal"), (0.1, 1100, "none")],
)
def test_compress_unless_slow_and_saves_little(plain_s: float, plain_bytes: int, chosen: str) -> None:
    choice = choose_compress([WritingTrial("isal", 1.0, 1000), WritingTrial("none", plain_s, plain_bytes)])
    assert choice.value == chosen
    assert choice.evidence["none"] == {"seconds": plain_s, "size_bytes": plain_bytes}


def test_without_isal_the_reason_says_what_would_help() -> None:
    choice = choose_compress([WritingTrial("zlib", 1.0, 1000), WritingTrial("none", 0.9, 3000)])
    assert choice.value == "zlib"
    assert "isal" in choice.reason


def test_each_way_of_writing_is_really_measured(tmp_path: Path) -> None:
    tiles = [{"bands": np.zeros((2, 64, 64), np.float32)}, {"bands": np.ones((2, 64, 64), np.float32)}]
    packed, plain = measure_writing(tiles, folder=tmp_path, workers=2)
    assert plain.compress == "none"
    assert packed.size_bytes < plain.size_bytes
    assert plain.size_bytes > 2 * 2 * 64 * 64 * 4
    assert packed.seconds > 0
    assert not list(tmp_path.iterdir())


def test_the_disk_is_measured_and_left_empty(tmp_path: Path) -> None:
    assert measure_disk(tmp_path, num_bytes=1_000_000) > 0
    assert not list(tmp_path.iterdir())


def test_tried_sizes_fit_scene_and_blocks() -> None:
    assert tile_sizes_px((512, 512), shortest_side_px=8000) == [256, 512, 1024]
    assert tile_sizes_px((384, 384), shortest_side_px=8000) == [256, 384, 512, 1024]
    assert tile_sizes_px((1, 8000), shortest_side_px=600) == [256, 512]
    assert tile_sizes_px((512, 512), shortest_side_px=40) == [512]


def test_usual_tile_size_kept_unless_clearly_beaten() -> None:
    assert choose_tile_px({256: 90e6, 512: 100e6, 1024: 105e6}).value == 512
    faster = choose_tile_px({256: 90e6, 512: 100e6, 1024: 150e6})
    assert faster.value == 1024
    assert "150.0 Mpixel/s" in faster.reason
    assert choose_tile_px({256: 90e6, 320: 80e6}).value == 256


def test_every_size_is_run() -> None:
    assert measure_tile_sizes([256, 512], lambda size_px: (size_px * 1000, 0.5)) == {256: 512_000.0, 512: 1_024_000.0}


def test_threads_unless_processes_are_clearly_faster() -> None:
    assert choose_parallel({"threads": 100e6, "processes": 105e6}).value == "threads"
    assert choose_parallel({"threads": 100e6, "processes": 120e6}).value == "processes"
    assert choose_parallel({"threads": 0.0, "processes": 120e6}).value == "threads"
