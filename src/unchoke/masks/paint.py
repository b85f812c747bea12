"""Bands and masks as pictures a person can look at, and the colours of classes: numbers in, uint8 RGB (h, w, 3) out.

What a mask says is painted pixel by pixel, never blended across classes. The first class is mostly the background and is light;
then follow the colours of Okabe and Ito (2008), told apart by people who see colours differently; beyond those come hues spread
around the circle. They are the same in reports and in files. Knows no files and no data URIs.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
RgbPicture = NDArray[np.uint8]
Mask = NDArray[np.uint8]
IGNORED = 255
"""The value of a mask's pixel that has no class."""
_STRETCH_PERCENT = (2.0, 98.0)
_NAMED = (("red", "r"), ("green", "g"), ("blue", "b"))
_NUMBERED = (4, 3, 2)
_WRONG_BACKGROUND: Colour = (17, 17, 17)
_HATCH: tuple[Colour, Colour] = ((208, 208, 208), (176, 176, 176))
_HATCH_PX = 3
_GREY_STEP = 24  # few shades: enough to find one's way, and small as a file
BACKGROUND: Colour = (232, 228, 218)
_OKABE_ITO: tuple[Colour, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (240, 228, 66),
)
_GOLDEN_TURN = 0.618033988749895


def choose_rgb(band_names: Sequence[str]) -> tuple[int, int, int] | None:
    """Which bands show red, green and blue: those named so, bands 4, 3 and 2 of Landsat 8/9 and Sentinel-2, or the first three.

    None where there are fewer than three: those are shown in grey.
    """
    words = [name.strip().lower() for name in band_names]
    named = [next((place for place, word in enumerate(words) if word in wanted), None) for wanted in _NAMED]
    numbers = [_band_number(word) for word in words]
    numbered = [numbers.index(wanted) if wanted in numbers else None for wanted in _NUMBERED]
    for found in (named, numbered):
        places = [place for place in found if place is not None]
        if len(places) == 3:
            return places[0], places[1], places[2]
    return (0, 1, 2) if len(words) >= 3 else None


def _band_number(word: str) -> int | None:
    """4 for ``b4``, ``B04`` and ``l8_b4``; None for ``b8a``."""
    match = re.search(r"(?:^|[^a-z0-9])b0*(\d+)$", word)
    return int(match[1]) if match else None


def paint_bands(bands: NDArray[np.floating[Any]], band_names: Sequence[str], valid: NDArray[np.bool_]) -> RgbPicture:
    """Three bands (or one, in grey) of (B, h, w), stretched between two percentiles of its valid pixels; the rest is hatched."""
    chosen = choose_rgb(band_names) or (0, 0, 0)
    picture = np.stack([_stretched(bands[place], valid) for place in chosen], axis=-1)
    return np.where(valid[..., None], picture, _hatch(valid.shape))


def _stretched(band: NDArray[np.floating[Any]], valid: NDArray[np.bool_]) -> RgbPicture:
    if not valid.any():
        return np.zeros(band.shape, np.uint8)
    low, high = np.percentile(band[valid], _STRETCH_PERCENT)
    if high <= low:
        return np.full(band.shape, 128, np.uint8)
    shown = np.nan_to_num((band - low) / (high - low)).clip(0, 1)
    return np.asarray((255 * shown).round(), np.uint8)


def paint_mask(mask: Mask, num_classes: int) -> RgbPicture:
    """Each pixel in the colour of its class; those without one are hatched."""
    colours = np.array(class_colours(num_classes), np.uint8)
    known = mask < num_classes
    return np.where(known[..., None], colours[np.where(known, mask, 0)], _hatch(mask.shape))


def paint_overlay(picture: RgbPicture, mask: Mask, num_classes: int, *, opacity: float = 0.5) -> RgbPicture:
    """The picture with every class but the first laid over it."""
    laid = (mask > 0) & (mask < num_classes)
    colours = paint_mask(mask, num_classes).astype(np.float32)
    blended = (1 - opacity) * picture.astype(np.float32) + opacity * colours
    return np.where(laid[..., None], blended.round().astype(np.uint8), picture)


def paint_error(picture: RgbPicture, prediction: Mask, truth: Mask, num_classes: int) -> RgbPicture:
    """The picture faint and grey where the answer is right; wrong pixels in the colour of their true class, black for the first.

    Pixels without a label, or without an answer, are hatched.
    """
    grey = picture.mean(axis=-1, keepdims=True, dtype=np.float32) // _GREY_STEP * _GREY_STEP
    faint = np.broadcast_to((170 + grey / 3).round().astype(np.uint8), picture.shape)
    colours = np.array([_WRONG_BACKGROUND, *class_colours(num_classes)[1:]], np.uint8)
    known = (truth < num_classes) & (prediction < num_classes)
    true_colours = colours[np.where(known, truth, 0)]
    judged = np.where((truth == prediction)[..., None], faint, true_colours)
    return np.where(known[..., None], judged, _hatch(truth.shape))


def _hatch(shape: tuple[int, ...]) -> RgbPicture:
    rows, columns = np.indices(shape[:2])
    hatched: RgbPicture = np.array(_HATCH, np.uint8)[(rows + columns) // _HATCH_PX % 2]
    return hatched


def class_colours(num_classes: int) -> list[Colour]:
    """One colour for each class, in their order."""
    known = [BACKGROUND, *_OKABE_ITO]
    return (known + [_further(place) for place in range(num_classes - len(known))])[:num_classes]


def _further(place: int) -> Colour:
    hue, lightness = (0.07 + place * _GOLDEN_TURN) % 1, (0.35, 0.65)[place % 2]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.6)
    return round(255 * red), round(255 * green), round(255 * blue)


def as_hex(colour: Colour) -> str:
    """``#0072b2``."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
