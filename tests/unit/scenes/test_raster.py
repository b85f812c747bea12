from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from errors import refused
from unchoke.core.boxes import Box
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.raster import block_rows, raw_dtype, read_box, read_label
from unchoke.scenes.scene_facts import IGNORE, BandFile, Scene

CORNER = (500_000.0, 4_000_000.0)


@pytest.fixture
def pool():
    pool = HandlePool(16)
    yield pool
    pool.close()


def scene_of(*paths, label=None):
    return Scene("scene", tuple(BandFile(f"B{number}", path) for number, path in enumerate(paths, start=1)), label=label)


def whole(facts):
    return Box(0, 0, facts.grid.height, facts.grid.width)


def test_bands_of_one_grid_are_read_as_they_are(make_raster, noise, pool):
    first, second = noise(20, 30), noise(20, 30, seed=1)
    facts = inspect_scene(scene_of(make_raster("a.tif", first), make_raster("b.tif", second)), pool=pool)
    bands, valid = read_box(facts, whole(facts), pool=pool)
    assert (facts.grid.width, facts.grid.height) == (30, 20)
    assert facts.grid.transform == (10.0, 0.0, *CORNER[:1], 0.0, -10.0, CORNER[1])
    assert "32616" in facts.grid.crs
    assert facts.band_names == ("B1", "B2")
    assert not any(band.warped for band in facts.bands)
    assert bands.dtype == np.float32
    assert (bands == np.stack([first, second])).all()
    assert valid.all()


def test_box_beyond_scene_is_zero_and_invalid(make_raster, noise, pool):
    pixels = noise(20, 30)
    facts = inspect_scene(scene_of(make_raster("a.tif", pixels)), pool=pool)
    bands, valid = read_box(facts, Box(15, 25, 10, 10), pool=pool)
    assert (bands[0, :5, :5] == pixels[15:, 25:]).all()
    assert valid[:5, :5].all() and valid.sum() == 25
    assert not bands[0, 5:].any() and not bands[0, :, 5:].any()
    far, none = read_box(facts, Box(40, 40, 4, 4), pool=pool)
    assert not far.any() and not none.any()


def test_the_result_may_be_given_and_must_fit(make_raster, noise, pool):
    pixels = noise(20, 30)
    facts = inspect_scene(scene_of(make_raster("a.tif", pixels)), pool=pool)
    out = np.full((1, 4, 4), 7, np.float32)
    bands, _ = read_box(facts, Box(2, 3, 4, 4), pool=pool, out=out)
    assert bands is out and (out[0] == pixels[2:6, 3:7]).all()
    with pytest.raises(ValueError, match=r"\(1, 4, 4\).*\(1, 4, 5\)"):
        read_box(facts, Box(2, 3, 4, 5), pool=pool, out=out)


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
def test_nodata_in_any_band_makes_a_pixel_not_valid(make_raster, noise, pool, dtype):
    first, second = noise(6, 6, dtype=dtype), noise(6, 6, seed=1, dtype=dtype)
    first[0, 0] = second[1, 1] = 0
    paths = [make_raster("a.tif", first, nodata=0), make_raster("b.tif", second, nodata=0)]
    bands, valid = read_box(facts := inspect_scene(scene_of(*paths), pool=pool), whole(facts), pool=pool)
    assert not valid[0, 0] and not valid[1, 1] and valid.sum() == 34
    assert not bands[:, 0, 0].any() and not bands[:, 1, 1].any(), "nothing is left of a pixel that is not valid"


def test_nan_invalid_large_integer_valid(make_raster, pool):
    floats = np.ones((2, 2), np.float32)
    floats[0, 0] = np.nan
    big = np.array([[2**24, 2**24 + 1], [5, 6]], np.int32)  # the same number in float32
    paths = [make_raster("a.tif", floats), make_raster("b.tif", big, nodata=2**24 + 1)]
    _, valid = read_box(facts := inspect_scene(scene_of(*paths), pool=pool), whole(facts), pool=pool)
    assert valid.tolist() == [[False, False], [True, True]]


def test_all_nodata_reads_as_nothing_valid(make_raster, pool):
    path = make_raster("a.tif", np.zeros((5, 5), np.uint16), nodata=0)
    bands, valid = read_box(facts := inspect_scene(scene_of(path), pool=pool), whole(facts), pool=pool)
    assert not valid.any() and not bands.any()


