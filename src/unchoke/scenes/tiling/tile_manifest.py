"""`tile_manifest.csv`: one row per tile with its place in the scene and on the map, its split and what its mask holds.

Rows come in any order and go out sorted by scene and place, so the bytes do not depend on which strip was finished first. Cells
are quoted as RFC 4180 says; paths are relative to the folder of the manifest, with forward slashes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.boxes import Box
from unchoke.core.workspace import safe_name

MANIFEST_NAME = "tile_manifest.csv"
COLUMNS = (
    *("tile_id", "path", "scene", "row", "col", "top", "left", "height", "width"),
    *("valid_share", "split", "block", "crs", "transform"),
)


@dataclass(frozen=True)
class TileRow:
    """One tile. `class_counts` maps the classes of its mask to their pixels; what is ignored is not counted."""

    tile_id: str
    path: str
    scene: str
    row: int
    col: int
    box: Box
    valid_share: float
    split: str
    block: str
    crs: str
    transform: tuple[float, ...]
    class_counts: Mapping[int, int] = field(default_factory=dict)


def save_tile_manifest(folder: Path, rows: Iterable[TileRow], *, class_names: Sequence[str] = ()) -> Path:
    """Write the manifest into `folder`, wholly or not at all; leave the file alone if it already says the same."""
    file, data = folder / MANIFEST_NAME, render_tile_manifest(rows, class_names=class_names)
    if not file.exists() or file.read_bytes() != data:
        atomic.write_bytes(file, data)
    return file


def render_tile_manifest(rows: Iterable[TileRow], *, class_names: Sequence[str] = ()) -> bytes:
    """The manifest's bytes: the columns above, then one share for each class that any mask holds or that has a name."""
    ordered = sorted(rows, key=lambda row: (row.scene, row.box))
    found = {label for row in ordered for label in row.class_counts}
    classes = sorted(found | set(range(len(class_names)))) if found else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"mask_{class_word(label, class_names)}_share" for label in classes)])
    writer.writerows(_cells(row, classes) for row in ordered)
    return text.getvalue().encode("utf-8")


@cache
def short_crs(wkt: str) -> str:
    """``EPSG:32633`` where the CRS has such a name, its WKT otherwise; "" for none."""
    if not wkt:
        return ""
    from rasterio.crs import CRS

    authority = CRS.from_wkt(wkt).to_authority()
    return ":".join(authority) if authority else wkt


def class_word(label: int, class_names: Sequence[str]) -> str:
    """The name of a class where it has one, its number otherwise."""
    return safe_name(class_names[label]) if label < len(class_names) else str(label)


def _cells(row: TileRow, classes: Sequence[int]) -> list[object]:
    place = [row.tile_id, row.path, row.scene, row.row, row.col, *row.box]
    on_the_map = [row.crs, ",".join(repr(float(number)) for number in row.transform)]
    labelled = sum(row.class_counts.values())
    shares = [f"{row.class_counts.get(label, 0) / labelled:.6f}" if labelled else "" for label in classes]
    return [*place, f"{row.valid_share:.6f}", row.split, row.block, *on_the_map, *shares]
