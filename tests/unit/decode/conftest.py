"""Small rasters for the decode tests, written by rasterio."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

MakeRaster = Callable[..., str]


@pytest.fixture
def make_raster(tmp_path: Path) -> MakeRaster:
    """Write an array (h, w) or (bands, h, w) as a raster with its upper left corner at `corner`; returns its path."""

    def make(
        name: str,
        pixels: NDArray[Any],
        *,
        pixel: float = 10.0,
        corner: tuple[float, float] = (500_000.0, 4_000_000.0),
        crs: str | None = "EPSG:32616",
        **options: Any,
    ) -> str:
        import rasterio
        from rasterio.transform import from_origin

        pixels = pixels if pixels.ndim == 3 else pixels[None]
        place = {} if crs is None else {"crs": crs, "transform": from_origin(*corner, pixel, pixel)}
        profile = {"driver": "GTiff", "count": len(pixels), "dtype": pixels.dtype, **place, **options}
        described = profile.pop("descriptions", None)
        scales, offsets = profile.pop("scales", None), profile.pop("offsets", None)
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with rasterio.open(file, "w", height=pixels.shape[1], width=pixels.shape[2], **profile) as dataset:
            dataset.write(pixels)
            if described:
                dataset.descriptions = described
            if scales:
                dataset.scales, dataset.offsets = scales, offsets
        return str(file)

    return make


@pytest.fixture
def noise() -> Callable[..., NDArray[Any]]:
    """Numbers that differ from pixel to pixel, the same on every run."""

    def make(*shape: int, seed: int = 0, dtype: str = "uint16", high: int = 10_000) -> NDArray[Any]:
        return np.random.default_rng(seed).integers(1, high, shape).astype(dtype)

    return make
