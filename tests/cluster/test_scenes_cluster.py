"""Scenes on a real cluster of three nodes: tiles and masks are those of one machine, also where no node sees a single file."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from mask_run import make_run
from mask_run import make_scene as make_picture
from rasterio.transform import from_origin
from raynet import RayNet

import unchoke
from unchoke.core.events import ignore

pytestmark = pytest.mark.system
HIDDEN = Path(tempfile.mkdtemp(prefix="unchoke-hidden-"))
"""No node sees what is in here; a driver outside the cluster does."""
NET = {"hidden": [HIDDEN]}
OUTSIDE = 3


@pytest.fixture(scope="module", autouse=True)
def hidden() -> Iterator[None]:
    yield
    shutil.rmtree(HIDDEN, ignore_errors=True)


def make_scene(folder: Path, name: str, *, height: int, width: int, seed: int) -> None:
    """Two bands of noise, as Landsat names them, and what lies beside them: their nodata is in a sidecar alone."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = {"driver": "GTiff", "dtype": "uint16", "count": 1, "height": height, "width": width}
    place = {"crs": "EPSG:32633", "transform": from_origin(500_000.0 + 100_000 * seed, 4_600_000.0, 30.0, 30.0)}
    for number, band in enumerate(("B3", "B5")):
        pixels = np.random.default_rng(10 * seed + number).integers(0, 3000, (height, width), dtype=np.uint16)
        pixels[: height // 2, : width // 3] = 7
        file = folder / f"{name}_{band}.TIF"
        with rasterio.open(file, "w", **kind, **place, tiled=True, blockxsize=64, blockysize=64, compress="deflate") as target:
            target.write(pixels, 1)
        nodata = '<PAMDataset><PAMRasterBand band="1"><NoDataValue>7</NoDataValue></PAMRasterBand></PAMDataset>'
        file.with_name(f"{file.name}.aux.xml").write_text(nodata)


def make_scenes(folder: Path) -> Path:
    make_scene(folder, "alpha", height=600, width=300, seed=1)
    make_scene(folder, "beta", height=200, width=500, seed=2)
    make_scene(folder, "torn", height=300, width=300, seed=3)
    torn = folder / "torn_B5.TIF"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size * 2 // 3])  # some of its blocks are beyond the end
    return folder


WORDS = ("--tile-size", "32", "--mask", "B3 > B5", "--compress", "zlib")


def typed(net: RayNet, node: int, *words: object, code: int = 0) -> str:
    """The command on a node; what it told."""
    address = net.client_address if node == OUTSIDE else "auto"
    done = net.run(node, sys.executable, "-m", "unchoke", *map(str, words), "--on", address)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def kill_when(net: RayNet, seen: Callable[[], bool], *words: object) -> None:
    """The command outside the cluster, killed as soon as `seen`."""
    command = [sys.executable, "-m", "unchoke", *map(str, words), "--on", net.client_address]
    started = net.popen(OUTSIDE, *command)
    end = time.monotonic() + 120
    while not seen() and started.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    assert started.poll() is None, "it ended before it could be killed"
    started.send_signal(signal.SIGKILL)  # of nsenter, which became the command itself
    started.wait()


def cut(scenes: Path, out: Path) -> dict[str, bytes]:
    unchoke.tile(str(scenes), out=out, tile_size=32, mask="B3 > B5", compress="zlib", workers=1, on_event=ignore)
    return tiles(out)


def tiles(out: Path) -> dict[str, bytes]:
    """Tiles, records of strips, plan, manifest and what was set aside."""
    folder = out / "tiles"
    files = [*folder.rglob("*.npz"), *folder.rglob("strip_*.json"), *folder.glob("*.csv")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def masks(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")}


def test_tiles_are_those_of_one_machine(net: RayNet, tmp_path: Path) -> None:
    scenes = make_scenes(tmp_path / "scenes")
    told = typed(net, 0, "tile", scenes, "--out", tmp_path / "out", *WORDS, code=1)
    assert "scenes are read by the nodes" in told and "parallel =" not in told
    assert tiles(tmp_path / "out") == cut(scenes, tmp_path / "here")


def test_scenes_that_no_node_sees_are_sent_and_a_killed_driver_goes_on(net: RayNet) -> None:
    scenes, out = make_scenes(HIDDEN / "scenes"), HIDDEN / "out"
    words = ("tile", scenes, "--out", out, *WORDS)

    def done() -> dict[str, int]:
        return {file.name: file.stat().st_mtime_ns for file in (out / "tiles").glob("job_*.done")}

    kill_when(net, lambda: len(done()) >= 3, *words)
    before = done()
    told = typed(net, OUTSIDE, *words, code=1)
    assert "scenes are sent from here where a node cannot read them" in told
    assert before.items() <= done().items(), "a finished strip was done again"
    assert tiles(out) == cut(scenes, HIDDEN / "here"), "a broken scene is told of by the name it has here"


@pytest.mark.parametrize("node", [0, OUTSIDE], ids=["shared", "hidden"])
def test_masks_are_those_of_one_machine(net: RayNet, tmp_path: Path, node: int) -> None:
    root = HIDDEN if node == OUTSIDE else tmp_path
    run = make_run(root / "run")
    make_picture(root / "pictures" / "north.tif", height=1300, width=90)
    make_picture(root / "pictures" / "south.tif", height=150, width=220, seed=1)
    words: tuple[Any, ...] = ("segment", "predict", run, root / "pictures", "--to", root / "masks")
    if node == OUTSIDE:
        kill_when(net, lambda: any((root / "masks").rglob("part_*.npz")), *words)
    told = typed(net, node, *words)
    assert "that predict what this machine predicts on a sample" in told
    if node == OUTSIDE:
        assert "were finished before; it goes on from there" in told
    unchoke.segment_predict(run, root / "pictures", to=root / "here", on_event=ignore)
    assert masks(root / "masks") == masks(root / "here")
    assert not (root / "masks" / ".unfinished").exists()
