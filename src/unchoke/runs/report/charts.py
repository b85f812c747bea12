"""Charts and bars as inline SVG: learning curves, reliability, truth against prediction, confusions. Pure functions of numbers.

Every attribute and every text is escaped once, in `tag`. Colours come from CSS classes of the page, so one drawing serves light
and dark. Bars live inside table cells: they stretch with the cell and are hidden from screen readers, because the table says the
same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup, escape

from unchoke.core.units import format_number
from unchoke.runs.report.layout import shorten, tell_apart, visible, width

if TYPE_CHECKING:
    from unchoke.runs.report.view import Table

_WIDTH, _HEIGHT = 440.0, 284.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 44.0, 40.0
_SIDE = 330.0
"""Of square charts."""
_MOST_POINTS = 1500
MOST_CLASSES = 50
_LONGEST_NAME = 32
_CHARACTER_PX, _WIDER_PX, _WIDE_LETTERS = 6.6, 2.4, "mw@%"
_ROOM_FOR_TEXT_PX, _SMALL = 18, 10.5 / 12
"""Beside smaller cells labels are small, too."""
_ROOM_FOR_COUNTS_PX = 24
NUM_COLOURS = 8


# -- elements ------------------------------------------------------------------------------------------------------------------


def tag(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """An element, its plain text escaped; ``class_`` stands for ``class``, underscores in attribute names for dashes."""
    names = {key: key if key == "viewBox" else key.rstrip("_").replace("_", "-") for key in attributes}
    pairs = "".join(f' {names[key]}="{escape(_plain(value))}"' for key, value in attributes.items() if value is not None)
    return Markup(f"<{name}{pairs}>{''.join(escape(child) for child in children)}</{name}>")


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


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
        Markup("").join([*head, *body]),
        viewBox=f"0 0 {_plain(float(width_px))} {_plain(float(height_px))}",
        width=float(width_px),
        height=float(height_px),
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
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


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


def tick_labels(ticks: Sequence[float], *, percent: bool = False) -> Callable[[float], str]:
    """A format with as many digits as the step between `ticks` needs."""
    factor, unit = (100.0, " %") if percent else (1.0, "")
    step = factor * abs(ticks[1] - ticks[0]) if len(ticks) > 1 else 1.0
    digits = next((digits for digits in range(6) if abs(round(step, digits) - step) < step * 1e-6), 6)
    return lambda value: f"{value * factor:,.{digits}f}{unit}"


# -- bars in tables ------------------------------------------------------------------------------------------------------------


def _strip(parts: Iterable[Markup], *, height_px: int, class_: str = "strip") -> Markup:
    return tag(
        "svg", Markup("").join(parts), class_=class_, width="100%", height=height_px, aria_hidden="true", focusable="false"
    )


def _percent(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def share_bar(share: float, *, class_: str = "s1", height_px: int = 8) -> Markup:
    """One bar on a faint full-length track."""
    track = tag("rect", x="0", y=0, width="100%", height=height_px, rx=2, class_="track")
    bar = tag("rect", x="0", y=0, width=_percent(share), height=height_px, rx=2, class_=f"bar {class_}")
    return _strip([track, bar], height_px=height_px)


def stacked_bar(parts: Sequence[tuple[str, float, str]], *, height_px: int = 10, class_: str = "strip") -> Markup:
    """Parts (`text` for hovering, `share` of the full length, CSS class) laid end to end."""
    drawn, start = [], 0.0
    for text, share, css in parts:
        size = {"x": _percent(start), "y": 0, "width": _percent(share), "height": height_px}
        drawn.append(tag("rect", tag("title", visible(text)), **size, class_=f"bar {css}"))
        start += share
    return _strip(drawn, height_px=height_px, class_=class_)


def interval_bar(value: float, low: float | None, high: float | None) -> Markup:
    """A point with its interval as a whisker on a track from 0 to 1."""
    parts = [tag("rect", x="0", y=7, width="100%", height=2, class_="track")]
    if low is not None and high is not None:
        width_percent = _percent(min(high, 1.0) - max(low, 0.0))
        parts.append(tag("rect", x=_percent(low), y=5, width=width_percent, height=6, rx=3, class_="whisker"))
    parts.append(tag("circle", cx=_percent(value), cy=8, r=5, class_="dot s1"))
    return _strip(parts, height_px=16, class_="strip overflow")


def table_strip(table: Table) -> Markup:
    """One bar made of all rows that have a share."""
    rows = enumerate(zip(table.rows, table.strip, strict=False))
    parts = [(f"{row[0]}: {', '.join(filter(None, row[1:3]))}", share, f"s{at % NUM_COLOURS + 1}") for at, (row, share) in rows]
    return stacked_bar(parts, height_px=26, class_="strip rounded")


def row_bar(table: Table, at: int) -> Markup | str:
    """What is drawn at the end of a row."""
    if table.parts:
        return stacked_bar(table.parts[at], height_px=16)
    if table.intervals:
        interval = table.intervals[at]
        return "" if interval is None else interval_bar(*interval)
    share = table.shares[at]
    return "" if share is None else share_bar(share)


# -- charts --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """One line of a chart; `class_` picks its colour."""

    name: str
    points: Sequence[tuple[float, float]]
    class_: str = "s1"


def line_chart(
    ident: str,
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    percent: bool = False,
    mark_x: float | None = None,
    mark_label: str = "",
) -> Markup:
    """Lines over a shared x axis of whole numbers, with a legend and an optional marked x."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    y_ticks = nice_ticks(min(ys), max(ys), about=4)
    x_scale = Scale(min(xs), max(max(xs), min(xs) + 1), _LEFT, _WIDTH - _RIGHT)
    y_scale, format_y = Scale(y_ticks[0], y_ticks[-1], _HEIGHT - _BOTTOM, _TOP), tick_labels(y_ticks, percent=percent)
    body = []
    for tick in y_ticks:
        body += [line(_LEFT, y_scale(tick), _WIDTH - _RIGHT, y_scale(tick), "grid")]
        body += [label(format_y(tick), _LEFT - 8, y_scale(tick) + 4, anchor="end")]
    for tick in _whole_ticks(min(xs), max(xs)):
        body.append(label(f"{tick:g}", x_scale(tick), _HEIGHT - _BOTTOM + 17, anchor="middle"))
    body.append(label(x_label, _WIDTH - _RIGHT, _HEIGHT - 5, anchor="end", class_="label soft"))
    if mark_x is not None:
        x = x_scale(mark_x)
        anchor, shift = ("end", -5) if x > _WIDTH * 0.7 else ("start", 5)
        body.append(line(x, _TOP - 14, x, _HEIGHT - _BOTTOM, "mark"))
        body.append(label(mark_label, x + shift, _TOP - 5, anchor=anchor, class_="label soft"))
    legend_x = _LEFT
    for one in series:
        points = [(x_scale(x), y_scale(y)) for x, y in one.points]
        if len(points) == 1:
            body.append(tag("circle", cx=points[0][0], cy=points[0][1], r=3, class_=f"dot {one.class_}"))
        else:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            body.append(tag("path", d=path, class_=f"curve {one.class_}"))
        body += [line(legend_x, 12, legend_x + 16, 12, f"curve {one.class_}"), label(one.name, legend_x + 21, 16)]
        legend_x += 21 + 7.0 * len(one.name) + 22
    ends = [f"{one.name} goes from {format_number(one.points[0][1])} to {format_number(one.points[-1][1])}" for one in series]
    return figure(ident, title, "; ".join(ends), body, width_px=_WIDTH, height_px=_HEIGHT)


