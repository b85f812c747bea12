"""Rows drawn by reader processes are those that the cache would draw itself, and what fails is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unchoke.core.clock import Loading
from unchoke.core.fingerprint import digest_file
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.draw_rows import draw_row, fill_in_processes
from unchoke.pixels.image import DecodeError
from unchoke.pixels.pixel_cache import PictureFile, PixelCache, RamSlots
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan

CANVAS = Canvas(TilePlan(), Preprocess(64, 0.875, "center", "bicubic", (0.5,) * 3, (0.5,) * 3))


def test_processes_fill_the_cache_with_the_same_rows(own_photos: Path) -> None:
    files = sorted(own_photos.rglob("*.jpg"))[:20]
    files[3].write_bytes(files[3].read_bytes()[:-400])
    digests = [digest_file(file) for file in files]
    files[7].write_bytes(files[8].read_bytes())
    height, width = CANVAS.row_shape
    sources = [PictureFile(str(file), 0, 0, digest) for file, digest in zip(files, digests, strict=True)]

    def never(position: int) -> np.ndarray:
        raise AssertionError(f"{position} was drawn here")

    cache = PixelCache(RamSlots(len(files), height, width), sources, height=height, width=width, read=never)
    planned = [(position, str(file), digest) for position, (file, digest) in enumerate(zip(files, digests, strict=True))]
    loading = Loading()
    found = dict(fill_in_processes(cache, CANVAS, planned, processes=2, loading=loading))
    assert sorted(found) == list(range(20))
    assert {position: reason.partition(":")[0] for position, reason in found.items() if reason} == {3: "truncated", 7: "changed"}
    assert cache.missing().tolist() == [3, 7]
    for position in set(range(20)) - {3, 7}:
        assert np.array_equal(cache.row(position), draw_row(*planned[position][1:], CANVAS))
    assert {"decode", "transform"} <= set(loading.tally())


def test_a_file_that_changed_is_not_drawn(own_photos: Path) -> None:
    file = next(own_photos.rglob("*.jpg"))
    with pytest.raises(DecodeError, match=r"^changed: "):
        draw_row(str(file), "0" * 64, CANVAS)