def test_an_alpha_band_is_a_mask_and_no_band(make_raster, noise, pool):
    from rasterio.enums import ColorInterp

    pixels = noise(4, 5, 6, dtype="uint8", high=200)
    pixels[3] = 255
    pixels[3, 2, 2] = 0
    path = make_raster("rgba.tif", pixels, photometric="RGB", alpha="YES")
    facts = inspect_scene(Scene("s", file=path), pool=pool)
    _, valid = read_box(facts, whole(facts), pool=pool)
    with pool.open(path) as dataset:
        assert dataset.colorinterp[3] == ColorInterp.alpha
    assert facts.band_names == ("b1", "b2", "b3")
    assert not valid[2, 2] and valid.sum() == 29


def test_scale_and_offset_or_raw_values(make_raster, noise, pool):
    pixels, other = noise(4, 4), noise(4, 4, dtype="int16")
    paths = [make_raster("a.tif", pixels, scales=(0.0001,), offsets=(-0.1,)), make_raster("b.tif", other)]
    facts = inspect_scene(scene_of(*paths), pool=pool)
    physical, _ = read_box(facts, whole(facts), pool=pool)
    raw, _ = read_box(facts, whole(facts), pool=pool, dtype="raw")
    assert np.allclose(physical[0], pixels * 0.0001 - 0.1, atol=1e-6)
    assert (physical[1] == other).all()
    assert raw.dtype == raw_dtype(facts) == np.int32
    assert (raw[0] == pixels).all() and (raw[1] == other).all()


def test_multi_band_file_band_names(make_raster, noise, pool):
    pixels = noise(4, 6, 6)
    described = make_raster("named.tif", pixels, descriptions=("blue", "green", "red", "nir"))
    plain = make_raster("plain.tif", pixels)
    assert inspect_scene(Scene("s", file=described), pool=pool).band_names == ("blue", "green", "red", "nir")
    for bands in (("nir", "green"), ("4", "2"), ("b4", "B2")):
        facts = inspect_scene(Scene("s", file=described), pool=pool, bands=bands)
        assert facts.band_names == ("nir", "green")
        assert (read_box(facts, whole(facts), pool=pool)[0] == pixels[[3, 1]]).all()
    assert inspect_scene(Scene("s", file=plain), pool=pool, bands=("B03",)).band_names == ("b3",)
    with refused("no-such-band", "b9", "b1,b2,b3,b4"):
        inspect_scene(Scene("s", file=plain), pool=pool, bands=("b9",))


def test_interleaving_gives_same_pixels(make_raster, noise, pool):
    pixels = noise(3, 40, 40)
    paths = [
        make_raster(f"{kind}.tif", pixels, interleave=kind, tiled=True, blockxsize=16, blockysize=16)
        for kind in ("band", "pixel")
    ]
    read = []
    for path in paths:
        facts = inspect_scene(Scene("s", file=path), pool=pool)
        read.append(read_box(facts, Box(5, 7, 20, 30), pool=pool)[0])
    assert (read[0] == read[1]).all() and (read[0] == pixels[:, 5:25, 7:37]).all()


@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic", "average"])
@pytest.mark.parametrize("grid", ["finest", "coarsest", "7.5"])
def test_resampled_box_is_part_of_whole(make_raster, noise, pool, resampling, grid):
    holed = noise(15, 17, seed=2)
    holed[3:5, 4:9] = 0
    paths = [
        make_raster("fine.tif", noise(60, 66), pixel=10.0),
        make_raster("coarse.tif", holed, pixel=40.0, corner=(CORNER[0] - 20, CORNER[1] + 10), nodata=0),
    ]
    facts = inspect_scene(scene_of(*paths), pool=pool, grid=grid, resampling=resampling)
    bands, valid = read_box(facts, whole(facts), pool=pool)
    assert 0 < (~valid).sum() < valid.size
    for box in (Box(0, 0, 5, 5), Box(3, 4, 9, 8), Box(facts.grid.height - 4, facts.grid.width - 6, 4, 6), Box(7, 2, 1, 1)):
        part, part_valid = read_box(facts, box, pool=pool)
        assert (part == bands[:, box.top : box.bottom, box.left : box.right]).all()
        assert (part_valid == valid[box.top : box.bottom, box.left : box.right]).all()


