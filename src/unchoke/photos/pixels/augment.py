"""Augmented views of a picture: which part of it is shown, and whether mirrored.

A view is a function of the sample's id and the view's number alone, so it is the same on every machine and in every run, and
its features can be cached. Pure arithmetic on sizes; pixels are cut elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unchoke.core.fingerprint import hash_int

RECIPE = "random-resized-crop 0.35–1.0 of the area, sides 3:4 to 4:3, mirrored half the time"
_AREA = (0.35, 1.0)
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10


@dataclass(frozen=True)
class Window:
    """A rectangle of a picture, in pixels, perhaps mirrored left to right."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool = False


def plan_view(sample_id: str, number: int, *, height: int, width: int) -> Window:
    """The window that view `number` (from 1) of this sample shows; number 0 is the whole picture."""
    if number == 0:
        return Window(0, 0, height, width)
    random = np.random.Generator(np.random.PCG64(hash_int("view", sample_id, number)))
    mirrored = bool(random.random() < 0.5)
    for _ in range(_TRIES):
        area = height * width * random.uniform(*_AREA)
        ratio = math.exp(random.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            top = int(random.integers(0, height - high + 1))
            left = int(random.integers(0, width - wide + 1))
            return Window(top, left, high, wide, mirrored)
    side = min(height, width)
    return Window((height - side) // 2, (width - side) // 2, side, side, mirrored)
