"""Decoded pictures as one plain value: any process can open the same cache from it, and gets the same pixels.

In: the files of the samples with their planned content, how they lie in the cache, and where that is. Out: a `PixelCache`, or
the `Source` that training reads. A file that is not in the cache is decoded when it is asked for; one whose content is no longer
the planned one is refused. Filling the cache beforehand, and setting bad files aside, is `prepare_pixels.py`'s business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core.choices import Choice
from unchoke.core.clock import during
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.features.recipe import DECODING
from unchoke.photos.pixels.augment_batch import augment_spec
from unchoke.photos.pixels.canvas import Canvas
from unchoke.photos.pixels.image import DecodeError, Pixels, decode_image, read_bytes
from unchoke.photos.pixels.pixel_cache import PixelCache, Source, open_cache
from unchoke.training.network.sources import PixelSource

_PICTURE_PX = 3, 4
"""Height and width of a usual picture, of which noise is drawn."""


@dataclass(frozen=True, eq=False)
class StoredPixels:
    """Samples by position: id, path and SHA-256 of the file ("" where nobody knows it). `cache` is what `plan_cache` chose.

    `filled` is a cache in this process's memory; it does not travel to other processes, which fill their own.
    """

    sample_ids: tuple[str, ...]
    paths: tuple[str, ...]
    contents: tuple[str, ...]
    canvas: Canvas
    cache: Choice
    folder: Path
    augment: str = "none"
    filled: PixelCache | None = field(default=None, repr=False)

    @property
    def ram_bytes(self) -> int:
        """What the pictures take of this process's memory."""
        return int(self.cache.evidence["bytes"]) if self.cache.value == "ram" else 0

    @property
    def held_bytes(self) -> int:
        return self.ram_bytes if self.filled is not None else 0

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.canvas.raw_shape)

    def open(self, sample_ids: Sequence[str], seed: int) -> PixelSource:
        """What training reads, in the order of `sample_ids`."""
        place = {sample_id: position for position, sample_id in enumerate(self.sample_ids)}
        rows = np.array([place[sample_id] for sample_id in sample_ids], np.int64)
        cache = self.filled if self.filled is not None else self.open_cache(reader=True)
        return PixelSource(cache, self.canvas, sample_ids, seed=seed, augment=augment_spec(self.augment), rows=rows)

    def open_cache(self, *, reader: bool = False) -> PixelCache:
        """The cache, to fill it or, as one of any number of readers, to use what was filled."""
        height, width = self.canvas.row_shape
        sources = [_stamped(*file) for file in zip(self.sample_ids, self.paths, self.contents, strict=True)]
        return open_cache(
            self.cache,
            sources,
            folder=self.folder,
            height=height,
            width=width,
            read=self.draw,
            recipe=pixel_recipe(self.canvas),
            reader=reader,
        )

    def draw(self, position: int) -> Pixels:
        """The row of one picture, decoded now."""
        data = read_bytes(self.paths[position])
        if self.contents[position]:
            with during("verify"):
                content = digest_bytes(data)
            if content != self.contents[position]:
                raise DecodeError("changed", "the file changed while the command ran; run it again")
        image = decode_image(data, cover_px=self.canvas.cover_px)
        with during("transform"):
            return self.canvas.draw(image)

    def noise(self) -> NoisePixels:
        """Pictures of no meaning that lie in memory as these do."""
        return NoisePixels(self.canvas, self.augment)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "filled": None}


@dataclass(frozen=True)
class NoisePixels:
    """Pictures that are all the same noise: for trials of memory."""

    canvas: Canvas
    augment: str = "none"
    ram_bytes = held_bytes = 0

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.canvas.raw_shape)

    def open(self, sample_ids: Sequence[str], seed: int) -> PixelSource:
        cache: Any = _NoiseCache(self.canvas)
        return PixelSource(cache, self.canvas, sample_ids, seed=seed, augment=augment_spec(self.augment))

    def noise(self) -> NoisePixels:
        return self


class _NoiseCache:
    def __init__(self, canvas: Canvas) -> None:
        height, width = (4 * canvas.preprocess.resize_px * side // min(_PICTURE_PX) for side in _PICTURE_PX)
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        self._row: Pixels = canvas.draw(noise)

    def read_into(self, row: int, out: Pixels) -> None:
        out[:] = self._row


def pixel_recipe(canvas: Canvas) -> str:
    """A text that changes whenever rows would be made another way."""
    return digest({"canvas": canvas.to_dict(), "decoding": DECODING})


def _stamped(sample_id: str, path: str, content: str) -> Source:
    """A picture is known by its content; by size and time only where nobody computed one."""
    if content:
        return Source(sample_id, 0, 0, content)
    try:
        with during("stat"):
            stat = Path(path).stat()
    except OSError:
        return Source(sample_id, 0, 0)  # reading it will say what is wrong
    return Source(sample_id, stat.st_size, stat.st_mtime_ns)