@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic", "average"])
@pytest.mark.parametrize("grid", ["finest", "coarsest"])
def test_resampling_agrees_with_gdal_away_from_the_edges(make_raster, pool, resampling, grid):
    from rasterio.enums import Resampling
    from rasterio.transform import Affine
    from rasterio.vrt import WarpedVRT

    rows, columns = np.mgrid[0:30, 0:30]
    smooth = (1000 + 500 * np.sin(rows / 5) + 300 * np.cos(columns / 4)).astype(np.float32)
    fine = (1000 + 500 * np.sin(np.mgrid[0:90, 0:90][0] / 15)).astype(np.float32)
    paths = [make_raster("fine.tif", fine, pixel=10.0), make_raster("coarse.tif", smooth, pixel=30.0)]
    facts = inspect_scene(scene_of(*paths), pool=pool, grid=grid, resampling=resampling)
    ours, _ = read_box(facts, whole(facts), pool=pool)
    warped = [position for position, band in enumerate(facts.bands) if band.warped]
    assert warped == [1 if grid == "finest" else 0]
    place = {"transform": Affine(*facts.grid.transform), "width": facts.grid.width, "height": facts.grid.height}
    with (
        pool.open(facts.bands[warped[0]].path) as source,
        WarpedVRT(source, **place, resampling=Resampling[resampling]) as theirs,
    ):
        expected = theirs.read(1)
    inner = np.s_[6:-6, 6:-6]
    assert np.abs(ours[warped[0]][inner] - expected[inner]).max() < 0.05


def test_resampled_integers_are_rounded_when_raw(make_raster, pool):
    paths = [
        make_raster("fine.tif", np.ones((4, 4), np.uint8), pixel=10.0),
        make_raster("coarse.tif", np.array([[0, 255], [0, 255]], np.uint8), pixel=20.0),
    ]
    facts = inspect_scene(scene_of(*paths), pool=pool)
    raw, _ = read_box(facts, whole(facts), pool=pool, dtype="raw")
    assert raw.dtype == np.uint8
    assert raw[1, 0].tolist() == [0, 64, 191, 255]


def test_half_pixel_shift_keeps_band_grid(make_raster, noise, pool):
    """As Landsat's panchromatic band lies on the others."""
    paths = [
        make_raster("ms.tif", noise(10, 12), pixel=30.0, corner=(CORNER[0] + 7.5, CORNER[1] - 7.5)),
        make_raster("pan.tif", noise(21, 24), pixel=15.0),
    ]
    facts = inspect_scene(scene_of(*paths), pool=pool)
    assert (facts.grid.width, facts.grid.height) == (24, 21)
    assert [band.warped for band in facts.bands] == [True, False]
    assert read_box(facts, whole(facts), pool=pool)[1].all()


def test_scene_is_common_cover_of_bands(make_raster, noise, pool):
    left, right = noise(20, 20), noise(20, 20, seed=1)
    paths = [make_raster("a.tif", left), make_raster("b.tif", right, corner=(CORNER[0] + 50, CORNER[1] - 30))]
    facts = inspect_scene(scene_of(*paths), pool=pool)
    bands, valid = read_box(facts, whole(facts), pool=pool)
    assert (facts.grid.width, facts.grid.height) == (15, 17)
    assert facts.grid.transform[2] == CORNER[0] + 50 and facts.grid.transform[5] == CORNER[1] - 30
    assert [band.origin for band in facts.bands] == [(3, 5), (0, 0)]
    assert not any(band.warped for band in facts.bands)
    assert (bands[0] == left[3:, 5:]).all() and (bands[1] == right[:17, :15]).all() and valid.all()


def test_the_grid_may_be_a_band_or_a_pixel_size(make_raster, noise, pool):
    paths = [make_raster("a.tif", noise(30, 30), pixel=10.0), make_raster("b.tif", noise(15, 15), pixel=20.0)]
    sizes = {}
    for grid in ("finest", "coarsest", "B01", "B2", "15"):
        facts = inspect_scene(scene_of(*paths), pool=pool, grid=grid)
        sizes[grid] = (facts.grid.width, facts.grid.transform[0])
    assert sizes == {"finest": (30, 10), "coarsest": (15, 20), "B01": (30, 10), "B2": (15, 20), "15": (20, 15)}
    with refused("bad-grid", "--grid B7"):
        inspect_scene(scene_of(*paths), pool=pool, grid="B7")


def test_files_without_a_place_are_aligned_by_their_sizes(make_raster, noise, pool):
    fine, coarse = noise(12, 16), noise(6, 8, seed=1)
    paths = [make_raster("a.tif", fine, crs=None), make_raster("b.tif", coarse, crs=None)]
    facts = inspect_scene(scene_of(*paths), pool=pool, resampling="nearest")
    bands, _ = read_box(facts, whole(facts), pool=pool)
    assert facts.grid.crs == ""
    assert (bands[1] == coarse.repeat(2, axis=0).repeat(2, axis=1)).all()
    with refused("band-sizes-do-not-divide", "c.tif", "8×5", "16×12"):
        inspect_scene(scene_of(paths[0], make_raster("c.tif", noise(5, 8), crs=None)), pool=pool)


