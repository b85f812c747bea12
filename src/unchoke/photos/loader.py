"""A picklable set of pictures, for worker processes: ids and paths in, fixed-size uint8 pixels out.

It holds nothing but plain values, so it survives `spawn`. `check` sends one to a real spawned process before anything is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unchoke.photos.pixels.image import Pixels, read_image
from unchoke.photos.pixels.resize import resize


@dataclass(frozen=True)
class ImageSet:
    """Pictures by position, each scaled to `height` × `width`."""

    paths: tuple[str, ...]
    height: int = 224
    width: int = 224

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, position: int) -> Pixels:
        image = read_image(self.paths[position], cover_px=max(self.height, self.width))
        return resize(image, self.height, self.width, interpolation="bilinear")

    def batch(self, positions: Sequence[int]) -> Pixels:
        """Several pictures as one array."""
        return np.stack([self[position] for position in positions])
