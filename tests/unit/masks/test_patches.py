"""Patches: where they lie, their manifest, and what is read of them."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio import Affine

from unchoke.core.boxes import Box
from unchoke.jobs.cluster.file_transfer import with_paths
from unchoke.masks.patches import (
    LIMIT,
    BandStandard,
    Patch,
    PatchReader,
    measure_standard,
    plan_patches,
    save_patch_manifest,
)
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import ExpressionMask, LabelMask
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import BandFile, Scene, SceneFacts

HEIGHT, WIDTH = 50, 70
NODATA = 0


def write_band(file: Path, values: np.ndarray, nodata: int | None = NODATA) -> str:
    profile = {"driver": "GTiff", "height": values.shape[0], "width": values.shape[1], "count": 1, "dtype": values.dtype}
    with rasterio.open(
        file, "w", **profile, nodata=nodata, crs="EPSG:32633", transform=Affine(10, 0, 5e5, 0, -10, 5e6)
    ) as dataset:
        dataset.write(values, 1)
    return str(file)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two bands of growing numbers, a corner without data, and labels of the left (0) and the right half (1)."""
    ramp = np.arange(1, HEIGHT * WIDTH + 1, dtype=np.uint16).reshape(HEIGHT, WIDTH)
    ramp[:5, :5] = NODATA
    label = np.zeros((HEIGHT, WIDTH), np.uint8)
    label[:, WIDTH // 2 :] = 1
    bands = [BandFile(name, write_band(tmp_path / f"{name}.tif", ramp * times)) for name, times in (("B2", 1), ("B3", 2))]
    return Scene("s1", tuple(bands), label=write_band(tmp_path / "label.tif", label, nodata=None))


@pytest.fixture
def pool() -> HandlePool:
    return HandlePool()


@pytest.fixture
def facts(scene: Scene, pool: HandlePool) -> SceneFacts:
    return inspect_scene(scene, pool=pool)


def test_patches_cover_scene_named_by_corner(facts: SceneFacts) -> None:
    patches = plan_patches([facts], patch_px=32, overlap_px=8)
    assert [patch.patch_id for patch in patches[:4]] == ["s1_r0_c0", "s1_r0_c24", "s1_r0_c48", "s1_r24_c0"]
    assert all((patch.box.height, patch.box.width) == (32, 32) for patch in patches)
    covered = np.zeros((HEIGHT, WIDTH), int)
    for patch in patches:
        covered[patch.box.top : patch.box.bottom, patch.box.left : patch.box.right] += 1
    assert covered.min() >= 1


def test_manifest_version_kept_until_change(tmp_path: Path, facts: SceneFacts) -> None:
    patches = plan_patches([facts], patch_px=64, overlap_px=0)
    parents = {"s1": "some, where/B2.tif"}
    first = save_patch_manifest(tmp_path, patches, parents=parents, features={})
    again = save_patch_manifest(tmp_path, patches, parents=parents, features={})
    other = save_patch_manifest(tmp_path, patches, parents=parents, features={"s1_r0_c64": "features/a.npz"})
    back = save_patch_manifest(tmp_path, patches, parents=parents, features={})
    assert [file.name for file in (first, again, other, back)] == [f"patch_manifest.v00{n}.csv" for n in (1, 1, 2, 1)]
    with other.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert list(rows[0]) == ["patch_id", "parent_image", "bbox", "features_path", "split", "scene_id"]
    assert rows[1]["bbox"] == "64,0,128,64"
    assert rows[1]["parent_image"] == "some, where/B2.tif"
    assert (rows[0]["features_path"], rows[1]["features_path"]) == ("", "features/a.npz")


def test_pixels_scaled_standardised_zero_if_invalid(facts: SceneFacts, pool: HandlePool) -> None:
    scale = SceneScale("given", (10.0, 20.0), (0.0, 0.0))
    standard = BandStandard((100.0, 100.0), (50.0, 50.0))
    reader = PatchReader({"s1": facts}, pool=pool, scales={"s1": scale}, standard=standard)
    pixels, valid = reader.read("s1", Box(0, 48, 32, 32))
    assert pixels.shape == (2, 32, 32) and pixels.dtype == np.float16
    assert valid[:, :22].all() and not valid[:, 22:].any()
    expected = ((48 + 1 + 70 * 3 + 5) / 10 - 100) / 50
    assert pixels[:, 3, 5] == pytest.approx([expected, expected], abs=2e-3)
    assert not pixels[:, ~valid].any()
    assert not reader.read("s1", Box(0, 0, 4, 4))[1].any()


def test_masks_are_ignored_outside_and_where_not_valid(facts: SceneFacts, pool: HandlePool) -> None:
    plain = {"s1": SceneScale("none", (1.0, 1.0), (0.0, 0.0))}
    standard = BandStandard((0.0, 0.0), (1.0, 1.0))
    reader = PatchReader({"s1": facts}, pool=pool, scales=plain, standard=standard, mask=LabelMask())
    whole = reader.mask("s1", Box(0, 0, 64, 96))
    assert (whole[:5, :5] == 255).all() and (whole[HEIGHT:] == 255).all() and (whole[:, WIDTH:] == 255).all()
    assert (whole[5:HEIGHT, :35] == 0).all() and (whole[:HEIGHT, 35:WIDTH] == 1).all()
    assert np.array_equal(reader.mask("s1", Box(16, 32, 32, 32)), whole[16:48, 32:64])
    reader = PatchReader({"s1": facts}, pool=pool, scales=plain, standard=standard, mask=ExpressionMask("B3 > 100", ("B2", "B3")))
    assert reader.mask("s1", Box(0, 0, 1, 60))[0, [0, 10, 49, 50]].tolist() == [255, 0, 0, 1]


def test_without_a_mask_source_nothing_is_labelled(facts: SceneFacts, pool: HandlePool) -> None:
    reader = PatchReader({"s1": facts}, pool=pool, scales={}, standard=BandStandard((), ()))
    assert (reader.mask("s1", Box(0, 0, 8, 8)) == 255).all()


def test_a_reader_that_travels_names_its_files_in_full(
    facts: SceneFacts, pool: HandlePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = with_paths(facts, {path: Path(path).name for path in facts.scene.paths})
    scales = {"s1": SceneScale("none", (1.0, 1.0), (0.0, 0.0))}
    reader = PatchReader({"s1": short}, pool=pool, scales=scales, standard=BandStandard((0.0, 0.0), (1.0, 1.0)))
    monkeypatch.chdir(tmp_path)
    here = reader.read("s1", Box(0, 0, 32, 32))[0]
    travelled = pickle.dumps(reader)
    monkeypatch.chdir("/")
    assert np.array_equal(pickle.loads(travelled).read("s1", Box(0, 0, 32, 32))[0], here)


def test_a_patch_is_a_plain_value() -> None:
    assert Patch("a_r0_c0", "a", Box(0, 0, 8, 8)) == Patch("a_r0_c0", "a", Box(0, 0, 8, 8), "")


RANDOM = np.random.default_rng(3)


def part(mean: float, *, size: int = 8) -> tuple[np.ndarray, np.ndarray]:
    bands = RANDOM.normal(mean, 5, (2, size, size)).astype(np.float32)
    return bands, RANDOM.random((size, size)) > 0.3


def test_standard_is_mean_and_deviation_of_valid() -> None:
    parts = [part(10.0), part(1e5, size=5), part(-3.0, size=3)]
    measured = measure_standard(parts, num_bands=2)
    values = np.concatenate([bands[:, valid].astype(np.float64) for bands, valid in parts], axis=1)
    assert measured.mean == pytest.approx(values.mean(axis=1))
    assert measured.std == pytest.approx(values.std(axis=1))


def test_constant_band_not_divided_by_zero() -> None:
    bands = np.full((1, 4, 4), 7.0, np.float32)
    assert measure_standard([(bands, np.ones((4, 4), bool))], num_bands=1) == BandStandard((7.0,), (1.0,))


def test_without_a_valid_pixel_nothing_is_changed() -> None:
    nothing = (np.ones((2, 3, 3), np.float32), np.zeros((3, 3), bool))
    assert measure_standard([nothing], num_bands=2) == BandStandard((0.0, 0.0), (1.0, 1.0))


def test_invalid_zero_outliers_clipped() -> None:
    bands = np.array([[[10.0, 12.0], [1e9, np.nan]]], np.float32)
    valid = np.array([[True, True], [True, False]])
    shown = BandStandard((10.0,), (2.0,)).apply(bands, valid)
    assert shown.dtype == np.float16
    assert shown.tolist() == [[[0.0, 1.0], [LIMIT, 0.0]]]


def test_it_survives_being_written_down() -> None:
    standard = BandStandard((0.1, 2.0), (3.0, 1 / 3))
    assert BandStandard.from_dict(standard.to_dict()) == standard
