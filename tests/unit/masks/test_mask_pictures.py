"""Pieces of a gallery chosen by a hash, test first and never overlapping; colours told apart, errors that stand out."""

from __future__ import annotations

import base64
import io
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mask_run
from unchoke.core.boxes import Box, plan_boxes
from unchoke.masks.mask_pictures import (
    BACKGROUND,
    ENOUGH,
    IGNORED,
    GallerySample,
    as_hex,
    build_gallery,
    choose_rgb,
    choose_samples,
    class_colours,
    paint_bands,
    paint_error,
    paint_mask,
    paint_overlay,
    score_note,
    stitched_samples,
)
from unchoke.masks.patches import BandStandard, Patch, PatchReader, patch_id

rasterio = pytest.importorskip("rasterio")
WORDS = ("image", "overlay", "prediction", "truth", "error")


def patches_of(sizes: dict[str, tuple[int, int]], *, patch_px: int, overlap_px: int) -> list[Patch]:
    """Patches that cover the scenes, in splits by their column, with a gap between them."""
    found = []
    for scene, (height, width) in sizes.items():
        for box in plan_boxes(height, width, size_px=patch_px, overlap_px=overlap_px, edges="padded"):
            column = box.left // (patch_px - overlap_px)
            split = ("test", "buffer", "val", "buffer", "train")[min(column, 4)]
            found.append(Patch(patch_id(scene, box), scene, box, split))
    return found


@pytest.mark.parametrize("size", [(1500, 1500), (603, 627), (300, 1000)])
def test_windows_apart_inside_test_split_first(size: tuple[int, int]) -> None:
    sizes = {"a": size, "b": size}
    patches = patches_of(sizes, patch_px=128, overlap_px=32)
    chosen = choose_samples(patches, sizes=sizes)
    assert ENOUGH <= len(chosen) <= 24
    assert [one.split for one in chosen] == sorted((one.split for one in chosen), key=["test", "val", "train"].index)
    for one, other in combinations(chosen, 2):
        assert one.scene_id != other.scene_id or one.box.common(other.box) is None
    for one in chosen:
        assert one.box.common(Box(0, 0, *size)) == one.box
        assert any(patch.split == one.split and patch.box.common(one.box) == one.box for patch in patches)
    assert chosen == choose_samples(reversed(patches), sizes=sizes)
    assert chosen != choose_samples(patches, sizes=sizes, seed=1)


def test_small_scenes_are_cut_into_smaller_pieces() -> None:
    sizes = {f"s{number}": (128, 128) for number in range(8)}
    patches = [Patch(scene, scene, Box(0, 0, 128, 128), "train") for scene in sizes]
    chosen = choose_samples(patches, sizes=sizes)
    assert len(chosen) == 24
    assert {(one.box.height, one.box.width) for one in chosen} == {(64, 64)}
    assert "columns 0–63, training" in " ".join(one.title for one in chosen)


def test_one_tiny_scene_gives_one_window() -> None:
    chosen = choose_samples([Patch("p", "p", Box(0, 0, 64, 64), "test")], sizes={"p": (1, 1)})
    assert [one.box for one in chosen] == [Box(0, 0, 1, 1)]
    assert choose_samples([], sizes={}) == []


def sample(truth: np.ndarray, prediction: np.ndarray) -> GallerySample:
    bands = np.random.default_rng(0).uniform(0, 3000, (4, *truth.shape)).astype(np.float32)
    valid = np.ones(truth.shape, bool)
    return GallerySample("l8, test", bands, ("B2", "B3", "B4", "B5"), valid, truth.astype(np.uint8), prediction.astype(np.uint8))


def picture(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))


def test_each_sample_becomes_five_small_pictures_and_a_note() -> None:
    truth = np.zeros((300, 500))
    truth[:, 250:] = 1
    gallery, legend = build_gallery([sample(truth, truth)] * 3, class_names=["land", "water"], limit=2)
    assert legend == [{"name": "land", "colour": "#e8e4da"}, {"name": "water", "colour": "#0072b2"}]
    assert len(gallery) == 2
    assert set(gallery[0]) == {"title", "note", *WORDS}
    assert gallery[0]["note"] == "mean IoU 100.0 %, 100.0 % of the pixels right"
    for word in WORDS:
        assert max(picture(gallery[0][word]).shape) <= 200
        assert len(gallery[0][word]) < 30_000
    shown = picture(gallery[0]["truth"])
    assert {tuple(map(int, colour)) for colour in shown.reshape(-1, 3)} == {(232, 228, 218), (0, 114, 178)}
    assert (shown == picture(gallery[0]["prediction"])).all()


