"""Small scenes, one GeoTIFF per band, generated the same on every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from rasterio.transform import Affine

from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.scene_facts import BandFile, Scene, SceneFacts

PLACE = Affine(30, 0, 500_000, 0, -30, 4_000_000)
MakeScene = Callable[..., SceneFacts]


def write_raster(file: Path, pixels: NDArray[Any], **options: Any) -> str:
    """One band as a GeoTIFF; `options` go to rasterio."""
    profile = {"driver": "GTiff", "count": 1, "dtype": pixels.dtype, "crs": "EPSG:32633", "transform": PLACE, **options}
    with rasterio.open(file, "w", height=pixels.shape[0], width=pixels.shape[1], **profile) as target:
        target.write(pixels, 1)
    return str(file)


@pytest.fixture
def write_band() -> Callable[..., str]:
    return write_raster


@pytest.fixture
def pool() -> HandlePool:
    return HandlePool()


class _Counted:
    """A dataset that notes which of its blocks each read asks for."""

    def __init__(self, dataset: Any, path: str, blocks: list[tuple[str, int, int]]) -> None:
        self._dataset, self._path, self._blocks = dataset, path, blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def read(self, *args: Any, window: Any, **options: Any) -> Any:
        rows, columns = self._dataset.block_shapes[0]
        top, left = int(window.row_off), int(window.col_off)
        self._blocks += [
            (Path(self._path).name, row, column)
            for row in range(top // rows, -(-(top + int(window.height)) // rows))
            for column in range(left // columns, -(-(left + int(window.width)) // columns))
        ]
        return self._dataset.read(*args, window=window, **options)


class CountingPool(HandlePool):
    """A real pool; `blocks` holds every block that was asked for, as (file, row, column), again for every time."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[tuple[str, int, int]] = []

    @contextmanager
    def open(self, path: str, **options: Any) -> Iterator[Any]:
        with super().open(path, **options) as dataset:
            yield _Counted(dataset, path, self.blocks)


@pytest.fixture
def counting_pool() -> CountingPool:
    return CountingPool()


@pytest.fixture
def make_scene(tmp_path: Path, pool: HandlePool) -> MakeScene:
    """A scene of uint16 noise, or of given pixels (B, h, w); band names B2, B3, …; `label` is an array of classes."""

    def make(
        pixels: NDArray[Any] | tuple[int, int, int], *, name: str = "scene", label: NDArray[Any] | None = None, **options: Any
    ) -> SceneFacts:
        folder = tmp_path / "scenes" / name
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(pixels, tuple):
            pixels = np.random.default_rng(7).integers(1, 3000, pixels, dtype=np.uint16)
        bands = tuple(
            BandFile(f"B{number}", write_raster(folder / f"B{number}.tif", plane, **options))
            for number, plane in enumerate(pixels, start=2)
        )
        file = None if label is None else write_raster(folder / "label.tif", label)
        return inspect_scene(Scene(name, bands, label=file), pool=pool)

    return make


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
