"""Labels as people have them: palette, grey, colours, a file for each class, COCO, VOC; each becomes classes, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from errors import refused
from unchoke.core.events import ignore
from unchoke.runs.session import Session, open_session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import LabelMask
from unchoke.scenes.open_scenes import find_scenes, open_scenes
from unchoke.scenes.scan_scenes import LabelCode

SIZES = {"one": (40, 60), "two": (50, 50), "three": (30, 70)}
PALETTE = [(0, 0, 0), (128, 0, 0), (0, 128, 0)]
Classes = NDArray[np.uint8]


def truth(name: str) -> Classes:
    """Background, a square of class 1 and one of class 2."""
    mask = np.zeros(SIZES[name], np.uint8)
    mask[5:15, 5:15], mask[18:26, 30:42] = 1, 2
    return mask


def write_photos(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, size in SIZES.items():
        pixels = np.random.default_rng(len(name)).integers(0, 255, (*size, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.jpg")
    return folder


def write_palette(file: Path, mask: Classes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(mask, mode="P")
    picture.putpalette([value for colour in PALETTE for value in colour])
    picture.save(file)


def write_masks(folder: Path, encode: Callable[[Classes], NDArray[np.uint8]], ending: str = ".png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in SIZES:
        Image.fromarray(encode(truth(name))).save(folder / f"{name}{ending}")
    return folder


def read(data: Path, label: Path | None, out: Path, **options: Any) -> tuple[dict[str, Classes], LabelCode, dict[str, Any]]:
    """Masks as training would see them, what classes are called, and the choices by name."""
    with open_session({"data": data, "label": label and str(label), **options}, out=out, on_event=ignore) as session:
        scanned = find_scenes(session)
        facts, _ = open_scenes(session, scanned, pool=HandlePool(), threads=1, same_bands=True)
        return {one.scene_id: mask_of(one, session) for one in facts}, scanned.code, {one.name: one for one in session.choices}


def mask_of(facts: Any, session: Session) -> Classes:
    from unchoke.core.boxes import Box

    box = Box(0, 0, facts.grid.height, facts.grid.width)
    valid = np.ones((box.height, box.width), bool)
    return LabelMask(session.settings.ignore).mask(facts, box, np.zeros((3, 1, 1), np.float32), valid, HandlePool())


def assert_truth(found: dict[str, Classes]) -> None:
    assert sorted(found) == sorted(SIZES)
    for name, mask in found.items():
        np.testing.assert_array_equal(mask, truth(name))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos")


def test_palette_masks_keep_their_colours(photos: Path, tmp_path: Path) -> None:
    for name in SIZES:
        write_palette(tmp_path / "masks" / f"{name}.png", truth(name))
    found, code, _ = read(photos, tmp_path / "masks", tmp_path / "out")
    assert_truth(found)
    assert code.colours == tuple(PALETTE)


def test_coloured_masks_with_and_without_names(photos: Path, tmp_path: Path) -> None:
    table = np.array(PALETTE, np.uint8)[[0, 2, 1]]  # the order of red, green and blue is another than that of the classes
    masks = write_masks(tmp_path / "masks", lambda mask: table[mask])
    found, code, choices = read(photos, masks, tmp_path / "out")
    assert code.class_names == ("#000000", "#008000", "#800000")
    assert_truth(found)
    assert "label_colours" in choices
    (masks / "labelmap.txt").write_text("# label:color_rgb:parts:actions\nsky:0,0,0::\nroof:128,0,0::\ntree:0,128,0::\n")
    found, code, _ = read(photos, masks, tmp_path / "out")
    assert code == LabelCode(("sky", "roof", "tree"), tuple(PALETTE))
    assert (found["one"] == np.array([0, 2, 1], np.uint8)[truth("one")]).all()
    (masks / "labelmap.txt").write_text("void:0,0,0::\nroof:128,0,0::\ntree:0,128,0::\n")
    found, code, _ = read(photos, masks, tmp_path / "out")
    assert code.class_names == ("roof", "tree")
    assert (found["one"] == np.array([255, 1, 0], np.uint8)[truth("one")]).all()
    (masks / "labelmap.txt").write_text("sky:0,0,0::\nroof:1,0,0::\n")
    with refused("label-colour-unknown"):
        read(photos, masks, tmp_path / "out")


@pytest.mark.parametrize(("value", "ending"), [(255, ".png"), (128, ".png"), (255, ".jpg")])
def test_black_and_white_is_two_classes(photos: Path, tmp_path: Path, value: int, ending: str) -> None:
    masks = write_masks(tmp_path / "masks", lambda mask: (mask > 0).astype(np.uint8) * np.uint8(value), ending)
    found, _, choices = read(photos, masks, tmp_path / "out")
    wrong = sum(int((mask != (truth(name) > 0)).sum()) for name, mask in found.items())
    assert wrong <= (30 if ending == ".jpg" else 0)
    assert "label_values" in choices


def test_255_is_unlabelled_where_it_is_not_listed(photos: Path, tmp_path: Path) -> None:
    def bordered(mask: Classes) -> Classes:
        mask[5, 5:15] = 255
        return mask

    found, _, choices = read(photos, write_masks(tmp_path / "masks", bordered), tmp_path / "out")
    assert (found["one"][5, 5:15] == 255).all() and (found["one"][6, 5:15] == 1).all()
    assert choices["ignore"].value == 255


def test_shades_of_grey_and_an_ignored_one(photos: Path, tmp_path: Path) -> None:
    masks = write_masks(tmp_path / "masks", lambda mask: np.array([10, 100, 200], np.uint8)[mask])
    found, code, _ = read(photos, masks, tmp_path / "out")
    assert_truth(found)
    assert code.class_names == ("value 10", "value 100", "value 200")
    found, code, _ = read(photos, masks, tmp_path / "out", ignore=10)
    assert (found["one"] == np.array([255, 0, 1], np.uint8)[truth("one")]).all()


def test_grey_stored_in_three_bands(photos: Path, tmp_path: Path) -> None:
    found, _, _ = read(photos, write_masks(tmp_path / "masks", lambda mask: np.stack([mask] * 3, axis=-1)), tmp_path / "out")
    assert_truth(found)


def test_masks_in_the_transparency_alone_are_refused(photos: Path, tmp_path: Path) -> None:
    masks = write_masks(tmp_path / "masks", lambda mask: np.stack([mask * 0, mask * 0, mask * 0, mask * 100], axis=-1))
    with refused("label-not-exact", "alpha"):
        read(photos, masks, tmp_path / "out")


def test_masks_among_the_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    photos = write_photos(tmp_path / "with_GT")
    for name in SIZES:
        write_palette(photos / f"{name}_mask.png", truth(name))
    for data in (photos, tmp_path, Path("with_GT")):
        found, _, _ = read(data, data, tmp_path.parent / f"{tmp_path.name}-out")
        assert_truth(found)


def test_blurred_masks_are_refused(photos: Path, tmp_path: Path) -> None:
    masks = write_masks(tmp_path / "masks", lambda mask: np.array(PALETTE, np.uint8)[mask], ".jpg")
    with refused("label-not-exact"):
        read(photos, masks, tmp_path / "out")


@pytest.mark.parametrize("place", ["{kind}/{name}.png", "{name}_{kind}.png"])
def test_one_file_for_each_class(photos: Path, tmp_path: Path, place: str) -> None:
    for number, kind in ((1, "roof"), (2, "tree")):
        for name in SIZES:
            file = tmp_path / "masks" / place.format(kind=kind, name=name)
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((truth(name) == number).astype(np.uint8) * np.uint8(255)).save(file)
    found, code, _ = read(photos, tmp_path / "masks", tmp_path / "out")
    assert_truth(found)
    assert code.class_names == ("background", "roof", "tree")


def polygon(top: int, left: int, bottom: int, right: int) -> list[list[int]]:
    return [[left, top, right, top, right, bottom, left, bottom]]


def coco(photos: Path, **changes: Any) -> dict[str, Any]:
    images = [{"id": n, "file_name": f"{photos.name}/{name}.jpg", "height": size[0], "width": size[1]}
              for n, (name, size) in enumerate(SIZES.items())]  # fmt: skip
    things = [
        {"image_id": one["id"], "category_id": category, "segmentation": polygon(*box), **changes}
        for one in images
        for category, box in ((3, (5, 5, 15, 15)), (7, (18, 30, 26, 42)))
    ]
    return {"images": images, "annotations": things, "categories": [{"id": 3, "name": "roof"}, {"id": 7, "name": "tree"}]}


def test_coco_outlines_run_lengths_and_crowds(photos: Path, tmp_path: Path) -> None:
    file, content = tmp_path / "coco.json", coco(photos)
    file.write_text(json.dumps(content))
    found, code, _ = read(photos, file, tmp_path / "out")
    assert_truth(found)
    assert code.class_names == ("background", "roof", "tree")
    flat = (truth("one") == 1).T.ravel()
    ends = np.flatnonzero(np.diff(np.concatenate([[0], flat, [0]])))
    counts = np.diff(np.concatenate([[0], ends, [flat.size]])).tolist()
    content["annotations"][0]["segmentation"] = {"size": [40, 60], "counts": counts}
    content["annotations"][1] |= {"iscrowd": 1}
    content["annotations"][2]["segmentation"] = {"size": list(SIZES["two"]), "counts": as_text([5, 10, 2485])}
    file.write_text(json.dumps(content))
    found, _, _ = read(photos, file, tmp_path / "out")
    assert (found["one"] == np.array([0, 1, 255], np.uint8)[truth("one")]).all()
    assert (found["two"][5:15, 0] == 1).all() and (found["two"][:, 1] == 0).all()


def as_text(counts: list[int]) -> str:
    """COCO's text: five bits a letter, from the third count on the difference to the one before the last."""
    text = ""
    for place, count in enumerate(counts):
        value, more = count - (counts[place - 2] if place > 2 else 0), True
        while more:
            bits, value = value & 31, value >> 5
            more = value != (-1 if bits & 16 else 0)
            text += chr((bits | 32 if more else bits) + 48)
    return text


