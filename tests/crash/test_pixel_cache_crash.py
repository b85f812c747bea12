"""A process killed while it fills a pixel cache: reopened, the cache serves right pixels and no others."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from children import same_imports
from unchoke.core.choices import Choice
from unchoke.pixels.pixel_cache import PictureFile, PixelCache, open_cache

NUM, SIDE = 200, 64
PLAN = Choice("cache", "disk", "a test", {"capacity_rows": NUM})

FILLER = """
from pathlib import Path
from test_pixel_cache_crash import NUM, opened
from unchoke.core.ahead import map_ahead
version = 0
while True:
    with opened(Path({folder!r}), version) as cache:
        print("open", flush=True)
        for _ in map_ahead(cache.row, range(NUM), threads=2, ahead=8):
            pass
    version += 1
"""


def picture(position: int, version: int) -> np.ndarray:
    return np.random.default_rng([position, version]).integers(0, 256, (SIDE, SIDE, 3), np.uint8)


def opened(folder: Path, version: int) -> PixelCache:
    """Every version stands for all files having been saved again, so that slots are overwritten."""
    sources = [PictureFile(str(number), SIDE, version) for number in range(NUM)]

    def read(position: int) -> np.ndarray:
        return picture(position, version)

    return open_cache(PLAN, sources, folder=folder, height=SIDE, width=SIDE, read=read, segment_bytes=2**18)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize(("num_kills", "step_s"), [(3, 0.3), pytest.param(8, 0.11, marks=pytest.mark.campaign)])
def test_killed_fill_serves_no_torn_picture(tmp_path: Path, num_kills: int, step_s: float) -> None:
    code = FILLER.format(folder=str(tmp_path))
    served = 0
    for kill in range(num_kills):
        child = subprocess.Popen([sys.executable, "-c", code], env=same_imports(), stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        time.sleep(0.03 + step_s * kill)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        for version in range(6):
            served += served_rightly(tmp_path, version)
    assert served


def served_rightly(folder: Path, version: int) -> int:
    """Open read-only in effect: only what is already valid is asked for. How many pictures were served, all of them right."""
    with opened(folder, version) as cache:
        valid = np.flatnonzero(cache._valid).tolist()
        for position, pixels in zip(valid, cache.rows(valid), strict=True):
            np.testing.assert_array_equal(pixels, picture(position, version))
        assert cache.damaged == 0
        return len(valid)
