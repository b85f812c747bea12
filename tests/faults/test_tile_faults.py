"""`unchoke tile` when the machine or the files misbehave: too few descriptors, a full disk, a file replaced meanwhile.

The command runs in a process of its own. Faults of single files are in `test_scenes.py`; kills in `tests/crash`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

PATIENCE_S = 90.0


def make_scene(folder: Path, name: str, *, seed: int, side_px: int, bands: tuple[str, ...] = ("B3", "B5")) -> None:
    """Band files full of noise, which takes long to pack."""
    folder.mkdir(exist_ok=True)
    noise = np.random.default_rng(seed)
    shape = {"height": side_px, "width": side_px, "count": 1, "dtype": "uint16"}
    place = {"crs": "EPSG:32633", "transform": from_origin(seed * 1e5, 4e6, 30, 30)}
    for band in bands:
        with rasterio.open(folder / f"{name}_{band}.TIF", "w", driver="GTiff", **shape, **place) as file:
            file.write(noise.integers(1, 9000, (side_px, side_px), dtype=np.uint16), 1)


def start(scenes: Path, out: Path, *words: str, limits: dict[int, int] | None = None) -> subprocess.Popen[str]:
    """`unchoke tile` with small tiles, optionally under resource limits."""

    def set_limits() -> None:
        for which, limit in (limits or {}).items():
            resource.setrlimit(which, (limit, resource.getrlimit(which)[1]))

    fixed = ["tile", str(scenes), "--out", str(out), "--tile-size", "32", "--mask", "B3 > B5", "--workers", "2", "--json"]
    command = [sys.executable, "-m", "unchoke", *fixed, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=set_limits)


def end(command: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    """The exit code and the last JSON line."""
    said, errors = command.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in errors, errors
    last: dict[str, Any] = json.loads(said.splitlines()[-1])
    return command.returncode, last


def tiles(out: Path) -> dict[str, bytes]:
    files = [*sorted((out / "tiles").rglob("*.npz")), *(out / "tiles").glob("tile_manifest.csv")]
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in files}


def test_many_scenes_with_few_descriptors(tmp_path: Path) -> None:
    for number in range(60):
        make_scene(tmp_path / "scenes", f"s{number:03d}", seed=number, side_px=8, bands=("B2", "B3", "B4", "B5"))
    code, last = end(start(tmp_path / "scenes", tmp_path / "out", limits={resource.RLIMIT_NOFILE: 64}))
    assert code == 0, last
    assert (last["result"]["tiles"], len(last["result"]["scenes"])) == (60, 60)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A small scene, and its tiles where there is room for them."""
    folder = tmp_path_factory.mktemp("small")
    make_scene(folder / "scenes", "alpha", seed=1, side_px=120)
    assert end(start(folder / "scenes", folder / "roomy", "--compress", "none"))[0] == 0
    return folder / "scenes", tiles(folder / "roomy")


@pytest.mark.parametrize("parallel", ["threads", "processes"])
def test_no_room_for_a_tile(small: tuple[Path, dict[str, bytes]], tmp_path: Path, parallel: str) -> None:
    scenes, expected = small
    usual = ("--compress", "none", "--parallel", parallel)
    code, last = end(start(scenes, tmp_path / "out", *usual, limits={resource.RLIMIT_FSIZE: 6 * 2**10}))
    assert code == 3, last
    assert "may not become as large" in last["error"]["what"]
    assert "the same command again" in last["error"]["try"]
    assert not list((tmp_path / "out").rglob(".unchoke-*.tmp"))
    assert "tile_manifest.csv" not in " ".join(tiles(tmp_path / "out"))

    assert end(start(scenes, tmp_path / "out", "--compress", "none"))[0] == 0
    assert tiles(tmp_path / "out") == expected


def test_a_file_replaced_while_it_is_read_is_named_and_the_others_are_tiled(tmp_path: Path) -> None:
    scenes, out = tmp_path / "scenes", tmp_path / "out"
    make_scene(scenes, "large", seed=1, side_px=900)
    make_scene(scenes, "small", seed=2, side_px=64)
    make_scene(tmp_path / "other", "large", seed=3, side_px=800)
    command = start(scenes, out, "--compress", "zlib")
    while command.poll() is None and not list((out / "tiles").glob("job_*.done")):
        time.sleep(0.002)
    (tmp_path / "other" / "large_B5.TIF").replace(scenes / "large_B5.TIF")
    code, last = end(command)
    assert code == 1, last
    result = last["result"]
    assert [scene["scene"] for scene in result["scenes"]] == ["small"]
    assert [(entry["sample_id"], Path(entry["path"]).name) for entry in result["set_aside"]] == [("large", "large_B5.TIF")]
    manifest = Path(result["manifest"]).read_text()
    assert "small" in manifest
    assert "large" not in manifest


def test_a_tile_that_was_damaged_is_told_and_written_again(tmp_path: Path) -> None:
    make_scene(tmp_path / "scenes", "a", seed=1, side_px=64)
    out = tmp_path / "out"
    assert end(start(tmp_path / "scenes", out))[0] == 0
    before = tiles(out)
    file = sorted((out / "tiles").rglob("*.npz"))[1]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    command = start(tmp_path / "scenes", out)
    said, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors
    assert f"{file.name} of" in said
    assert "is damaged" in said
    assert tiles(out) == before
