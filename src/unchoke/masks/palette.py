"""The colours of classes: fixed, told apart by people who see colours differently, the same in reports and in masks.

The first class is mostly the background and is light. Then follow the colours of Okabe and Ito (2008); beyond those come hues
spread around the circle, which nobody can tell apart for certain, but which differ.
"""

from __future__ import annotations

import colorsys

Colour = tuple[int, int, int]
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