def _whole_ticks(low: float, high: float) -> list[float]:
    sizes = (factor * 10**power for power in range(308) for factor in (1, 2, 5))
    step = next(size for size in sizes if (high - low) / 8 <= size)
    first = -(-low // step) * step
    return [first + place * step for place in range(int((high - first) // step) + 1)]


def _square_axes(
    ticks: Sequence[float], left: float, show: Callable[[float], str], *, diagonal: bool = True
) -> tuple[Scale, Scale, list[Markup]]:
    """Both axes of a square chart with the same ticks, and the diagonal."""
    low, high = ticks[0], ticks[-1]
    x_scale, y_scale = Scale(low, high, left, _SIDE - 22), Scale(low, high, _SIDE - 42, 14)
    body = []
    for tick in ticks:
        body += [
            line(x_scale(low), y_scale(tick), x_scale(high), y_scale(tick), "grid"),
            label(show(tick), left - 8, y_scale(tick) + 4, anchor="end"),
            label(show(tick), x_scale(tick), y_scale(low) + 17, anchor="middle"),
        ]
    body += [line(x_scale(low), y_scale(low), x_scale(high), y_scale(high), "ideal")] if diagonal else []
    return x_scale, y_scale, body


def share_curve(
    ident: str, points: Sequence[tuple[float, float]], x_label: str, y_label: str, *, diagonal: bool = False
) -> Markup:
    """A line between shares of both axes; the diagonal is that of guessing."""
    x_scale, y_scale, body = _square_axes((0, 0.25, 0.5, 0.75, 1), 48.0, lambda tick: f"{tick * 100:g} %", diagonal=diagonal)
    path = "M" + "L".join(f"{x_scale(x):.1f} {y_scale(y):.1f}" for x, y in points)
    body.append(tag("path", d=path, class_="curve s1"))
    body.append(label(f"{y_label} ↑, {x_label} →", _SIDE - 22, _SIDE - 6, anchor="end", class_="label soft"))
    said = f"{y_label} against {x_label}, {len(points)} thresholds"
    return figure(ident, said, said, body, width_px=_SIDE, height_px=_SIDE)


class ReliabilityPoint(NamedTuple):
    """Answers given with about one confidence: how sure they were, how many of them were right, how many there are."""

    confidence: float
    accuracy: float
    num_answers: float


def reliability_chart(ident: str, bins: Sequence[ReliabilityPoint]) -> Markup:
    """How often the model was right among answers given with a certain confidence; the diagonal is perfect honesty."""
    x_scale, y_scale, body = _square_axes((0, 0.25, 0.5, 0.75, 1), 48.0, lambda tick: f"{tick * 100:g} %")
    body.append(label("confidence of the answer", _SIDE - 22, _SIDE - 6, anchor="end", class_="label soft"))
    body.append(label("share that was right", 52, 28, class_="label soft"))
    largest = max(point.num_answers for point in bins)
    for sure, right, count in bins:
        x, y = x_scale(sure), y_scale(right)
        hover = tag("title", f"confidence {sure:.0%}: right for {right:.0%} of {count:,.0f} answers")
        body.append(line(x, y, x, y_scale(sure), "stem"))
        body.append(tag("circle", hover, cx=x, cy=y, r=3 + 8 * (count / largest) ** 0.5, class_="bubble s1"))
    description = "; ".join(f"at confidence {sure:.2f} right for {right:.2f}" for sure, right, _ in bins)
    return figure(ident, "Reliability diagram", description, body, width_px=_SIDE, height_px=_SIDE)


def scatter_chart(ident: str, name: str, truth: Sequence[float], predicted: Sequence[float]) -> Markup:
    """Predicted against true values on equal axes, perfect ones on the diagonal. Draws at most 1,500 points, evenly chosen."""
    ticks = nice_ticks(min(*truth, *predicted), max(*truth, *predicted), about=4)
    x_scale, y_scale, body = _square_axes(ticks, 56.0, tick_labels(ticks))
    step = max(1, -(-len(truth) // _MOST_POINTS))
    pairs = list(zip(truth, predicted, strict=True))[::step]
    body += [tag("circle", cx=x_scale(x), cy=y_scale(y), r=3, class_="point s1") for x, y in pairs]
    body.append(label("truth", _SIDE - 22, _SIDE - 6, anchor="end", class_="label soft"))
    body.append(label("predicted", 60, 26, class_="label soft"))
    description = f"{len(truth)} samples; the diagonal marks perfect predictions"
    return figure(ident, f"{name}: predicted against true values", description, body, width_px=_SIDE, height_px=_SIDE)


def most_mistaken(matrix: Sequence[Sequence[int]], *, limit: int = MOST_CLASSES) -> list[int]:
    """The classes to draw: all of them, or the `limit` with the most mistakes, in their usual order."""
    mistakes = [sum(row) + sum(other[place] for other in matrix) - 2 * row[place] for place, row in enumerate(matrix)]
    return sorted(sorted(range(len(matrix)), key=lambda place: -mistakes[place])[:limit])


def confusion_chart(ident: str, matrix: Sequence[Sequence[int]], names: Sequence[str], *, in_percent: bool = False) -> Markup:
    """`matrix[truth][answer]` counts: rows are the truth, columns the answers, shading is the share of the whole row. Correct
    answers and mistakes have different hues, so that mistakes stand out.

    In the cells stand the counts, or the shares `in_percent`, where counts (of pixels) would be too long.
    """
    chosen = most_mistaken(matrix)
    cell = cell_px(len(chosen))
    shown = tell_apart([names[place] for place in chosen], _LONGEST_NAME)
    left = 18 + max(map(_text_px, shown)) * (1 if cell >= _ROOM_FOR_TEXT_PX else _SMALL)
    top, size = left + 12, cell * len(chosen)
    body = [tag("rect", x=left, y=top, width=size, height=size, class_="ground")]
    for place in range(0, len(chosen) + 1, 1 if len(chosen) <= 25 else 5):
        body.append(line(left, top + place * cell, left + size, top + place * cell, "grid"))
        body.append(line(left + place * cell, top, left + place * cell, top + size, "grid"))
    body += _names([names[place] for place in chosen], shown, cell, left, top)
    for row, truth in enumerate(chosen):
        total = sum(matrix[truth])
        for column, answer in enumerate(chosen):
            if (count := matrix[truth][answer]) > 0:
                verb = "recognised" if truth == answer else f"called {shorten(names[answer], 60)}"
                hover = f"{shorten(names[truth], 60)} {verb}: {count:,} of {total:,} ({count / total:.0%})"
                text = f"{count / total * 100:.0f} %" if in_percent else f"{count:,}"
                x, y, hue = left + column * cell, top + row * cell, "hit" if truth == answer else "miss"
                body.append(_cell(x, y, cell, text, count / total, hover, hue))
    body.append(label("answer", left + size, 12, anchor="end", class_="label soft"))
    body.append(label("truth", left - 8, top - 8, anchor="end", class_="label soft"))
    right = sum(matrix[place][place] for place in range(len(matrix)))
    lie = f"{right:,} of {sum(map(sum, matrix)):,} answers lie on the diagonal, where they are right"
    description = f"{len(matrix)} classes; {lie}"
    return figure(ident, "Confusion matrix", description, body, width_px=left + size + 24, height_px=top + size + 6)


def cell_px(num_classes: int) -> float:
    """The side of a cell: generous for few classes, small enough that fifty fit a page."""
    return float(max(15, min(44, 620 // max(1, num_classes))))


def _text_px(text: str) -> float:
    """About how long a label is, on the safe side: letters differ in width, and wide scripts take twice as much."""
    wide = sum(character.isupper() or character in _WIDE_LETTERS for character in text)
    return _CHARACTER_PX * width(text) + _WIDER_PX * wide


def _names(names: Sequence[str], shown: Sequence[str], cell: float, left: float, top: float) -> Iterator[Markup]:
    """The names beside the rows and above the columns; one that had to be cut is whole when pointed at."""
    class_ = "label" if cell >= _ROOM_FOR_TEXT_PX else "label small"
    for place, (name, text) in enumerate(zip(names, shown, strict=True)):
        middle = (place + 0.5) * cell
        x, y = left + middle + 4, top - 8
        beside = label(text, left - 8, top + middle + 4, anchor="end", class_=class_)
        above = label(text, x, y, class_=class_, transform=f"rotate(-90 {x:.1f} {y:.1f})")
        whole = [tag("title", visible(name))] if text != visible(name) else []
        yield tag("g", *whole, beside, above)


def _cell(x: float, y: float, side: float, text: str, share: float, hover: str, hue: str) -> Markup:
    size = {"width": side - 2, "height": side - 2, "rx": 2}
    inside = [tag("title", hover), tag("rect", x=x + 1, y=y + 1, **size, class_=hue, fill_opacity=0.12 + 0.88 * share)]
    if side >= _ROOM_FOR_COUNTS_PX:
        ink = "count on" if share > 0.45 else "count"
        inside.append(label(text, x + side / 2, y + side / 2 + 4, anchor="middle", class_=ink))
    return tag("g", *inside, class_="cell")