def test_errors_are_where_answers_and_truth_differ() -> None:
    truth, prediction = np.zeros((40, 40)), np.zeros((40, 40))
    prediction[:10] = 1
    truth[30:] = 1
    truth[20:25] = 255
    gallery, _ = build_gallery([sample(truth, prediction)], class_names=["land", "water"])
    error = picture(gallery[0]["error"])
    assert (error[:10] == 17).all()
    assert (error[30:] == (0, 114, 178)).all()
    assert error[10:20].min() > 160


def test_note_counts_labelled_pixels_and_classes() -> None:
    truth, prediction = np.zeros((10, 10)), np.zeros((10, 10))
    truth[:5] = 255
    prediction[5:6] = 1
    names = ["land", "water", "ice"]
    assert score_note(sample(truth, prediction), names) == "mean IoU 40.0 %, 80.0 % of the pixels right"
    assert score_note(sample(np.full((4, 4), 255), np.zeros((4, 4))), names) == "no labelled pixel here"


@pytest.fixture
def reader(tmp_path: Path) -> PatchReader:
    """One scene of two bands with a strip of nodata; pixels above 100 in the first band are class 1."""
    from unchoke.core.settings import Settings
    from unchoke.scenes.handles import HandlePool
    from unchoke.scenes.mask_sources import choose_mask
    from unchoke.scenes.open_scenes import inspect_scene
    from unchoke.scenes.scale import SceneScale
    from unchoke.scenes.scan_scenes import scan_scenes

    values = np.random.default_rng(1).integers(1, 200, (2, 150, 170)).astype(np.uint16)
    values[:, :, :9] = 0
    (tmp_path / "scenes").mkdir()
    for number, band in enumerate(values, start=1):
        profile = {"driver": "GTiff", "width": 170, "height": 150, "count": 1, "dtype": "uint16", "nodata": 0}
        profile["transform"] = rasterio.Affine(30, 0, 4000, 0, -30, 9000)
        with rasterio.open(tmp_path / "scenes" / f"x_B{number}.tif", "w", **profile) as file:
            file.write(band, 1)
    pool = HandlePool()
    scene = scan_scenes(tmp_path / "scenes").scenes[0]
    facts = inspect_scene(scene, pool=pool)
    scale = SceneScale("none", (1.0, 1.0), (0.0, 0.0))
    mask = choose_mask(Settings(mask="B1 > 100"), band_names=facts.band_names, labelled=False)
    standard = BandStandard((100.0, 100.0), (50.0, 50.0))
    return PatchReader({facts.scene_id: facts}, pool=pool, scales={facts.scene_id: scale}, standard=standard, mask=mask)