def test_jpeg_2000_is_read_like_any_other(make_raster, noise, pool):
    pixels = noise(64, 70)
    path = make_raster("a.jp2", pixels, driver="JP2OpenJPEG", QUALITY="100", REVERSIBLE="YES", YCBCR420="NO")
    facts = inspect_scene(Scene("s", file=path), pool=pool)
    assert (read_box(facts, Box(10, 20, 30, 40), pool=pool)[0][0] == pixels[10:40, 20:60]).all()


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_turned_photo_is_read_upright(tmp_path, pool, suffix):
    from unchoke.pixels.image import read_image

    exif = Image.Exif()
    exif[0x0112] = 6
    stored = np.zeros((20, 32, 3), np.uint8)
    stored[:, :8] = (250, 20, 20)
    file = str(tmp_path / f"photo.{suffix}")
    Image.fromarray(stored).save(file, exif=exif)
    facts = inspect_scene(Scene("s", file=file), pool=pool)
    upright = read_image(file)
    bands, valid = read_box(facts, Box(4, 2, 10, 12), pool=pool)
    assert (facts.grid.width, facts.grid.height) == (20, 32)
    assert (bands == upright[4:14, 2:14].transpose(2, 0, 1)).all() and valid.all()


def test_a_photo_by_palette_is_read_in_its_colours(tmp_path, pool):
    stored = np.zeros((8, 8, 3), np.uint8)
    stored[:4] = (10, 200, 30)
    Image.fromarray(stored).quantize(4).save(tmp_path / "p.png")
    facts = inspect_scene(Scene("s", file=str(tmp_path / "p.png")), pool=pool)
    assert (read_box(facts, whole(facts), pool=pool)[0] == stored.transpose(2, 0, 1)).all()


def test_strips_follow_the_blocks_of_every_band(make_raster, noise, pool):
    tiled = {"tiled": True, "blockxsize": 16, "blockysize": 16}
    paths = [
        make_raster("tiled.tif", noise(96, 96), **tiled),
        make_raster("striped.tif", noise(96, 96), blockysize=6),
        make_raster("coarse.tif", noise(48, 48), pixel=20.0, **tiled),
    ]
    facts = inspect_scene(scene_of(*paths), pool=pool)
    assert [band.block for band in facts.bands] == [(16, 16), (6, 96), (32, 32)]
    assert block_rows(facts) == 96
    assert block_rows(inspect_scene(scene_of(paths[0]), pool=pool)) == 16


def test_content_changes_with_files_not_folder(make_raster, noise, pool, tmp_path):
    pixels = noise(8, 8)
    scene = scene_of(make_raster("one/a.tif", pixels), label=make_raster("one/label.tif", pixels.astype(np.uint8)))
    first = inspect_scene(scene, pool=pool).content
    os.utime(scene.label, ns=(10**9, 10**9))
    changed = inspect_scene(scene, pool=pool).content
    assert first != changed
    (tmp_path / "one").rename(tmp_path / "two")
    moved = Scene("scene", (BandFile("B1", str(tmp_path / "two/a.tif")),), label=str(tmp_path / "two/label.tif"))
    assert inspect_scene(moved, pool=pool).content == changed


def label_of(facts, pool, **options):
    return read_label(facts, whole(facts), pool=pool, **options)


def test_a_label_of_the_same_grid_is_read_as_it_is(make_raster, noise, pool):
    classes = noise(10, 10, dtype="uint8", high=4)
    classes[0, 0] = 9
    scene = scene_of(make_raster("a.tif", noise(10, 10)), label=make_raster("label.tif", classes, nodata=9))
    facts = inspect_scene(scene, pool=pool)
    labels = label_of(facts, pool)
    assert labels.dtype == np.uint8 and labels[0, 0] == IGNORE
    assert (labels.ravel()[1:] == classes.ravel()[1:]).all()
    beyond = read_label(facts, Box(8, 8, 4, 4), pool=pool)
    assert (beyond[2:] == IGNORE).all() and (beyond[:2, :2] == classes[8:, 8:]).all()


