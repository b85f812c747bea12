"""Masks of ordinary photos of several sizes, from a folder of palette PNGs to PNGs of the same palette."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.conftest import Once

from unchoke.core.events import ignore
from unchoke.masks.segment_predict import segment_predict
from unchoke.masks.segment_train import segment_train

COLOURS = [(0, 0, 0), (200, 30, 30)]


@pytest.fixture(scope="session")
def trained(once: Once) -> Path:
    """Photos with a red square each, masks with an unlabelled border around it, one photo grey, and a run on them."""

    def build(folder: Path) -> None:
        (folder / "photos").mkdir(parents=True)
        (folder / "masks").mkdir()
        for number in range(8):
            draw = np.random.default_rng(number)
            height, width = (96, 128) if number % 2 else (110, 90)
            pixels = draw.integers(60, 160, (height, width, 3)).astype(np.uint8)
            mask = np.zeros((height, width), np.uint8)
            top, left = draw.integers(5, 40, 2)
            mask[top - 2 : top + 42, left - 2 : left + 42] = 255
            mask[top : top + 40, left : left + 40] = 1
            pixels[mask == 1] = (210, 40, 40)
            photo = Image.fromarray(pixels)
            (photo.convert("L") if number == 7 else photo).save(folder / "photos" / f"{number}.jpg", quality=95)
            picture = Image.fromarray(mask, mode="P")
            picture.putpalette([value for colour in COLOURS for value in colour] + [224] * 762)
            picture.save(folder / "masks" / f"{number}.png")
        options: dict[str, Any] = {"label": str(folder / "masks"), "patch_size": 64, "epochs": 2, "engine": "torch"}
        segment_train(str(folder / "photos"), out=folder / "out", on_event=ignore, **options)

    return once("photo-masks", build)


def test_report_shows_whole_photos(trained: Path) -> None:
    from unchoke.runs.lookup import find_run

    record = find_run("latest", out=trained / "out").record
    choices = {one.name: one for one in record.choices}
    assert choices["ignore"].value == 255
    titles = [one.title for one in record.gallery]
    assert len(titles) == 8
    assert not any("rows" in title for title in titles)
    assert record.legend[1].colour == "#c81e1e"
    assert (record.metrics["test"]["iou/class 1"].value or 0) > 0.5


def test_predictions_are_pngs_of_the_same_palette(trained: Path, tmp_path: Path) -> None:
    drawn = segment_predict("latest", trained / "photos", to=tmp_path / "masks", out=trained / "out", on_event=ignore)
    assert len(drawn.masks) == 8, "the grey photo, too"
    with Image.open(drawn.masks[0]["classes"]) as picture, Image.open(trained / "photos" / "0.jpg") as photo:
        assert (picture.mode, picture.size) == ("P", photo.size)
        assert picture.getpalette()[:6] == [value for colour in COLOURS for value in colour]


def test_embeddings_of_64_bands_are_bands(tmp_path: Path) -> None:
    """Two directions in 64 dimensions with noise; pixels without an embedding are not a number."""
    rasterio = pytest.importorskip("rasterio")
    directions = np.random.default_rng(1).normal(size=(2, 64))
    (tmp_path / "scenes").mkdir()
    (tmp_path / "labels").mkdir()
    for number in range(6):
        draw, label = np.random.default_rng(number), np.zeros((64, 72), np.uint8)
        top, left = draw.integers(0, 30, 2)
        label[top : top + 30, left : left + 30] = 1
        bands = (directions[label].transpose(2, 0, 1) + draw.normal(0, 0.5, (64, 64, 72))).astype(np.float32)
        bands[:, :4, :4] = np.nan
        place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500_000 + 3000 * number, 0, -10, 5_000_000)}
        for name, values in (("scenes", bands), ("labels", label[None])):
            profile = {"driver": "GTiff", "height": 64, "width": 72, "count": len(values), "dtype": values.dtype, **place}
            with rasterio.open(tmp_path / name / f"{number}.tif", "w", **profile) as file:
                file.write(values)
                file.descriptions = tuple(f"A{band:02d}" for band in range(len(values)))
    options: dict[str, Any] = {"label": str(tmp_path / "labels"), "patch_size": 64, "overlap": 0, "epochs": 1, "engine": "torch"}
    result = segment_train(str(tmp_path / "scenes"), out=tmp_path / "out", on_event=ignore, **options)
    assert len(result.record["data"]["bands"]) == 64
    assert result.record["metrics"]["test"]["mean_iou"]["value"] > 0.9