def test_piece_equals_stitched_scene(reader: PatchReader) -> None:
    from unchoke.masks.stitch import plan_stitch

    (scene,) = reader.facts
    bias = np.random.default_rng(2).normal(0, 0.5, (2, 64, 64)).astype(np.float32)

    def predict(patches: np.ndarray) -> np.ndarray:
        """Says another thing of the same pixel in another place of its patch."""
        signal = np.stack([-patches[:, 0], patches[:, 0]], axis=1).astype(np.float32) + bias
        chances: np.ndarray = np.exp(signal) / np.exp(signal).sum(axis=1, keepdims=True)
        return chances

    plan = plan_stitch(150, 170, patch_px=64, overlap_px=16, num_classes=2)
    whole = mask_run.stitch_in_ram(plan, lambda boxes: predict(np.stack([reader.read(scene, box)[0] for box in boxes])), batch=4)
    patches = [Patch("", scene, box, "test") for box in plan_boxes(150, 170, size_px=64, overlap_px=16, edges="padded")]
    windows = choose_samples(patches, sizes={scene: (150, 170)})
    samples = list(stitched_samples(windows, reader=reader, predict=predict, patch_px=64, overlap_px=16, batch=3))
    assert len(samples) == len(windows) > 0
    for window, one in zip(windows, samples, strict=True):
        box = window.box
        part = whole[:, box.top : box.bottom, box.left : box.right]
        sure = one.valid & (np.abs(part[0] - part[1]) > 1e-5)
        assert (one.prediction[sure] == part.argmax(axis=0)[sure]).all()
        assert (one.prediction[~one.valid] == 255).all()
        assert (one.truth[one.valid] == (one.bands[0] > 100)[one.valid]).all()
        assert (one.truth[~one.valid] == 255).all()


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["B2", "B3", "B4", "B5"], (2, 1, 0)),
        (["B01", "B02", "B03", "B04", "B8A"], (3, 2, 1)),
        (["l8_B4", "l8_B10", "l8_B3", "l8_B2"], (0, 2, 3)),
        (["blue", "Green", "RED", "nir"], (2, 1, 0)),
        (["b1", "b2", "b3", "b4", "b5", "b6"], (3, 2, 1)),
        (["B8A", "B11", "B12"], (0, 1, 2)),
        (["VV", "VH"], None),
    ],
)
def test_red_green_and_blue_are_found_by_name(names: list[str], chosen: tuple[int, int, int] | None) -> None:
    assert choose_rgb(names) == chosen


def test_bands_are_stretched_over_their_valid_pixels_alone() -> None:
    bands = np.tile(np.linspace(100, 200, 50, dtype=np.float32), (2, 50, 1))
    bands[:, :10] = 30_000
    valid = np.ones((50, 50), bool)
    valid[:10] = False
    picture = paint_bands(bands, ["VV", "VH"], valid)
    assert picture.shape == (50, 50, 3)
    assert (picture[10:, 0].max(), picture[10:, -1].min()) == (0, 255)
    assert (picture[10:, :, 0] == picture[10:, :, 2]).all()
    assert len(np.unique(picture[:10].reshape(-1, 3), axis=0)) == 2


def test_flat_band_is_flat_picture() -> None:
    flat = np.full((3, 8, 8), 7, np.float32)
    assert (paint_bands(flat, ["a", "b", "c"], np.ones((8, 8), bool)) == 128).all()
    assert paint_bands(np.full((3, 8, 8), np.nan, np.float32), ["a", "b", "c"], np.zeros((8, 8), bool)).max() < 255


def test_each_pixel_of_a_mask_has_the_colour_of_its_class() -> None:
    mask = np.array([[0, 1], [2, IGNORED]], np.uint8)
    painted = paint_mask(mask, class_colours(3))
    colours = [tuple(map(int, colour)) for colour in painted.reshape(-1, 3)]
    assert colours[:3] == class_colours(3)
    assert colours[3] not in class_colours(3)


def test_overlay_keeps_first_class_and_unknown() -> None:
    picture = np.full((1, 3, 3), 100, np.uint8)
    laid = paint_overlay(picture, np.array([[0, 1, IGNORED]], np.uint8), class_colours(2))
    assert (laid[0, [0, 2]] == 100).all()
    assert (laid[0, 1] != 100).any()


def test_errors_coloured_by_true_class() -> None:
    picture = np.zeros((1, 4, 3), np.uint8)
    truth = np.array([[1, 1, 0, IGNORED]], np.uint8)
    prediction = np.array([[1, 0, 1, 1]], np.uint8)
    right, missed, invented, unlabelled = paint_error(picture, prediction, truth, class_colours(2))[0]
    assert right.min() >= 160
    assert tuple(missed) == class_colours(2)[1]
    assert invented.max() < 30
    assert len({tuple(one) for one in (right, missed, invented, unlabelled)}) == 4


def test_class_colours_fixed_and_distinct() -> None:
    colours = class_colours(255)
    assert (colours[0], as_hex(colours[1])) == (BACKGROUND, "#0072b2")
    assert colours[:4] == class_colours(4)
    assert len(set(colours[:60])) == 60
    assert class_colours(1) == [BACKGROUND]
