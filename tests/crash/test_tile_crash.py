"""`unchoke tile` killed at several moments, in threads and in processes, ends with the same bytes as if nothing had happened."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scene
from tests.conftest import Once


def make_scene(folder: Path, name: str, *, seed: int, side_px: int = 512) -> None:
    import rasterio
    from rasterio.transform import from_origin

    folder.mkdir(exist_ok=True)
    noise = np.random.default_rng(seed)
    shape = {"height": side_px, "width": side_px, "count": 1, "dtype": "uint16", "nodata": 0}
    place = {"crs": "EPSG:32633", "transform": from_origin(seed * 1e5, 4e6, 30, 30)}
    for band in ("B3", "B5"):
        with rasterio.open(folder / f"{name}_{band}.TIF", "w", driver="GTiff", compress="deflate", **shape, **place) as file:
            file.write(noise.integers(1, 9000, (side_px, side_px), dtype=np.uint16), 1)


@pytest.fixture(scope="module")
def scenes(once: Once) -> Path:
    def make(folder: Path) -> None:
        make_scene(folder, "alpha", seed=1)
        make_scene(folder, "beta", seed=2, side_px=300)

    return once("crash-scenes", make)


def start(scenes: Path, out: Path, parallel: str) -> scene.Running:
    """The command, with windows that take long to write."""
    words = ["--tile-size", "32", "--mask", "B3 > B5", "--workers", "2", "--parallel", parallel, "--compress", "zlib"]
    return scene.start("tile", str(scenes), "--out", str(out), *words)


def complete(scenes: Path, out: Path, parallel: str) -> None:
    ended = start(scenes, out, parallel).end()
    assert ended.code == 0, ended.stderr


def kill_when(scenes: Path, out: Path, parallel: str, seen: Callable[[], bool]) -> bool:
    """Start the command and kill it as soon as `seen`; whether that was in time."""
    command = start(scenes, out, parallel)
    command.wait_until(seen)
    command.kill()
    return command.end().code == -signal.SIGKILL


def done_records(out: Path) -> dict[str, int]:
    """Finished jobs, and when they were."""
    return {file.name: file.stat().st_mtime_ns for file in (out / "tiles").glob("job_*.done")}


def outcome(out: Path) -> dict[str, bytes]:
    """Tiles, strips, plan and manifest: everything that must not depend on what happened."""
    tiles = out / "tiles"
    files = [*tiles.rglob("*.npz"), *tiles.rglob("strip_*.json"), tiles / "jobs_queue.csv", tiles / "tile_manifest.csv"]
    return {file.relative_to(tiles).as_posix(): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def unbroken(scenes: Path, once: Once) -> dict[str, bytes]:
    return outcome(once("crash-tiles", lambda folder: complete(scenes, folder, "threads")))


@pytest.mark.parametrize("parallel", ["threads", pytest.param("processes", marks=pytest.mark.campaign)])
def test_killed_three_times_same_bytes(scenes: Path, tmp_path: Path, unbroken: dict[str, bytes], parallel: str) -> None:
    tiles = tmp_path / "tiles"
    moments: list[Callable[[], bool]] = [
        lambda: any(tiles.rglob("*.npz")),
        lambda: len(done_records(tmp_path)) >= 3,
        lambda: len(done_records(tmp_path)) >= 7 and any(tiles.rglob(".unchoke-*.tmp")),
    ]
    in_time: list[bool] = []
    for seen in moments:
        before = done_records(tmp_path)
        in_time.append(kill_when(scenes, tmp_path, parallel, seen))
        assert before.items() <= done_records(tmp_path).items(), "a finished strip was done again"
    assert sum(in_time) >= 2
    assert not all(in_time) or not (tiles / "tile_manifest.csv").exists(), "a manifest before its tiles are all there"
    finish(scenes, tmp_path, parallel, unbroken)


def test_processes_killed_once_same_bytes(scenes: Path, tmp_path: Path, unbroken: dict[str, bytes]) -> None:
    assert kill_when(scenes, tmp_path, "processes", lambda: len(done_records(tmp_path)) >= 3)
    finish(scenes, tmp_path, "processes", unbroken)


def finish(scenes: Path, out: Path, parallel: str, unbroken: dict[str, bytes]) -> None:
    before = done_records(out)
    assert before
    complete(scenes, out, parallel)
    assert before.items() <= done_records(out).items()
    assert outcome(out) == unbroken
    assert not list((out / "tiles").rglob(".unchoke-*"))


def test_ctrl_c_and_the_same_command_again(scenes: Path, tmp_path: Path, unbroken: dict[str, bytes]) -> None:
    for attempt in range(4):  # where the machine is busy, a command may be over before it is asked to stop
        out = tmp_path / f"out{attempt}"
        command = start(scenes, out, "threads")
        if command.wait_until(lambda out=out: bool(done_records(out))) and command.alive():
            command.send(signal.SIGINT)
        ended = command.end()
        if ended.code != 0:
            break
    assert ended.code == 130, ended.stderr
    assert ended.says_error("interrupted")
    complete(scenes, out, "threads")
    assert outcome(out) == unbroken
