"""`unchoke tile` when the machine or the files misbehave: too few descriptors, a full disk, a file replaced meanwhile.

The command runs in a process of its own. Faults of single files are in `test_scenes.py`; kills in `tests/crash`.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scene
from tests.conftest import Once

PATIENCE_S = 90.0


def make_scene(folder: Path, name: str, *, seed: int, side_px: int, bands: tuple[str, ...] = ("B3", "B5")) -> None:
    """Band files full of noise, which takes long to pack."""
    import rasterio
    from rasterio.transform import from_origin

    folder.mkdir(exist_ok=True)
    noise = np.random.default_rng(seed)
    shape = {"height": side_px, "width": side_px, "count": 1, "dtype": "uint16"}
    place = {"crs": "EPSG:32633", "transform": from_origin(seed * 1e5, 4e6, 30, 30)}
    for band in bands:
        with rasterio.open(folder / f"{name}_{band}.TIF", "w", driver="GTiff", **shape, **place) as file:
            file.write(noise.integers(1, 9000, (side_px, side_px), dtype=np.uint16), 1)


def start(scenes: Path, out: Path, *words: str, limits: dict[int, int] | None = None) -> scene.Running:
    """`unchoke tile` with small tiles, optionally under resource limits."""
    fixed = ("--tile-size", "32", "--mask", "B3 > B5", "--workers", "2", "--json")
    return scene.start("tile", str(scenes), "--out", str(out), *fixed, *words, limits=limits)


def end(command: scene.Running) -> tuple[int, dict[str, Any]]:
    """The exit code and the last JSON line."""
    ended = command.end(within_s=PATIENCE_S)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.code, ended.result


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
def small(once: Once) -> tuple[Path, dict[str, bytes]]:
    """A small scene, and its tiles where there is room for them."""

    def make(folder: Path) -> None:
        make_scene(folder / "scenes", "alpha", seed=1, side_px=120)
        assert end(start(folder / "scenes", folder / "roomy", "--compress", "none"))[0] == 0

    folder = once("faults-small-scene", make)
    return folder / "scenes", tiles(folder / "roomy")


@pytest.mark.parametrize("parallel", ["threads", "processes"])
def test_no_room_for_a_tile(small: tuple[Path, dict[str, bytes]], tmp_path: Path, parallel: str) -> None:
    scenes, expected = small
    usual = ("--compress", "none", "--parallel", parallel)
    code, last = end(start(scenes, tmp_path / "out", *usual, limits={resource.RLIMIT_FSIZE: 6 * 2**10}))
    assert code == 3, last
    assert last["error"]["code"] == "file-size-limit"
    assert not list((tmp_path / "out").rglob(".unchoke-*.tmp"))
    assert "tile_manifest.csv" not in " ".join(tiles(tmp_path / "out"))

    assert end(start(scenes, tmp_path / "out", "--compress", "none"))[0] == 0
    assert tiles(tmp_path / "out") == expected


def test_file_replaced_while_it_is_read(tmp_path: Path) -> None:
    scenes, out = tmp_path / "scenes", tmp_path / "out"
    make_scene(scenes, "large", seed=1, side_px=900)
    make_scene(scenes, "small", seed=2, side_px=64)
    make_scene(tmp_path / "other", "large", seed=3, side_px=800)
    command = start(scenes, out, "--compress", "zlib")
    assert command.wait_until(lambda: any((out / "tiles").glob("job_*.done")))
    (tmp_path / "other" / "large_B5.TIF").replace(scenes / "large_B5.TIF")
    code, last = end(command)
    assert code == 1, last
    result = last["result"]
    assert [one["scene"] for one in result["scenes"]] == ["small"]
    assert [(entry["sample_id"], Path(entry["path"]).name) for entry in result["set_aside"]] == [("large", "large_B5.TIF")]
    manifest = Path(result["manifest"]).read_text()
    assert "small" in manifest
    assert "large" not in manifest


def test_damaged_tile_is_written_again(tmp_path: Path) -> None:
    make_scene(tmp_path / "scenes", "a", seed=1, side_px=64)
    out = tmp_path / "out"
    assert end(start(tmp_path / "scenes", out))[0] == 0
    before = tiles(out)
    file = sorted((out / "tiles").rglob("*.npz"))[1]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    again = start(tmp_path / "scenes", out).end()
    assert again.code == 0, again.stderr
    assert any('"warning"' in line and file.name in line for line in again.stdout.splitlines())
    assert tiles(out) == before
