"""The tile manifest: the same tiles give the same bytes, and a plain CSV reader gets back what was written."""

from __future__ import annotations

import csv
from pathlib import Path

from unchoke.core.boxes import Box
from unchoke.scenes.tiling.tile_outcome import TileRow, render_tile_manifest, save_tile_manifest, short_crs, unnamed_classes


def row(scene: str, top: int, left: int, **changed: object) -> TileRow:
    values: dict[str, object] = {
        "tile_id": f"{scene}_{top}_{left}",
        "path": f"{scene}/x/{top}_{left}.npz",
        "scene": scene,
        "row": top // 8,
        "col": left // 8,
        "box": Box(top, left, 8, 8),
        "valid_share": 0.5,
        "split": "train",
        "block": "0_0",
        "crs": "EPSG:32633",
        "transform": (10.0, 0.0, 500000.1, 0.0, -10.0, 4600000.0),
        "class_counts": {0: 30, 1: 2},
    }
    return TileRow(**{**values, **changed})  # type: ignore[arg-type]


def test_rows_are_sorted_whatever_order_they_come_in() -> None:
    rows = [row("b", 0, 0), row("a", 8, 0), row("a", 0, 16), row("a", 0, 8)]
    written = render_tile_manifest(rows)
    assert written == render_tile_manifest(rows[::-1])
    places = [(one["scene"], int(one["top"]), int(one["left"])) for one in csv.DictReader(written.decode().splitlines())]
    assert places == sorted(places)


def test_a_plain_reader_gets_back_what_was_written(tmp_path: Path) -> None:
    file = save_tile_manifest(tmp_path, [row("a, b", 0, 0)], class_names=("dry", "wet", "ice"))
    with file.open(newline="") as text:
        (one,) = csv.DictReader(text)
    assert one["scene"] == "a, b"
    assert [float(number) for number in one["transform"].split(",")] == [10, 0, 500000.1, 0, -10, 4600000]
    assert [one[f"mask_{name}_share"] for name in ("dry", "wet", "ice")] == ["0.937500", "0.062500", "0.000000"]


def test_a_tile_without_labelled_pixels_has_no_shares() -> None:
    rows = [row("a", 0, 0, class_counts={}), row("a", 0, 8)]
    first, second = csv.DictReader(render_tile_manifest(rows).decode().splitlines())
    assert (first["mask_1_share"], second["mask_1_share"]) == ("", "0.062500")
    assert "mask" not in render_tile_manifest(rows[:1]).decode()


def test_a_manifest_that_says_the_same_is_left_alone(tmp_path: Path) -> None:
    file = save_tile_manifest(tmp_path, [row("a", 0, 0)])
    before = file.stat().st_mtime_ns
    assert save_tile_manifest(tmp_path, [row("a", 0, 0)]).stat().st_mtime_ns == before


def test_crs_named_by_code() -> None:
    from rasterio.crs import CRS

    assert short_crs(CRS.from_epsg(32633).to_wkt()) == "EPSG:32633"
    assert short_crs("") == ""
    own = CRS.from_proj4("+proj=laea +lat_0=33.7 +lon_0=12.3 +x_0=5 +datum=WGS84").to_wkt()
    assert short_crs(own) == own


def test_unnamed_class_values_found() -> None:
    rows = [row("a", 0, 0), row("a", 0, 8, class_counts={0: 1, 4: 1})]
    assert unnamed_classes(rows, ("dry",)) == [1, 4]
    assert unnamed_classes(rows, ("dry", "wet", "ice", "sand", "rock")) == []
    assert unnamed_classes(rows, ()) == []