def test_unplaced_label_fits_equal_size_only(make_raster, noise, pool, tmp_path):
    classes = noise(10, 12, dtype="uint8", high=3)
    Image.fromarray(classes).save(tmp_path / "mask.png")
    bands = make_raster("a.tif", noise(10, 12))
    assert (label_of(inspect_scene(scene_of(bands, label=str(tmp_path / "mask.png")), pool=pool), pool) == classes).all()
    with refused("label-does-not-fit", "mask.png", "12×10", "11×10"):
        inspect_scene(scene_of(make_raster("b.tif", noise(10, 11)), label=str(tmp_path / "mask.png")), pool=pool)


def test_a_label_by_palette_holds_its_class_numbers(noise, make_raster, pool, tmp_path):
    classes = noise(6, 6, dtype="uint8", high=3)
    image = Image.fromarray(classes, mode="P")
    image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    image.save(tmp_path / "mask.png")
    facts = inspect_scene(scene_of(make_raster("a.tif", noise(6, 6), crs=None), label=str(tmp_path / "mask.png")), pool=pool)
    assert (label_of(facts, pool) == classes).all()


def test_label_of_other_pixel_size_nearest(make_raster, noise, pool):
    classes = noise(4, 4, dtype="uint8", high=5)
    label = make_raster("label.tif", classes, pixel=20.0, corner=(CORNER[0] + 20, CORNER[1]))
    facts = inspect_scene(scene_of(make_raster("a.tif", noise(10, 10)), label=label), pool=pool)
    labels = label_of(facts, pool)
    assert (labels[:8, 2:] == classes.repeat(2, axis=0).repeat(2, axis=1)).all()
    assert (labels[:, :2] == IGNORE).all() and (labels[8:] == IGNORE).all()
    assert (read_label(facts, Box(3, 4, 4, 3), pool=pool) == labels[3:7, 4:7]).all()


def test_label_in_other_crs_warped(make_raster, noise, pool):
    from rasterio.warp import transform_bounds

    left, low, right, high = transform_bounds("EPSG:32616", "EPSG:4326", CORNER[0], CORNER[1] - 400, CORNER[0] + 400, CORNER[1])
    step = (right - left) / 40
    classes = np.zeros((60, 60), np.uint8)
    classes[:, 20:] = 1
    label = make_raster("label.tif", classes, pixel=step, corner=(left, high + 5 * step), crs="EPSG:4326")
    facts = inspect_scene(scene_of(make_raster("a.tif", noise(40, 40)), label=label), pool=pool)
    labels = label_of(facts, pool)
    assert (labels[:, 2:18] == 0).all() and (labels[:, 23:] == 1).all()
    assert (read_label(facts, Box(11, 13, 9, 14), pool=pool) == labels[11:20, 13:27]).all()
    assert low < high


def test_wide_labels_out_of_range_refused(make_raster, noise, pool):
    classes = noise(4, 4, dtype="int16", high=4)
    classes[1, 1] = -1
    label = make_raster("label.tif", classes)
    facts = inspect_scene(scene_of(make_raster("a.tif", noise(4, 4)), label=label), pool=pool)
    assert label_of(facts, pool, ignore=-1)[1, 1] == IGNORE
    with refused("label-out-of-range", "--ignore -1") as caught:
        label_of(facts, pool)
    assert caught.value.path == label


def test_a_label_of_several_bands_is_refused(make_raster, noise, pool):
    label = make_raster("label.tif", noise(3, 4, 4, dtype="uint8", high=255))
    with refused("label-not-one-band", "label.tif", "3"):
        inspect_scene(scene_of(make_raster("a.tif", noise(4, 4)), label=label), pool=pool)


def test_a_scene_of_one_pixel_is_a_scene(make_raster, pool):
    path = make_raster("a.tif", np.array([[42]], np.uint16))
    facts = inspect_scene(scene_of(path, label=make_raster("l.tif", np.array([[1]], np.uint8))), pool=pool)
    bands, valid = read_box(facts, Box(0, 0, 4, 4), pool=pool)
    assert bands[0, 0, 0] == 42 and valid.sum() == 1
    assert facts.num_pixels == block_rows(facts) == 1
    assert label_of(facts, pool).tolist() == [[1]]


def test_facts_travel_to_other_processes(make_raster, noise, pool):
    import pickle

    facts = inspect_scene(scene_of(make_raster("a.tif", noise(8, 8))), pool=pool)
    arrived = pickle.loads(pickle.dumps(facts))
    assert arrived == facts and Path(arrived.bands[0].path).exists()
