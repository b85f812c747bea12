"""Data to measure on, made from nothing: pictures with structure at every scale, which compress about as photos do.

In: a folder and sizes. Out: JPEG files, and raster bands as GeoTIFF. The same arguments give the same pixels. Only speed and
equality can be measured on them: they show nothing that could be learned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BANDS = ("B2", "B3", "B4", "B5")
_DISTINCT = 4
_QUALITY = 90
_CELLS = (3, 6, 12, 24, 48, 96, 192, 384)
_STRENGTH, _WEAKER, _GRAIN = 0.7, 1.6, 8.0
"""So that a megapixel takes about 300 kB at this quality, as a photo's does."""
_REFLECTANCE = 24.0
"""Levels of a band for each of a picture's 255: bands have about 12 bits."""


def field(width: int, height: int, *, seed: int) -> NDArray[np.float32]:
    """Height × width × 3 from 0 to 255: random cells at doubling scales, each weaker than the one before, and grain."""
    random = np.random.default_rng(seed)
    values = np.full((height, width, 3), 128.0, np.float32)
    strength = _STRENGTH
    for cells in _CELLS:
        coarse = random.integers(0, 256, (max(1, cells * height // width), cells, 3), np.uint8)
        values += strength * (np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)) - 127.5)
        strength /= _WEAKER
    values += random.normal(0, _GRAIN, values.shape).astype(np.float32)
    return values.clip(0, 255)


def write_photos(folder: Path, size_px: tuple[int, int], count: int, *, first: int = 0) -> list[str]:
    """`count` JPEG files of width × height; a few pictures, shifted a different way each time."""
    folder.mkdir(parents=True, exist_ok=True)
    width, height = size_px
    distinct = [field(width, height, seed=seed).astype(np.uint8) for seed in range(min(_DISTINCT, count))]
    paths = []
    for number in range(first, first + count):
        shifted = np.roll(distinct[number % len(distinct)], (17 * number, 31 * number), axis=(0, 1))
        paths.append(str(folder / f"photo_{number:04d}.jpg"))
        Image.fromarray(shifted).save(paths[-1], quality=_QUALITY)
    return paths


def write_scene(folder: Path, height: int, width: int, *, block_px: int) -> Path:
    """One deflated GeoTIFF of 16 bits for each band, stored in square blocks."""
    import rasterio

    folder.mkdir(parents=True, exist_ok=True)
    layout: dict[str, Any] = {"tiled": True, "blockxsize": block_px, "blockysize": block_px, "compress": "deflate"}
    place: dict[str, Any] = {"crs": "EPSG:32616", "transform": rasterio.Affine(30.0, 0.0, 600_000.0, 0.0, -30.0, 4_200_000.0)}
    shape = {"width": width, "height": height, "count": 1, "dtype": "uint16"}
    for name, pixels in zip(BANDS, bands(height, width), strict=True):
        with rasterio.open(folder / f"scene_{name}.tif", "w", driver="GTiff", **shape, **layout, **place) as target:
            target.write(pixels, 1)
    return folder


def bands(height: int, width: int) -> list[NDArray[np.uint16]]:
    """The bands of a scene, which differ as colours do."""
    values = np.concatenate([field(width, height, seed=seed) for seed in range(2)], axis=2)
    return [(values[..., number] * _REFLECTANCE).astype(np.uint16) for number in range(len(BANDS))]
