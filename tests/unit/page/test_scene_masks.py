"""Masks of whole scenes on the page: drawn by the command, shown small, by id, over the scene they were drawn from."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.conftest import Once

import mask_run
from pages import guest
from unchoke.core.checksums import load_checked_json, save_checked_json
from unchoke.masks import mask_pictures
from unchoke.masks.mask_pictures import class_colours, list_masks, picture_of_mask, picture_of_scene
from unchoke.masks.segment_predict import segment_predict

LARGE = (1700, 96)


@pytest.fixture(scope="session")
def drawn(once: Once) -> Path:
    """A workspace with masks of a scene on a map, of one larger than a picture, and of a photo."""

    def build(folder: Path) -> None:
        mask_run.make_scene(folder / "scenes" / "mapped.tif")
        mask_run.make_scene(folder / "scenes" / "large.tif", height=LARGE[0], width=LARGE[1], on_map=False)
        mask_run.make_scene(folder / "photos" / "photo.png")
        numbered = mask_run.make_run(folder / "exp_2", bands=("b1", "b2", "b3"))
        for run, name in ((mask_run.make_run(folder / "exp_1"), "scenes"), (numbered, "photos")):
            segment_predict(run, folder / name, out=folder / "out", probabilities=False)

    return once("page-drawn-masks", build)


def copied(drawn: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(drawn / "out", tmp_path / "out"))


def pictures(root: Path) -> dict[str, Image.Image]:
    client = guest(root)
    found = re.findall(r'src="(/masks/[^"]+)"', client.get("/scenes").text)
    return {path: Image.open(io.BytesIO(client.get(path).content)) for path in found}


def test_every_mask_lies_over_its_scene_and_is_served_by_id(drawn: Path, tmp_path: Path) -> None:
    root = copied(drawn, tmp_path)
    page = guest(root).get("/scenes").text
    assert 'type="range"' in page
    assert "220 × 150 px" in page
    assert all(name in page for name in ("mapped", "large", "photo", *mask_run.NAMES))
    assert str(drawn) not in page
    found = pictures(root)
    assert sorted(path.rpartition("/")[2] for path in found) == ["image"] * 3 + ["prediction"] * 3
    sizes = sorted(picture.size for path, picture in found.items() if path.endswith("image"))
    assert sizes == sorted(picture.size for path, picture in found.items() if path.endswith("prediction"))
    assert sizes == [(90, 1600), (220, 150), (220, 150)]
    kept = sorted((root / "thumbnails").rglob("*.jpg"))
    assert len(kept) == 6
    pictures(root)
    assert sorted((root / "thumbnails").rglob("*.jpg")) == kept


def test_what_is_not_there_leads_nowhere(drawn: Path, tmp_path: Path) -> None:
    root = copied(drawn, tmp_path)
    client = guest(root)
    (path, *_) = re.findall(r'src="(/masks/[^"]+)/image"', client.get("/scenes").text)
    for wrong in (f"{path}/probabilities", f"{path}/truth", "/masks/0000000000000000/image", "/masks/..%2f..%2fx/image"):
        assert client.get(wrong).status_code == 404


def test_colours_of_classes_and_nothing_elsewhere(drawn: Path) -> None:
    import rasterio

    mask = next(one for one in list_masks(drawn / "out" / "masks") if one.scene == "mapped")
    painted = picture_of_mask(mask)
    with rasterio.open(mask.file) as file:
        classes = file.read(1)
    assert (painted[..., 3] == np.where(classes == 255, 0, 255)).all()
    assert (classes == 255).any()
    for number, colour in enumerate(class_colours(len(mask_run.NAMES))):
        assert (painted[classes == number][:, :3] == colour).all()
    assert mask.legend[0][0] == mask_run.NAMES[0]


def test_the_scene_is_shown_where_the_mask_is(drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At half the size: each pixel is the mean of four, so it follows the scene's own blocks."""
    import rasterio

    mask = next(one for one in list_masks(drawn / "out" / "masks") if one.scene == "mapped")
    monkeypatch.setattr(mask_pictures, "SIDE_PX", 110)
    picture = picture_of_scene(mask)
    assert picture.shape == (75, 110, 3)
    with rasterio.open(drawn / "scenes" / "mapped.tif") as file:
        red = file.read(1).reshape(75, 2, 110, 2).mean(axis=(1, 3))
    seen = red > 0
    seen[:26, :74] = False
    assert np.corrcoef(red[seen], picture[..., 0][seen])[0, 1] > 0.98


def test_a_scene_that_is_gone_leaves_the_mask_alone(drawn: Path, tmp_path: Path) -> None:
    root = copied(drawn, tmp_path)
    file = root / "masks" / "exp_1" / "mapped.json"
    record = load_checked_json(file)
    record["bands"] = [{**band, "path": "https://example.com/mapped.tif"} for band in record["bands"]]
    save_checked_json(file, record)
    found = next(one for one in list_masks(root / "masks") if one.scene == "mapped")
    assert found.bands == ()
    assert len(pictures(root)) == 5


@pytest.mark.parametrize("names", [{"../../manifest.csv": 1}, {"/etc/passwd": 1}, {}])
def test_a_record_leads_to_no_other_file(drawn: Path, tmp_path: Path, names: dict[str, int]) -> None:
    root = copied(drawn, tmp_path)
    file = root / "masks" / "exp_1" / "mapped.json"
    save_checked_json(file, {**load_checked_json(file), "files": names})
    assert "draw it again" in guest(root).get("/scenes").text
    assert len(pictures(root)) == 4
    file.write_text("{")
    assert "draw it again" in guest(root).get("/scenes").text
