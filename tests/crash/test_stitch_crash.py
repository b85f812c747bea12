"""A process killed while it stitches: run again it goes on, and the mask has the bytes of one that was never disturbed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = Path(__file__).parent / "stitch_driver.py"
NUM_PARTS = 24

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(DRIVER), str(folder)], stderr=subprocess.PIPE)


def complete(folder: Path) -> None:
    driver = start(folder)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 0, errors.decode()


def parts(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("unfinished/part_*.npz")}


def artefacts(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def kill_after(folder: Path, *, new_parts: int, wait_s: float) -> None:
    """Let some more parts be finished, go on for a moment, and kill it."""
    before = len(parts(folder))
    driver = start(folder)
    deadline_s = time.monotonic() + 60
    while len(parts(folder)) < min(before + new_parts, NUM_PARTS) and driver.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.002)
    time.sleep(wait_s)
    driver.kill()
    driver.communicate()


@pytest.mark.parametrize(("num_stitching", "num_writing"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.campaign)])
def test_kills_change_no_byte_of_a_mask(tmp_path: Path, num_stitching: int, num_writing: int) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    complete(calm)
    assert sorted(artefacts(calm)) == ["scene_classes.tif", "scene_probabilities.tif"]
    chance = random.Random(7)
    for _ in range(num_stitching):
        done = parts(stormy)
        kill_after(stormy, new_parts=chance.randint(1, 5), wait_s=chance.uniform(0, 0.05))
        assert done.items() <= parts(stormy).items(), "a finished part was made again"
    assert num_stitching <= len(parts(stormy)) <= NUM_PARTS
    for _ in range(num_writing):  # all parts are there soon: these die while the files are written
        kill_after(stormy, new_parts=NUM_PARTS, wait_s=chance.uniform(0, 0.08))
    complete(stormy)
    assert artefacts(stormy) == artefacts(calm)
