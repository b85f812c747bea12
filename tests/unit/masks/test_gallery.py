"""The gallery: pieces chosen by a hash, test first and never overlapping; pictures that show what the numbers say."""

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
from unchoke.masks.gallery import ENOUGH, GallerySample, build_gallery, choose_samples, score_note, stitched_samples
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
