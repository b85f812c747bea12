"""`unchoke tile` killed at several moments, in threads and in processes, ends with the same bytes as if nothing had happened."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

PATIENCE_S = 60.0


def make_scene(folder: Path, name: str, *, seed: int, side_px: int = 512) -> None:
    folder.mkdir(exist_ok=True)
    noise = np.random.default_rng(seed)
    shape = {"height": side_px, "width": side_px, "count": 1, "dtype": "uint16", "nodata": 0}
    place = {"crs": "EPSG:32633", "transform": from_origin(seed * 1e5, 4e6, 30, 30)}
    for band in ("B3", "B5"):
        with rasterio.open(folder / f"{name}_{band}.TIF", "w", driver="GTiff", compress="deflate", **shape, **place) as file:
            file.write(noise.integers(1, 9000, (side_px, side_px), dtype=np.uint16), 1)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crash") / "scenes"
    make_scene(folder, "alpha", seed=1)
    make_scene(folder, "beta", seed=2, side_px=300)
    return folder


def start(scenes: Path, out: Path, parallel: str) -> subprocess.Popen[bytes]:
    """The command, with windows that take long to write."""
    words = ["tile", str(scenes), "--out", str(out), "--tile-size", "32", "--mask", "B3 > B5", "--workers", "2"]
    command = [sys.executable, "-m", "unchoke", *words, "--parallel", parallel, "--compress", "zlib"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def complete(scenes: Path, out: Path, parallel: str) -> None:
    command = start(scenes, out, parallel)
    _, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors.decode()


def kill_when(scenes: Path, out: Path, parallel: str, seen: Callable[[], bool]) -> bool:
    """Start the command and kill it as soon as `seen`; whether that was in time."""
    command = start(scenes, out, parallel)
    give_up_at = time.monotonic() + PATIENCE_S
    while command.poll() is None and not seen() and time.monotonic() < give_up_at:
        time.sleep(0.001)
    command.kill()
    command.communicate()
    return command.returncode == -signal.SIGKILL


def done_records(out: Path) -> dict[str, int]:
    """Finished jobs, and when they were."""
    return {file.name: file.stat().st_mtime_ns for file in (out / "tiles").glob("job_*.done")}


def outcome(out: Path) -> dict[str, bytes]:
    """Tiles, strips, plan and manifest: everything that must not depend on what happened."""
    tiles = out / "tiles"
    files = [*tiles.rglob("*.npz"), *tiles.rglob("strip_*.json"), tiles / "jobs_queue.csv", tiles / "tile_manifest.csv"]
    return {file.relative_to(tiles).as_posix(): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def unbroken(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("unbroken") / "out"
    complete(scenes, out, "threads")
    return outcome(out)


@pytest.mark.parametrize("parallel", ["threads", "processes"])
def test_kills_at_several_moments_change_no_byte(scenes: Path, tmp_path: Path, unbroken: dict[str, bytes], parallel: str) -> None:
    out = tmp_path / "out"
    tiles = out / "tiles"
    moments: list[Callable[[], bool]] = [
        lambda: any(tiles.rglob("*.npz")),
        lambda: len(done_records(out)) >= 3,
        lambda: len(done_records(out)) >= 7 and any(tiles.rglob(".unchoke-*.tmp")),
    ]
    in_time: list[bool] = []
    for seen in moments:
        before = done_records(out)
        in_time.append(kill_when(scenes, out, parallel, seen))
        assert before.items() <= done_records(out).items(), "a finished strip was done again"
    assert sum(in_time) >= 2
    assert not all(in_time) or not (tiles / "tile_manifest.csv").exists(), "a manifest before its tiles are all there"
    before = done_records(out)
    assert before
    complete(scenes, out, parallel)
    assert before.items() <= done_records(out).items()
    assert outcome(out) == unbroken
    assert not list(tiles.rglob(".unchoke-*"))


def test_one_ctrl_c_ends_cleanly_and_the_same_command_goes_on(scenes: Path, tmp_path: Path, unbroken: dict[str, bytes]) -> None:
    for attempt in range(4):  # where the machine is busy, a command may be over before it is asked to stop
        out = tmp_path / f"out{attempt}"
        command = start(scenes, out, "threads")
        while not done_records(out) and command.poll() is None:
            time.sleep(0.002)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=PATIENCE_S)
        if command.returncode != 0:
            break
    assert command.returncode == 130, errors.decode()
    assert b"run the same command again" in errors
    complete(scenes, out, "threads")
    assert outcome(out) == unbroken
