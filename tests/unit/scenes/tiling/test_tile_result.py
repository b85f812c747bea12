"""The tile manifest: the same tiles give the same bytes, and a plain CSV reader gets back what was written."""

from __future__ import annotations

import csv

from unchoke.core.boxes import Box
from unchoke.scenes.tiling.tile_result import ManifestRow, render_tile_manifest, short_crs
from unchoke.scenes.tiling.tiles import TileRecord

PLACE = (10.0, 0.0, 500000.1, 0.0, -10.0, 4600000.0)


def row(scene: str, top: int, left: int, counts: dict[int, int] | None = None) -> ManifestRow:
    tile_id, counts = f"{scene}_{top}_{left}", {0: 30, 1: 2, 255: 9} if counts is None else counts
    tile = TileRecord(tile_id, f"{tile_id}.npz", top // 8, left // 8, Box(top, left, 8, 8), 0.5, counts, "", 1)
    return ManifestRow(tile, scene, f"{scene}/x", "train", "0_0", "EPSG:32633", PLACE)


def test_rows_are_sorted_whatever_order_they_come_in() -> None:
    rows = [row("b", 0, 0), row("a", 8, 0), row("a", 0, 16), row("a", 0, 8)]
    written = render_tile_manifest(rows)
    assert written == render_tile_manifest(rows[::-1])
    places = [(one["scene"], int(one["top"]), int(one["left"])) for one in csv.DictReader(written.decode().splitlines())]
    assert places == sorted(places)


def test_a_plain_reader_gets_back_what_was_written() -> None:
    data = render_tile_manifest([row("a, b", 0, 0)], class_names=("dry", "wet", "ice"))
    (one,) = csv.DictReader(data.decode().splitlines())
    assert (one["scene"], one["path"]) == ("a, b", "a, b/x/a, b_0_0.npz")
    assert [float(number) for number in one["transform"].split(",")] == list(PLACE)
    assert [one[f"mask_{name}_share"] for name in ("dry", "wet", "ice")] == ["0.937500", "0.062500", "0.000000"]


def test_a_tile_without_labelled_pixels_has_no_shares() -> None:
    rows = [row("a", 0, 0, {}), row("a", 0, 8)]
    first, second = csv.DictReader(render_tile_manifest(rows).decode().splitlines())
    assert (first["mask_1_share"], second["mask_1_share"]) == ("", "0.062500")
    assert "mask" not in render_tile_manifest(rows[:1]).decode()


def test_crs_named_by_code() -> None:
    from rasterio.crs import CRS

    assert short_crs(CRS.from_epsg(32633).to_wkt()) == "EPSG:32633"
    assert short_crs("") == ""
    own = CRS.from_proj4("+proj=laea +lat_0=33.7 +lon_0=12.3 +x_0=5 +datum=WGS84").to_wkt()
    assert short_crs(own) == own
