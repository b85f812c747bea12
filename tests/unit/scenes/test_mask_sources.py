"""Where classes come from: a label raster, a formula, polygons, or nowhere."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import pytest
import shapely
from numpy.typing import NDArray
from rasterio.warp import transform

from errors import refused
from unchoke.core.boxes import Box, plan_boxes
from unchoke.core.settings import Settings
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import (
    ExpressionMask,
    LabelMask,
    MaskSource,
    PolygonMask,
    Shapes,
    beside,
    burn,
    check_polygons,
    choose_mask,
    digest_polygons,
    files_to_send,
    load_polygons,
)
from unchoke.scenes.raster import read_box
from unchoke.scenes.scene_facts import IGNORE, SceneFacts

MakeScene = Callable[..., SceneFacts]


def mask_of(source: MaskSource, facts: SceneFacts, pool: HandlePool) -> np.ndarray:
    whole = Box(0, 0, facts.grid.height, facts.grid.width)
    bands, valid = read_box(facts, whole, pool=pool)
    return source.mask(facts, whole, bands, valid, pool)


def test_label_raster_none_where_invalid(make_scene: MakeScene, pool: HandlePool) -> None:
    pixels = np.full((1, 3, 3), 5, np.uint16)
    pixels[0, 0, 0] = 9
    label = np.array([[1, 2, 3], [0, 7, 0], [1, 1, 1]], np.uint8)
    facts = make_scene(pixels, label=label, nodata=9)
    assert mask_of(LabelMask(), facts, pool).tolist() == [[IGNORE, 2, 3], [0, 7, 0], [1, 1, 1]]
    assert mask_of(LabelMask(ignore=7), facts, pool)[1, 1] == IGNORE


def test_a_scene_without_its_label_raster_is_unlabelled(make_scene: MakeScene, pool: HandlePool) -> None:
    assert (mask_of(LabelMask(), make_scene((1, 3, 3)), pool) == IGNORE).all()


def test_a_formula_gives_one_and_zero(make_scene: MakeScene, pool: HandlePool) -> None:
    pixels = np.array([[[1, 5, 0]], [[2, 3, 4]]], np.uint16)
    facts = make_scene(pixels, nodata=0)
    assert mask_of(ExpressionMask("B2 > B3", facts.band_names), facts, pool).tolist() == [[0, 1, IGNORE]]


def test_no_mask_asked_and_labels_found() -> None:
    assert choose_mask(Settings(), band_names=["B2"], labelled=False) is None
    assert choose_mask(Settings(ignore=9), band_names=["B2"], labelled=True) == LabelMask(9)


def test_a_formula_is_checked_when_it_is_chosen() -> None:
    assert choose_mask(Settings(mask="b2 > 4"), band_names=["B2"], labelled=False) == ExpressionMask("b2 > 4", ("B2",))
    with refused("bad-mask-formula", "B9"):
        choose_mask(Settings(mask="B9 > 4"), band_names=["B2"], labelled=False)


def test_two_sources_at_once_are_refused() -> None:
    with refused("options-conflict", "--label cloud.tif", "--mask B2 > 1"):
        choose_mask(Settings(label="cloud.tif", mask="B2 > 1"), band_names=["B2"], labelled=True)


def test_sources_pickle_and_describe_themselves(tmp_path: Path) -> None:
    file = tmp_path / "areas.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": []}))
    chosen = choose_mask(Settings(polygons=str(file)), band_names=["B2"], labelled=False)
    assert isinstance(chosen, PolygonMask)
    for source in (LabelMask(3), ExpressionMask("B2 > 1", ("B2",)), chosen):
        assert pickle.loads(pickle.dumps(source)) == source
        assert json.loads(json.dumps(source.describe())) == source.describe()


UTM = "EPSG:32633"
FORMATS = {"areas.geojson": "GeoJSON", "areas.gpkg": "GPKG", "areas.shp": "ESRI Shapefile"}


def in_map(column: float, row: float) -> tuple[float, float]:
    return 500_000 + 30 * column, 4_000_000 - 30 * row


def square(column: float, row: float, side: float) -> Any:
    corners = [(column, row), (column + side, row), (column + side, row + side), (column, row + side)]
    return shapely.Polygon([in_map(*corner) for corner in corners])


def write_areas(
    file: Path, shapes: list[Any], *, values: list[Any] | None = None, crs: str | None = UTM, kind: str = "Polygon"
) -> Path:
    fields = {} if values is None else {"kind": np.array(values)}
    pyogrio.raw.write(
        file,
        np.array([shapely.to_wkb(shape) for shape in shapes], dtype=object),
        list(fields.values()),
        list(fields),
        crs=crs,
        geometry_type=kind,
        driver=FORMATS[file.name],
    )
    return file


def load(file: Path, facts: SceneFacts, *, field: str | None = None) -> Shapes:
    return load_polygons(str(file), class_field=field, content=digest_polygons(file), grid=facts.grid)


def whole(file: Path, facts: SceneFacts, *, field: str | None = None) -> NDArray[np.uint8]:
    return burn(load(file, facts, field=field), Box(0, 0, facts.grid.height, facts.grid.width))


@pytest.fixture
def facts(make_scene: MakeScene) -> SceneFacts:
    return make_scene((1, 40, 50))


@pytest.mark.parametrize("name", FORMATS)
def test_vector_formats_later_shapes_on_top(name: str, tmp_path: Path, facts: SceneFacts) -> None:
    file = write_areas(tmp_path / name, [square(5, 4, 10), square(10, 9, 10)], values=[3, 7])
    check_polygons(file, class_field="kind")
    expected = np.zeros((40, 50), np.uint8)
    expected[4:14, 5:15] = 3
    expected[9:19, 10:20] = 7
    np.testing.assert_array_equal(whole(file, facts, field="kind"), expected)
    np.testing.assert_array_equal(whole(file, facts), expected > 0)


def test_windows_agree_with_the_whole(tmp_path: Path, facts: SceneFacts) -> None:
    random = np.random.default_rng(4)
    shapes = []
    for _ in range(6):
        angles = np.sort(random.uniform(0, 2 * np.pi, 9))
        centre, reach = random.uniform(5, 45, 2), random.uniform(3, 15, 9)
        corners = zip(centre[0] + reach * np.cos(angles), centre[1] + reach * np.sin(angles), strict=True)
        shapes.append(shapely.Polygon([in_map(*corner) for corner in corners]))
    shapes.append(square(10.5, 10.5, 12))
    loaded = load(write_areas(tmp_path / "areas.gpkg", shapes, values=list(range(1, 8))), facts, field="kind")
    complete = burn(loaded, Box(0, 0, 40, 50))
    assert len(np.unique(complete)) > 4
    for box in plan_boxes(40, 50, size_px=13, overlap_px=4):
        np.testing.assert_array_equal(burn(loaded, box), complete[box.top : box.bottom, box.left : box.right])


def test_another_coordinate_system_is_brought_to_the_scenes(tmp_path: Path, facts: SceneFacts) -> None:
    corners = np.array(square(5, 4, 10).exterior.coords)
    longitude, latitude = transform(UTM, "EPSG:4326", corners[:, 0], corners[:, 1])
    file = write_areas(tmp_path / "areas.geojson", [shapely.Polygon(zip(longitude, latitude, strict=True))], crs="EPSG:4326")
    expected = np.zeros((40, 50), np.uint8)
    expected[4:14, 5:15] = 1
    np.testing.assert_array_equal(whole(file, facts), expected)


def test_polygons_elsewhere_leave_the_scene_empty(tmp_path: Path, facts: SceneFacts) -> None:
    assert not whole(write_areas(tmp_path / "areas.gpkg", [square(900, 900, 5)]), facts).any()


def test_a_missing_file_field_or_class_is_named(tmp_path: Path) -> None:
    with refused("no-such-file", str(tmp_path / "none.gpkg")):
        check_polygons(tmp_path / "none.gpkg", class_field=None)
    file = write_areas(tmp_path / "areas.gpkg", [square(1, 1, 3)], values=["forest"])
    with refused("no-such-field", "'cover'", "--polygon-class kind"):
        check_polygons(file, class_field="cover")
    with refused("bad-polygon-class", "'kind'", str(file), "'forest'"):
        check_polygons(file, class_field="kind")


def test_what_is_no_vector_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "areas.geojson").write_text("no shapes here")
    with refused("unreadable-polygons", "areas.geojson"):
        check_polygons(tmp_path / "areas.geojson", class_field=None)


def test_lines_and_points_are_refused(tmp_path: Path, facts: SceneFacts) -> None:
    file = write_areas(tmp_path / "areas.gpkg", [shapely.Point(in_map(3, 3))], kind="Point")
    with refused("not-polygons", "Point"):
        whole(file, facts)


def test_no_crs_on_one_side_refused(tmp_path: Path, facts: SceneFacts) -> None:
    file = write_areas(tmp_path / "areas.shp", [square(1, 1, 3)], crs=None)
    with refused("polygons-not-placed") as caught:
        whole(file, facts)
    assert caught.value.path == str(file)


def test_a_file_that_changed_since_it_was_chosen_is_refused(tmp_path: Path, facts: SceneFacts, pool: HandlePool) -> None:
    file = write_areas(tmp_path / "areas.gpkg", [square(1, 1, 3)])
    before = digest_polygons(file)
    file.write_bytes(file.read_bytes() + b" ")
    with refused("polygons-changed", str(file)):
        load_polygons(str(file), class_field=None, content=before, grid=facts.grid)


def test_sidecars_belong_to_their_raster(tmp_path: Path) -> None:
    for name in ("a.tif", "a.tif.aux.xml", "a.tif.ovr", "a.TFW", "a.prj", "a.jpg", "a.zip", "ab.tif", "b.tif.aux.xml"):
        (tmp_path / name).touch()
    assert {Path(file).name for file in beside(str(tmp_path / "a.tif"))} == {"a.tif.aux.xml", "a.tif.ovr", "a.TFW", "a.prj"}


def test_files_to_send_with_label_and_polygons(make_scene, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name in ("p.shp", "p.dbf", "p.shx", "p.txt"):
        (tmp_path / name).touch()
    facts = make_scene((2, 40, 40), label=np.zeros((40, 40), np.uint8))
    found = files_to_send(facts, PolygonMask(str(tmp_path / "p.shp"), None, "content"))
    assert found.key == facts.scene_id
    assert {Path(file.name).name for file in found.files} == {"B2.tif", "B3.tif", "label.tif", "p.shp", "p.dbf", "p.shx"}
