"""SVG elements as safe markup: every attribute and every text is escaped here, once. Also the arithmetic of axes, and small bars.

The bars live inside table cells: they stretch with the cell (percent coordinates, no fixed width) and are hidden from screen
readers, because the table says the same in text. Knows nothing of runs; `charts` draws with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from unchoke.runs.report.layout import visible


def tag(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """An element, its plain text escaped; ``class_`` stands for ``class``, underscores in attribute names for dashes."""
    pairs = "".join(f' {_attribute(key)}="{escape(_plain(value))}"' for key, value in attributes.items() if value is not None)
    inner = "".join(escape(child) for child in children)
    return Markup(f"<{name}{pairs}>{inner}</{name}>")


def _attribute(key: str) -> str:
    return key if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def label(text: object, x: float, y: float, *, anchor: str = "start", class_: str = "label", **more: object) -> Markup:
    """Text at a point, control characters made visible."""
    return tag("text", visible(text), x=float(x), y=float(y), text_anchor=anchor, class_=class_, **more)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def figure(ident: str, title: str, description: str, body: Iterable[Markup], *, width_px: float, height_px: float) -> Markup:
    """A whole drawing with a title and a description for those who cannot see it."""
    head = [tag("title", visible(title), id=f"{ident}-t"), tag("desc", visible(description), id=f"{ident}-d")]
    return tag(
        "svg",
        join([*head, *body]),
        viewBox=f"0 0 {_plain(float(width_px))} {_plain(float(height_px))}",
        width=_plain(float(width_px)),
        height=_plain(float(height_px)),
        role="img",
        aria_labelledby=f"{ident}-t {ident}-d",
    )


@dataclass(frozen=True)
class Scale:
    """Maps data from [`low`, `high`] to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def nice_ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Round numbers that cover [`low`, `high`], about that many."""
    if not high > low:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    raw = (high - low) / about
    if raw == 0 or not math.isfinite(raw):
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1, 2, 2.5, 5) if factor * power >= raw), 10 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def path(points: Sequence[tuple[float, float]]) -> str:
    """The `d` of a line through `points`."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


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
