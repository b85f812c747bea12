"""Finished bands on disk: read back as they were, or missing if damaged or of something else; and the files made of them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.crs import CRS

from errors import refused
from unchoke.core.boxes import Box
from unchoke.masks.mask_pictures import class_colours
from unchoke.masks.stitch import BandValues, StitchPlan
from unchoke.masks.write_masks import NO_CLASS, MaskFiles, MaskPart, PartStore, plan_files, to_part, write_masks
from unchoke.scenes.scene_facts import BandFile, Grid, Scene, SceneFacts

BAND = Box(512, 4096, 6, 9)


def make_part(seed: int = 0) -> MaskPart:
    values = np.random.default_rng(seed).random((3, BAND.height, BAND.width), np.float32)
    return to_part(values, probabilities=True)


def open_store(folder: Path, *, made_from: str = "abc", probabilities: bool = True) -> PartStore:
    return PartStore(folder / "scene", made_from=made_from, probabilities=probabilities)


def test_the_likeliest_class_wins_and_of_equals_the_first() -> None:
    values = np.array([[[0.2, 0.4, 0.1]], [[0.5, 0.4, 0.1]], [[0.3, 0.2, 0.8]]], np.float32)
    part = to_part(values, probabilities=True)
    assert part.classes.tolist() == [[1, 0, 2]]
    assert part.probabilities is not None
    assert part.probabilities[:, 0, 0].tolist() == [51, 127, 76]


def test_nan_has_no_class_no_probability() -> None:
    values = np.full((2, 100, 3), 0.5, np.float32)
    values[:, 70, 1] = np.nan
    values[1, 90, 2] = np.nan
    part = to_part(values, probabilities=True)
    assert part.probabilities is not None
    assert np.argwhere(part.classes == NO_CLASS).tolist() == [[70, 1], [90, 2]]
    assert (part.probabilities[:, part.classes == NO_CLASS] == NO_CLASS).all()
    assert (part.probabilities[:, part.classes != NO_CLASS] == 127).all()


def test_rounding_never_leaves_the_scale() -> None:
    part = to_part(np.array([[[1.0000002, -1e-7]], [[0.0, 1.0]]], np.float32), probabilities=True)
    assert part.probabilities is not None
    assert part.probabilities.tolist() == [[[254, 0]], [[0, 254]]]


def test_a_part_is_read_back_after_a_restart(tmp_path: Path) -> None:
    part = make_part()
    assert not open_store(tmp_path).done(BAND)
    open_store(tmp_path).save(BAND, part)
    again = open_store(tmp_path)
    assert again.done(BAND)
    found = again.load(BAND)
    np.testing.assert_array_equal(found.classes, part.classes)
    np.testing.assert_array_equal(found.probabilities, part.probabilities)


def test_a_part_made_from_something_else_counts_as_missing(tmp_path: Path) -> None:
    open_store(tmp_path).save(BAND, make_part())
    assert not open_store(tmp_path, made_from="other weights").done(BAND)
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path, made_from="other weights").load(BAND)


def test_a_part_of_another_size_counts_as_missing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    assert not store.done(BAND._replace(width=10))


@pytest.mark.parametrize("keep_share", [0.0, 0.3, 0.9])
def test_a_cut_off_part_counts_as_missing(tmp_path: Path, keep_share: float) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    data = store.file(BAND).read_bytes()
    store.file(BAND).write_bytes(data[: int(len(data) * keep_share)])
    assert not store.done(BAND)


def test_a_part_with_a_flipped_byte_counts_as_missing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    data = bytearray(store.file(BAND).read_bytes())
    place = data.index(b"classes.npy") + 60
    data[place] ^= 255
    store.file(BAND).write_bytes(bytes(data))
    assert not store.done(BAND)


def test_parts_without_probabilities_not_reused(tmp_path: Path) -> None:
    values = np.zeros((3, BAND.height, BAND.width), np.float32)
    open_store(tmp_path, probabilities=False).save(BAND, to_part(values, probabilities=False))
    assert open_store(tmp_path, probabilities=False).load(BAND).probabilities is None
    assert not open_store(tmp_path).done(BAND)


def test_removed_means_that_the_folder_is_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    store.remove()
    assert list(tmp_path.iterdir()) == []


NAMES = ("land", "water", "cloud über all")
UTM = CRS.from_epsg(32633).to_wkt()
PLAN = StitchPlan(height=1100, width=1300, patch_px=64, overlap_px=16, num_classes=3, strip_px=1024, band_px=512)
MAP = Grid(1300, 1100, (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_200_000.0), UTM)
PHOTO = Grid(1300, 1100, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), "")


def values_of(box: Box) -> BandValues:
    """Water in one rectangle, cloud along a diagonal, nothing known in the first rows."""
    rows, columns = np.mgrid[box.top : box.bottom, box.left : box.right]
    water = ((rows >= 300) & (rows < 800) & (columns >= 500) & (columns < 1200)).astype(np.float32)
    cloud = (np.abs(rows - columns) < 20) * np.float32(0.9)
    values = np.stack([np.full_like(water, 0.5), water, cloud]) / 2
    values[:, rows < 40] = np.nan
    return values.astype(np.float32)


def fill(folder: Path, plan: StitchPlan = PLAN, *, probabilities: bool = True) -> PartStore:
    parts = PartStore(folder, made_from="these", probabilities=probabilities)
    for band in plan.bands():
        parts.save(band, to_part(values_of(band), probabilities=probabilities))
    return parts


def expected() -> tuple[np.ndarray, np.ndarray]:
    part = to_part(values_of(Box(0, 0, PLAN.height, PLAN.width)), probabilities=True)
    assert part.probabilities is not None
    return part.classes, part.probabilities


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> MaskFiles:
    folder = tmp_path_factory.mktemp("masks")
    files = plan_files(folder, "scene", is_photo=False, probabilities=True)
    counts = write_masks(PLAN, fill(folder / "parts"), grid=MAP, class_names=NAMES, files=files)
    classes, _ = expected()
    assert counts == {name: int((classes == number).sum()) for number, name in enumerate(NAMES)}
    return files


def test_the_pixels_are_those_of_the_parts(written: MaskFiles) -> None:
    classes, probabilities = expected()
    assert written.probabilities is not None
    with rasterio.open(written.classes) as file:
        np.testing.assert_array_equal(file.read(1), classes)
        assert (file.nodata, file.dtypes) == (NO_CLASS, ("uint8",))
    with rasterio.open(written.probabilities) as file:
        np.testing.assert_array_equal(file.read(), probabilities)
        assert (file.nodata, file.descriptions) == (NO_CLASS, NAMES)
        assert file.scales == pytest.approx((1 / 254,) * 3)
        np.testing.assert_allclose(file.read(2)[300, 500] * file.scales[1], 0.5, atol=0.003)


def test_the_mask_lies_where_the_scene_lies(written: MaskFiles) -> None:
    for path in written.paths:
        with rasterio.open(path) as file:
            assert file.crs == CRS.from_epsg(32633)
            assert tuple(file.transform)[:6] == MAP.transform
            assert tuple(file.bounds) == (500_000, 5_200_000 - 11_000, 513_000, 5_200_000)
    with rasterio.open(written.classes) as file:
        x, y = 500_000 + 10 * 900.5, 5_200_000 - 10 * 400.5
        assert next(file.sample([(x, y)])).tolist() == [1], "water lies at row 400, column 900"
        assert next(file.sample([(x, 5_200_000 - 10 * 20.5)])).tolist() == [NO_CLASS]


def test_both_files_are_cloud_optimised(written: MaskFiles) -> None:
    for path in written.paths:
        with rasterio.open(path) as file:
            assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
            assert file.block_shapes[0] == (512, 512)
            assert file.overviews(1) == [2, 4]
            assert file.compression.name == "deflate"


def test_overviews_hold_only_present_classes(written: MaskFiles) -> None:
    with rasterio.open(written.classes) as file:
        small = file.read(1, out_shape=(275, 325))
    assert set(np.unique(small)) <= {0, 1, 2, NO_CLASS}


def test_classes_have_names_and_colours(written: MaskFiles) -> None:
    with rasterio.open(written.classes) as file:
        assert [file.tags()[f"class_{number}"] for number in range(3)] == list(NAMES)
        colours = file.colormap(1)
        assert [colours[number][:3] for number in range(3)] == class_colours(3)


@pytest.mark.skipif(shutil.which("gdalinfo") is None, reason="gdalinfo is not installed")
def test_gdalinfo_finds_the_place_too(written: MaskFiles) -> None:
    told = subprocess.run(["gdalinfo", str(written.classes)], capture_output=True, text=True, check=True).stdout
    assert "UTM zone 33N" in told
    assert "LAYOUT=COG" in told
    assert "Origin = (500000.0" in told


def test_same_parts_same_bytes_any_block_size(written: MaskFiles, tmp_path: Path) -> None:
    other = replace(PLAN, strip_px=256, band_px=768)
    for number, plan in enumerate((PLAN, other)):
        files = plan_files(tmp_path / str(number), "scene", is_photo=False, probabilities=True)
        write_masks(plan, fill(tmp_path / f"parts{number}", plan), grid=MAP, class_names=NAMES, files=files)
        assert [path.read_bytes() for path in files.paths] == [path.read_bytes() for path in written.paths]


def test_photos_become_png_with_the_same_classes(tmp_path: Path) -> None:
    files = plan_files(tmp_path, "photo", is_photo=True, probabilities=True)
    assert files.paths == [tmp_path / "photo_classes.png", tmp_path / "photo_probabilities.tif"]
    write_masks(PLAN, fill(tmp_path / "parts"), grid=PHOTO, class_names=NAMES, files=files)
    classes, probabilities = expected()
    with Image.open(files.classes) as picture:
        np.testing.assert_array_equal(np.asarray(picture), classes)
        assert picture.mode == "P"
    with rasterio.open(files.probabilities) as file:
        np.testing.assert_array_equal(file.read(), probabilities)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "photo_classes.png", "photo_probabilities.tif"]


def test_without_probabilities_there_is_one_file(tmp_path: Path) -> None:
    files = plan_files(tmp_path, "scene", is_photo=False, probabilities=False)
    assert files.probabilities is None
    write_masks(PLAN, fill(tmp_path / "parts", probabilities=False), grid=MAP, class_names=NAMES, files=files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "scene_classes.tif"]


def test_a_photo_is_what_has_no_place_at_all() -> None:
    def is_photo(grid: Grid, *files: str) -> bool:
        bands = tuple(BandFile(f"B{number}", file) for number, file in enumerate(files))
        return SceneFacts(Scene("a", bands), grid, (), "").is_photo

    assert is_photo(PHOTO)
    assert not is_photo(Grid(3, 3, MAP.transform, ""))
    assert not is_photo(Grid(3, 3, PHOTO.transform, UTM))
    assert is_photo(PHOTO, "a/leaf.jpg")
    assert not is_photo(PHOTO, "a/B2.TIF", "a/B3.tif"), "whoever gives TIFFs gets a TIFF back"


def test_a_scene_of_one_pixel_has_a_mask_of_one_pixel(tmp_path: Path) -> None:
    plan = StitchPlan(1, 1, 32, 8, 3, 512, 512)
    grid = Grid(1, 1, MAP.transform, UTM)
    parts = PartStore(tmp_path / "parts", made_from="these", probabilities=True)
    parts.save(Box(0, 0, 1, 1), to_part(np.array([[[0.1]], [[0.2]], [[0.7]]], np.float32), probabilities=True))
    files = plan_files(tmp_path, "dot", is_photo=False, probabilities=True)
    write_masks(plan, parts, grid=grid, class_names=NAMES, files=files)
    with rasterio.open(files.classes) as file:
        assert file.read().tolist() == [[[2]]]
        assert tuple(file.transform)[:6] == MAP.transform


def test_file_size_limit_leaves_no_half_mask(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    import signal

    random = np.random.default_rng(0).random((3, 1100, 1300), np.float32)
    parts = PartStore(tmp_path / "parts", made_from="these", probabilities=True)
    for band in PLAN.bands():
        part = random[:, band.top : band.bottom, band.left : band.right]
        parts.save(band, to_part(part, probabilities=True))
    files = plan_files(tmp_path, "scene", is_photo=False, probabilities=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heeded = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, before[1]))
    try:
        with refused("mask-not-written", "scene_classes.tif"):
            write_masks(PLAN, parts, grid=MAP, class_names=NAMES, files=files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heeded)
    assert files.probabilities is not None
    assert not files.probabilities.exists()
    write_masks(PLAN, parts, grid=MAP, class_names=NAMES, files=files)
    with rasterio.open(files.probabilities) as file:
        assert file.checksum(1) > 0