def test_boxes_alone_are_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "boxes.json").write_text(json.dumps(coco(photos, segmentation=[], bbox=[1, 1, 4, 4])))
    with refused("detection-not-supported"):
        read(photos, tmp_path / "boxes.json", tmp_path / "out")
    (tmp_path / "other.json").write_text("{}")
    with refused("not-coco"):
        read(photos, tmp_path / "other.json", tmp_path / "out")


def test_voc_layout_splits_and_names(tmp_path: Path) -> None:
    root = tmp_path / "VOC2012"
    write_photos(root / "JPEGImages")
    for name in ("one", "two"):
        write_palette(root / "SegmentationClass" / f"{name}.png", truth(name))
    (root / "ImageSets" / "Segmentation").mkdir(parents=True)
    (root / "ImageSets" / "Segmentation" / "train.txt").write_text("one\n")
    (root / "ImageSets" / "Segmentation" / "val.txt").write_text("two\n")
    found, _, choices = read(root, None, tmp_path / "out")
    assert sorted(found) == ["one", "two"]
    assert choices["layout"].value == "VOC" and "split" in choices


def test_grey_photos_among_coloured_ones(photos: Path, tmp_path: Path) -> None:
    Image.open(photos / "one.jpg").convert("L").save(photos / "one.jpg")
    found, _, choices = read(photos, write_masks(tmp_path / "masks", lambda mask: mask), tmp_path / "out")
    assert_truth(found)
    assert choices["bands"].value == "b1,b2,b3"


