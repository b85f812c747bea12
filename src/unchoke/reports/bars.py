"""Small horizontal bars that live inside table cells: shares, stacked parts, intervals. Pure functions of numbers.

They stretch with the cell (percent coordinates, no fixed width) and are hidden from screen readers, because the table says the
same in text.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from unchoke.reports.layout import visible
from unchoke.reports.svg import join, tag


def _strip(parts: Sequence[Markup], *, height_px: int, class_: str = "strip") -> Markup:
    return tag("svg", join(parts), class_=class_, width="100%", height=height_px, aria_hidden="true", focusable="false")


def _percent(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def share_bar(share: float, *, class_: str = "s1", height_px: int = 8) -> Markup:
    """One bar on a faint full-length track."""
    track = tag("rect", x="0", y=0, width="100%", height=height_px, rx=2, class_="track")
    return _strip(
        [track, tag("rect", x="0", y=0, width=_percent(share), height=height_px, rx=2, class_=f"bar {class_}")],
        height_px=height_px,
    )


def stacked_bar(parts: Sequence[tuple[str, float, str]], *, height_px: int = 10, class_: str = "strip") -> Markup:
    """Parts (`text` for hovering, `share` of the full length, CSS class) laid end to end."""
    drawn, start = [], 0.0
    for text, share, part_class in parts:
        told = tag("title", visible(text))
        drawn.append(
            tag("rect", told, x=_percent(start), y=0, width=_percent(share), height=height_px, class_=f"bar {part_class}")
        )
        start += share
    return _strip(drawn, height_px=height_px, class_=class_)


def interval_bar(value: float, low: float | None, high: float | None, *, start: float = 0.0, end: float = 1.0) -> Markup:
    """A point with its interval as a whisker on a track from `start` to `end`."""
    span = (end - start) or 1.0
    height_px, middle = 16, 8
    parts = [tag("rect", x="0", y=middle - 1, width="100%", height=2, class_="track")]
    if low is not None and high is not None:
        width = _percent((min(high, end) - max(low, start)) / span)
        parts.append(tag("rect", x=_percent((low - start) / span), y=middle - 3, width=width, height=6, rx=3, class_="whisker"))
    parts.append(tag("circle", cx=_percent((value - start) / span), cy=middle, r=5, class_="dot s1"))
    return _strip(parts, height_px=height_px, class_="strip overflow")
