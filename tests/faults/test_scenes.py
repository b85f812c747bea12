"""Files of scenes that are broken, in the wrong place, or changed under the reader: the error names the file, others go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from errors import refused
from unchoke.core.boxes import Box
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.raster import read_box, read_label
from unchoke.scenes.scan_scenes import scan_scenes
from unchoke.scenes.scene_facts import IGNORE, BandFile, Scene

EAST, NORTH = 500_000.0, 4_000_000.0


def write(file: Path, pixels: NDArray[Any], *, east: float = EAST, crs: str | None = "EPSG:32616", **options: Any) -> str:
    import rasterio
    from rasterio.transform import from_origin

    place = {} if crs is None else {"crs": crs, "transform": from_origin(east, NORTH, 10, 10)}
    file.parent.mkdir(parents=True, exist_ok=True)
    profile = {"driver": "GTiff", "count": 1, "dtype": pixels.dtype, **place, **options}
    with rasterio.open(file, "w", height=pixels.shape[0], width=pixels.shape[1], **profile) as dataset:
        dataset.write(pixels, 1)
    return str(file)


def noise(seed: int = 0, side: int = 200) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(1, 9999, (side, side)).astype(np.uint16)


def cut_short(path: str, *, keep: float = 0.5) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: int(len(content) * keep)])


def read_whole(scene: Scene, pool: HandlePool) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    facts = inspect_scene(scene, pool=pool)
    return read_box(facts, Box(0, 0, facts.grid.height, facts.grid.width), pool=pool)


@pytest.fixture
def pool() -> HandlePool:
    return HandlePool(8)


def test_scene_with_a_missing_band(tmp_path, pool):
    for name in ("a/a_B2.tif", "a/a_B3.tif", "b/b_B2.tif"):
        write(tmp_path / name, noise(side=8))
    scanned = scan_scenes(tmp_path, bands=("B2", "B3"))
    assert [scene.scene_id for scene in scanned.scenes] == ["a"]
    assert "scene b" in scanned.findings[0].message and "B3" in scanned.findings[0].message
    assert read_whole(scanned.scenes[0], pool)[1].all()


@pytest.mark.parametrize("options", [{"compress": "deflate"}, {"tiled": True, "blockxsize": 64, "blockysize": 64}, {}])
def test_truncated_tiff(tmp_path, pool, options):
    good, bad = (write(tmp_path / f"{name}.tif", noise(), **options) for name in ("good", "bad"))
    if not options:  # a striped file has its table in front: the header stays whole
        Path(bad).write_bytes(Path(bad).read_bytes()[:-30_000])
    else:
        cut_short(bad)
    with refused("unreadable-scene", "bad.tif") as caught:
        read_whole(Scene("bad", file=bad), pool)
    assert caught.value.path == bad and caught.value.exit_code == 1
    assert read_whole(Scene("good", file=good), pool)[1].all()


def test_a_truncated_jpeg_2000_is_named(tmp_path, pool):
    bad = write(tmp_path / "bad.jp2", noise(), driver="JP2OpenJPEG", QUALITY="100", REVERSIBLE="YES")
    cut_short(bad)
    with refused("unreadable-scene", "bad.jp2"):
        read_whole(Scene("bad", file=bad), pool)


def test_a_text_file_with_the_name_of_a_raster_is_named(tmp_path, pool):
    (tmp_path / "notes.tif").write_text("not a raster\n" * 10)
    (tmp_path / "empty.tif").write_bytes(b"")
    elsewhere = write(tmp_path / "real.tif", noise(side=8))
    source = f"<SimpleSource><SourceFilename>{elsewhere}</SourceFilename></SimpleSource>"
    band = f'<VRTRasterBand dataType="UInt16" band="1">{source}</VRTRasterBand>'
    (tmp_path / "leads_away.tif").write_text(f'<VRTDataset rasterXSize="8" rasterYSize="8">{band}</VRTDataset>')
    for name in ("notes.tif", "empty.tif", "leads_away.tif"):
        with refused("unreadable-scene", name) as caught:
            inspect_scene(Scene("bad", file=str(tmp_path / name)), pool=pool)
        assert caught.value.path == str(tmp_path / name)


def test_bands_that_do_not_overlap(tmp_path, pool):
    first, second = write(tmp_path / "B2.tif", noise(side=8)), write(tmp_path / "B3.tif", noise(side=8), east=EAST + 10_000)
    with refused("bands-do-not-overlap", "B3.tif", "B2.tif", "510000") as caught:
        inspect_scene(Scene("s", (BandFile("B2", first), BandFile("B3", second))), pool=pool)
    assert caught.value.path == second


@pytest.mark.parametrize("other", ["EPSG:32617", None])
def test_bands_in_two_coordinate_systems(tmp_path, pool, other):
    first, second = write(tmp_path / "B2.tif", noise(side=8)), write(tmp_path / "B3.tif", noise(side=8), crs=other)
    with refused("crs-differs", "B3.tif", "B2.tif", "32616", other or ""):
        inspect_scene(Scene("s", (BandFile("B2", first), BandFile("B3", second))), pool=pool)


def test_a_scene_without_a_single_value_reads_as_nothing(tmp_path, pool):
    bands, valid = read_whole(Scene("s", file=write(tmp_path / "a.tif", np.zeros((8, 8), np.uint16), nodata=0)), pool)
    assert not valid.any() and not bands.any()


def test_a_scene_of_one_pixel_is_read(tmp_path, pool):
    bands, valid = read_whole(Scene("s", file=write(tmp_path / "a.tif", np.array([[7]], np.uint16))), pool)
    assert bands.tolist() == [[[7.0]]] and valid.all()


def test_label_of_another_place_and_one_in_part(tmp_path, pool):
    bands = write(tmp_path / "a.tif", noise(side=20))
    ones = np.ones((20, 20), np.uint8)
    far = write(tmp_path / "far.tif", ones, east=EAST + 10_000)
    with refused("bands-do-not-overlap", "far.tif"):
        inspect_scene(Scene("s", file=bands, label=far), pool=pool)
    with refused("bands-do-not-overlap", "far2.tif"):
        inspect_scene(Scene("s", file=bands, label=write(tmp_path / "far2.tif", ones, crs="EPSG:32650")), pool=pool)
    facts = inspect_scene(Scene("s", file=bands, label=write(tmp_path / "near.tif", ones, east=EAST + 50)), pool=pool)
    labels = read_label(facts, Box(0, 0, 20, 20), pool=pool)
    assert (labels[:, :5] == IGNORE).all() and (labels[:, 5:] == 1).all()


def test_a_broken_label_is_named(tmp_path, pool):
    label = write(tmp_path / "label.tif", noise(side=200).astype(np.uint8), compress="deflate")
    cut_short(label, keep=0.8)
    scene = Scene("s", file=write(tmp_path / "a.tif", noise()), label=label)
    with refused("unreadable-scene", "label.tif"):
        facts = inspect_scene(scene, pool=pool)
        read_label(facts, Box(0, 0, 200, 200), pool=pool)


@pytest.mark.parametrize("opened_before", [True, False])
def test_file_replaced_while_reading(tmp_path, pool, opened_before):
    path = write(tmp_path / "a.tif", noise())
    facts = inspect_scene(Scene("s", file=path), pool=pool)
    if opened_before:
        read_box(facts, Box(0, 0, 100, 200), pool=pool)
    else:
        pool.close()
    Path(write(tmp_path / "b.tif", noise(1, side=150))).replace(path)
    with refused("scene-changed", "a.tif") as caught:
        read_box(facts, Box(100, 0, 100, 200), pool=pool)
    assert caught.value.path == path


def test_file_overwritten_with_rubbish(tmp_path, pool):
    path = write(tmp_path / "a.tif", noise(), compress="deflate")
    facts = inspect_scene(Scene("s", file=path), pool=pool)
    size = Path(path).stat().st_size
    Path(path).write_bytes(b"\x00" * size)
    os.utime(path, ns=(10**18, 10**18))
    with refused("scene-changed", "a.tif"):
        read_box(facts, Box(0, 0, 200, 200), pool=pool)


def test_a_file_that_is_deleted_is_named(tmp_path, pool):
    path = write(tmp_path / "a.tif", noise())
    facts = inspect_scene(Scene("s", file=path), pool=pool)
    Path(path).unlink()
    with refused("unreadable-scene", "a.tif"):
        read_box(facts, Box(0, 0, 10, 10), pool=pool)
