"""Scenes behind a URL: the same tiles as from local files, read in parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import unchoke
from children import same_imports
from errors import refused
from unchoke.core.events import ignore
from web import serve

if TYPE_CHECKING:
    from tests.remote.conftest import Store


def make_scene(folder: Path, *, name: str = "site") -> Path:
    """Three bands of one scene, a file each, and a label."""
    import rasterio
    from rasterio.transform import from_origin

    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    place = {"crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 10, 10), "width": 200, "height": 180}
    for number in (2, 3, 4):
        pixels = random.integers(1, 9000, (1, 180, 200)).astype("uint16")
        with rasterio.open(folder / f"{name}_B{number}.tif", "w", driver="GTiff", count=1, dtype="uint16", **place) as file:
            file.write(pixels)
    return folder


def tiles(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "tiles").rglob("*.npz"))}


def test_tiles_are_those_of_local_files(store: Store, tmp_path: Path) -> None:
    folder = make_scene(tmp_path / "scenes")
    url = store.put_folder("scenes", folder)
    unchoke.tile(folder, out=tmp_path / "here", on_event=ignore, tile_size=64, workers=2)
    unchoke.tile(url, out=tmp_path / "there", on_event=ignore, tile_size=64, workers=2)
    assert tiles(tmp_path / "there") == tiles(tmp_path / "here")
    assert len(tiles(tmp_path / "there")) > 4


def test_a_scene_of_a_web_server_is_read_in_parts(tmp_path: Path) -> None:
    file = next(make_scene(tmp_path / "scenes").iterdir())
    unchoke.tile(file, out=tmp_path / "here", on_event=ignore, tile_size=64, workers=1)
    with serve() as web:
        web.files["/data/" + file.name] = file.read_bytes()
        web.failing["/data/" + file.name] = 2
        words = ["tile", f"{web.url}/data/{file.name}", "--out", str(tmp_path / "there"), "--tile-size", "64", "--workers", "1"]
        ended = subprocess.run(
            [sys.executable, "-m", "unchoke", *words], capture_output=True, text=True, env=same_imports(), timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stderr
        assert web.ranged
    assert [*tiles(tmp_path / "there").values()] == [*tiles(tmp_path / "here").values()]


def test_a_table_of_scenes_may_hold_urls(store: Store, tmp_path: Path) -> None:
    url = store.put_folder("tabled", make_scene(tmp_path / "scenes"))
    table = tmp_path / "scenes.csv"
    table.write_text(f"scene,path\na,{url}/site_B2.tif\nb,{url}/none.tif\n")
    result = unchoke.tile(table, out=tmp_path / "out", on_event=ignore, tile_size=64, workers=1)
    assert len(tiles(tmp_path / "out")) > 0
    assert any("none.tif" in finding.message for finding in result.findings)


def test_a_replaced_scene_is_not_mixed_with_the_earlier(store: Store, tmp_path: Path) -> None:
    from unchoke.scenes.handles import HandlePool

    url = store.put_folder("replaced", make_scene(tmp_path / "scenes"))
    with HandlePool().open(f"{url}/site_B2.tif") as dataset:
        before = dataset.read(1)
    store.put("replaced/site_B2.tif", (tmp_path / "scenes" / "site_B3.tif").read_bytes())
    with HandlePool().open(f"{url}/site_B2.tif") as dataset:
        assert not np.array_equal(dataset.read(1), before)


def test_a_store_that_rasters_cannot_be_read_from_is_named() -> None:
    from unchoke.scenes.handles import gdal_name

    with refused("unreadable-scene", "memory://store/a.tif", "s3://"):
        gdal_name("memory://store/a.tif")
    assert gdal_name("s3://bucket/a b.tif") == "/vsis3/bucket/a b.tif"
    assert gdal_name("https://host/a.tif") == "/vsicurl/https://host/a.tif"
    assert gdal_name("/data/a.tif") == "/data/a.tif"


def test_a_missing_scene_is_said(store: Store, tmp_path: Path) -> None:
    broken = store.put("broken/a.tif", b"no raster")
    with refused("no-usable-scene", broken):
        unchoke.tile(broken, out=tmp_path / "out", on_event=ignore, tile_size=64, workers=1)
