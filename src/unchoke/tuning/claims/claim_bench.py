"""What every measurement is given: data made for the purpose, the device, and the time it may take.

In: a folder that the caller removes. Out: photos and rasters, made when first asked for, and interleaved comparisons of two ways.
Pictures are made from nothing, with structure at every scale, so that they compress about as photos do; the same arguments give
the same pixels. Only speed and equality can be measured on them: they show nothing that could be learned. Which ways are
compared, and what their ratio means, is the business of each claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unchoke.machine.detect import detect_machine
from unchoke.machine.machine_facts import MachineFacts
from unchoke.tuning.compare import Speedup, compare

if TYPE_CHECKING:
    import torch

_MIN_PAIRS = 8
"""Enough to place a ratio within a range; where it is near 1, as many more as there is time for."""
_FOR_PAIRS = 0.75
"""Of the time that is left to a claim; the rest is for what explains the ratio."""
_BATCHES_ON_A_CARD = 4
BANDS = ("B2", "B3", "B4", "B5")
_DISTINCT = 4
_QUALITY = 90
_CELLS = (3, 6, 12, 24, 48, 96, 192, 384)
_STRENGTH, _WEAKER, _GRAIN = 0.7, 1.6, 8.0
"""So that a megapixel takes about 300 kB at this quality, as a photo's does."""
_REFLECTANCE = 24.0
"""Levels of a band for each of a picture's 255: bands have about 12 bits."""


@dataclass(frozen=True)
class Sizes:
    """How large the data is: as in the reports where that fits into seconds. Tests use smaller ones."""

    photo_px: tuple[int, int] = (2000, 1000)
    num_photos: int = 16
    small_photo_px: tuple[int, int] = (600, 450)
    num_small_photos: int = 64
    input_px: int = 224
    batch: int = 8
    tile_px: int = 512
    window_px: int = 256
    head_rows: int = 1024


class Bench:
    """Where one claim after the other is measured; `until_s` is when the present one should end, on the monotonic clock."""

    def __init__(self, folder: Path, *, sizes: Sizes | None = None, facts: MachineFacts | None = None) -> None:
        self.folder = folder
        self.sizes = sizes or Sizes()
        self.facts = facts or detect_machine(folder)
        self.until_s = 0.0

    @cached_property
    def device(self) -> torch.device:
        """The accelerator, if there is one that torch can use."""
        from unchoke.machine.backend import torch_device
        from unchoke.machine.policy import choose_policy

        return torch_device(choose_policy(self.facts))

    @property
    def batch(self) -> int:
        """Pictures in a step of training: more where an accelerator waits for them."""
        return self.sizes.batch * (_BATCHES_ON_A_CARD if self.facts.accelerators else 1)

    @cached_property
    def photos(self) -> list[str]:
        """Large photos, about as a camera writes them."""
        return write_photos(self.folder / "photos", self.sizes.photo_px, self.sizes.num_photos)

    @cached_property
    def small_photos(self) -> list[str]:
        """Small photos, as data sets hold them, in two folders."""
        count = self.sizes.num_small_photos
        parts = [self.folder / "small" / part for part in ("part_1", "part_2")]
        return [
            path
            for number, part in enumerate(parts)
            for path in write_photos(part, self.sizes.small_photo_px, count // 2, first=number * count // 2)
        ]

    def compare(self, plain: Callable[[], object], trick: Callable[[], object], *, warm: bool = False) -> Speedup:
        """Time two bodies in turn until the claim's share of the time is over. Unless `warm`, each is first run for nothing."""
        return self.compare_seconds(lambda: self.seconds(plain), lambda: self.seconds(trick), warm=warm)

    def compare_seconds(self, plain: Callable[[], float], trick: Callable[[], float], *, warm: bool = False) -> Speedup:
        """The same of functions that give their own seconds."""
        if not warm:
            plain()
            trick()
        budget_s = _FOR_PAIRS * max(0.0, self.until_s - time.monotonic())
        return compare(plain, trick, budget_s=budget_s, min_pairs=_MIN_PAIRS)

    def seconds(self, body: Callable[[], object]) -> float:
        """What one call takes, work that was handed to the accelerator included."""
        from unchoke.machine.backend import synchronize

        synchronize(self.device)
        started_s = time.perf_counter()
        body()
        synchronize(self.device)
        return time.perf_counter() - started_s


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