@pytest.mark.parametrize("name", ["label.png", "anything.png"])
def test_the_only_label_of_the_only_scene(tmp_path: Path, name: str) -> None:
    write_photos(tmp_path / "photos")
    (tmp_path / "labels").mkdir()
    Image.fromarray(truth("one")).save(tmp_path / "labels" / name)
    found, _, _ = read(tmp_path / "photos" / "one.jpg", tmp_path / "labels", tmp_path / "out")
    np.testing.assert_array_equal(found["one"], truth("one"))


def test_what_all_labels_have_in_their_names(photos: Path, tmp_path: Path) -> None:
    found, _, _ = read(photos, write_masks(tmp_path / "masks", lambda mask: mask, "_L.png"), tmp_path / "out")
    assert_truth(found)


def test_equal_names_in_folders_of_splits(tmp_path: Path) -> None:
    for split, name in (("train", "one"), ("val", "two")):
        (tmp_path / "photos" / split).mkdir(parents=True)
        (tmp_path / "masks" / split).mkdir(parents=True)
        Image.fromarray(np.zeros((*SIZES[name], 3), np.uint8)).save(tmp_path / "photos" / split / "1.jpg")
        Image.fromarray(truth(name)).save(tmp_path / "masks" / split / "1.png")
    found, _, _ = read(tmp_path / "photos", tmp_path / "masks", tmp_path / "out")
    np.testing.assert_array_equal(found["train_1"], truth("one"))
    np.testing.assert_array_equal(found["val_1"], truth("two"))


def test_labels_made_again_count_as_the_same(photos: Path, tmp_path: Path) -> None:
    import shutil

    masks, contents = write_masks(tmp_path / "masks", lambda mask: mask * np.uint8(100)), []
    for _ in range(2):
        with open_session({"data": photos, "label": str(masks)}, out=tmp_path / "out", on_event=ignore) as session:
            facts, _ = open_scenes(session, find_scenes(session), pool=HandlePool(), threads=1, same_bands=True)
            contents.append([one.content for one in facts])
        shutil.rmtree(tmp_path / "out" / "labels")
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["CON", "aux", "Lpt1.b"])
def test_names_that_windows_keeps(tmp_path: Path, name: str) -> None:
    from unchoke.scenes.scan_scenes import scan_scenes

    write_photos(tmp_path / "photos")
    (tmp_path / "photos" / "one.jpg").rename(tmp_path / "photos" / f"{name}.jpg")
    assert f"{name}_" in [scene.scene_id for scene in scan_scenes(tmp_path / "photos").scenes]
