"""Charts as inline SVG: learning curves, reliability, truth against prediction, confusions. Pure functions of numbers.

Colours come from CSS classes of the page, so one drawing serves light and dark. Nothing is fetched, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from unchoke.core.units import format_number
from unchoke.runs.report.layout import shorten, tell_apart, visible, width
from unchoke.runs.report.svg import Scale, figure, join, label, line, nice_ticks, path, tag

_WIDTH, _HEIGHT = 440.0, 284.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 44.0, 40.0
_MOST_POINTS = 1500
MOST_CLASSES = 50
_LONGEST_NAME = 32
_CHARACTER_PX = 6.6
_WIDER_PX = 2.4
_ROOM_FOR_TEXT_PX, _SMALL = 18, 10.5 / 12
"""Beside smaller cells labels are small, too."""
_WIDE_LETTERS = "mw@%"
_ROOM_FOR_COUNTS_PX = 24


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
    format_y = tick_labels(y_ticks, percent=percent)
    x_scale = Scale(min(xs), max(max(xs), min(xs) + 1), _LEFT, _WIDTH - _RIGHT)
    y_scale = Scale(y_ticks[0], y_ticks[-1], _HEIGHT - _BOTTOM, _TOP)
    body = [*_y_axis(y_ticks, y_scale, format_y), *_x_axis(_whole_ticks(min(xs), max(xs)), x_scale, x_label)]
    if mark_x is not None:
        body += _mark(x_scale(mark_x), mark_label)
    for one in series:
        body.append(_drawn(one, x_scale, y_scale))
    body += _legend(series)
    return figure(ident, title, _describe(series), body, width_px=_WIDTH, height_px=_HEIGHT)


def _drawn(series: Series, x_scale: Scale, y_scale: Scale) -> Markup:
    points = [(x_scale(x), y_scale(y)) for x, y in series.points]
    if len(points) == 1:
        return tag("circle", cx=points[0][0], cy=points[0][1], r=3, class_=f"dot {series.class_}")
    return tag("path", d=path(points), class_=f"curve {series.class_}")


def _describe(series: Sequence[Series]) -> str:
    ends = [f"{one.name} goes from {format_number(one.points[0][1])} to {format_number(one.points[-1][1])}" for one in series]
    return "; ".join(ends)


def _mark(x: float, text: str) -> list[Markup]:
    right = x > _WIDTH * 0.7
    anchor, shift = ("end", -5) if right else ("start", 5)
    return [
        line(x, _TOP - 14, x, _HEIGHT - _BOTTOM, "mark"),
        label(text, x + shift, _TOP - 5, anchor=anchor, class_="label soft"),
    ]


def _legend(series: Sequence[Series]) -> list[Markup]:
    parts, x = [], _LEFT
    for one in series:
        parts += [line(x, 12, x + 16, 12, f"curve {one.class_}"), label(one.name, x + 21, 16)]
        x += 21 + 7.0 * len(one.name) + 22
    return parts


def _y_axis(ticks: Sequence[float], scale: Scale, format_y: Callable[[float], str]) -> list[Markup]:
    parts = []
    for tick in ticks:
        parts += [
            line(_LEFT, scale(tick), _WIDTH - _RIGHT, scale(tick), "grid"),
            label(format_y(tick), _LEFT - 8, scale(tick) + 4, anchor="end"),
        ]
    return parts


def _x_axis(ticks: Sequence[float], scale: Scale, title: str) -> list[Markup]:
    parts = [label(f"{tick:g}", scale(tick), _HEIGHT - _BOTTOM + 17, anchor="middle") for tick in ticks]
    return [*parts, label(title, _WIDTH - _RIGHT, _HEIGHT - 5, anchor="end", class_="label soft")]


def _whole_ticks(low: float, high: float) -> list[float]:
    sizes = (factor * 10**power for power in range(308) for factor in (1, 2, 5))
    step = next(size for size in sizes if (high - low) / 8 <= size)
    first = -(-low // step) * step
    return [first + place * step for place in range(int((high - first) // step) + 1)]


def tick_labels(ticks: Sequence[float], *, percent: bool = False) -> Callable[[float], str]:
    """A format with as many digits as the step between `ticks` needs."""
    factor, unit = (100.0, " %") if percent else (1.0, "")
    step = factor * abs(ticks[1] - ticks[0]) if len(ticks) > 1 else 1.0
    digits = next((digits for digits in range(6) if abs(round(step, digits) - step) < step * 1e-6), 6)
    return lambda value: f"{value * factor:,.{digits}f}{unit}"


class ReliabilityPoint(NamedTuple):
    """Answers given with about one confidence: how sure they were, how many of them were right, how many there are."""

    confidence: float
    accuracy: float
    num_answers: float


def reliability_chart(ident: str, bins: Sequence[ReliabilityPoint]) -> Markup:
    """How often the model was right among answers given with a certain confidence; the diagonal is perfect honesty."""
    side, left, bottom = 330.0, 48.0, 42.0
    x_scale, y_scale = Scale(0, 1, left, side - 22), Scale(0, 1, side - bottom, 14)
    body = _unit_axes(x_scale, y_scale, "confidence of the answer", "share that was right")
    body.append(line(x_scale(0), y_scale(0), x_scale(1), y_scale(1), "ideal"))
    largest = max(point.num_answers for point in bins)
    for sure, right, count in bins:
        x, y = x_scale(sure), y_scale(right)
        told = tag("title", f"confidence {sure:.0%}: right for {right:.0%} of {count:,.0f} answers")
        body.append(line(x, y, x, y_scale(sure), "stem"))
        body.append(tag("circle", told, cx=x, cy=y, r=3 + 8 * (count / largest) ** 0.5, class_="bubble s1"))
    description = "; ".join(f"at confidence {sure:.2f} right for {right:.2f}" for sure, right, _ in bins)
    return figure(ident, "Reliability diagram", description, body, width_px=side, height_px=side)


def _unit_axes(x_scale: Scale, y_scale: Scale, x_title: str, y_title: str) -> list[Markup]:
    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts += [
            line(x_scale(0), y_scale(tick), x_scale(1), y_scale(tick), "grid"),
            label(f"{tick * 100:g} %", x_scale(0) - 8, y_scale(tick) + 4, anchor="end"),
            label(f"{tick * 100:g} %", x_scale(tick), y_scale(0) + 17, anchor="middle"),
        ]
    parts.append(label(x_title, x_scale(1), y_scale(0) + 36, anchor="end", class_="label soft"))
    return [*parts, label(y_title, x_scale(0) + 4, y_scale(1) + 14, class_="label soft")]


def scatter_chart(ident: str, name: str, truth: Sequence[float], predicted: Sequence[float]) -> Markup:
    """Predicted against true values on equal axes, perfect ones on the diagonal. Draws at most 1,500 points, evenly chosen."""
    side, left, bottom = 330.0, 56.0, 42.0
    ticks = nice_ticks(min(*truth, *predicted), max(*truth, *predicted), about=4)
    x_scale, y_scale = Scale(ticks[0], ticks[-1], left, side - 14), Scale(ticks[0], ticks[-1], side - bottom, 14)
    body, shown = [], tick_labels(ticks)
    for tick in ticks:
        body += [
            line(x_scale(ticks[0]), y_scale(tick), x_scale(ticks[-1]), y_scale(tick), "grid"),
            label(shown(tick), left - 8, y_scale(tick) + 4, anchor="end"),
            label(shown(tick), x_scale(tick), side - bottom + 17, anchor="middle"),
        ]
    body.append(line(x_scale(ticks[0]), y_scale(ticks[0]), x_scale(ticks[-1]), y_scale(ticks[-1]), "ideal"))
    step = max(1, -(-len(truth) // _MOST_POINTS))
    pairs = list(zip(truth, predicted, strict=True))[::step]
    body.append(join(tag("circle", cx=x_scale(x), cy=y_scale(y), r=3, class_="point s1") for x, y in pairs))
    body.append(label("truth", side - 14, side - 6, anchor="end", class_="label soft"))
    body.append(label("predicted", left + 4, 26, class_="label soft"))
    description = f"{len(truth)} samples; the diagonal marks perfect predictions"
    return figure(ident, f"{name}: predicted against true values", description, body, width_px=side, height_px=side)


def most_mistaken(matrix: Sequence[Sequence[int]], *, limit: int = MOST_CLASSES) -> list[int]:
    """The classes to draw: all of them, or the `limit` with the most mistakes, in their usual order."""
    if len(matrix) <= limit:
        return list(range(len(matrix)))
    mistakes = [sum(row) + sum(other[place] for other in matrix) - 2 * row[place] for place, row in enumerate(matrix)]
    worst = sorted(range(len(matrix)), key=lambda place: -mistakes[place])[:limit]
    return sorted(worst)


def confusion_chart(ident: str, matrix: Sequence[Sequence[int]], names: Sequence[str], *, in_percent: bool = False) -> Markup:
    """`matrix[truth][answer]` counts: rows are the truth, columns the answers, shading is the share of the whole row. Correct
    answers and mistakes have different hues, so that mistakes stand out.

    In the cells stand the counts, or the shares `in_percent`, where counts (of pixels) would be too long.
    """
    chosen = most_mistaken(matrix)
    cell = cell_px(len(chosen))
    shown = tell_apart([names[place] for place in chosen], _LONGEST_NAME)
    margin = 18 + max(map(_text_px, shown)) * (1 if cell >= _ROOM_FOR_TEXT_PX else _SMALL)
    top, size = margin + 12, cell * len(chosen)
    body = [
        *_grid(len(chosen), cell, margin, top),
        *_names([names[place] for place in chosen], shown, cell, margin, top),
        *_cells(matrix, chosen, names, cell, margin, top, in_percent=in_percent),
    ]
    body.append(label("answer", margin + size, 12, anchor="end", class_="label soft"))
    body.append(label("truth", margin - 8, top - 8, anchor="end", class_="label soft"))
    right = sum(matrix[place][place] for place in range(len(matrix)))
    description = (
        f"{len(matrix)} classes; {right:,} of {sum(map(sum, matrix)):,} answers lie on the diagonal, where they are right"
    )
    return figure(ident, "Confusion matrix", description, body, width_px=margin + size + 24, height_px=top + size + 6)


def cell_px(num_classes: int) -> float:
    """The side of a cell: generous for few classes, small enough that fifty fit a page."""
    return float(max(15, min(44, 620 // max(1, num_classes))))


def _grid(count: int, cell: float, left: float, top: float) -> Iterator[Markup]:
    size, every = cell * count, 1 if count <= 25 else 5
    yield tag("rect", x=left, y=top, width=size, height=size, class_="ground")
    for place in range(0, count + 1, every):
        yield line(left, top + place * cell, left + size, top + place * cell, "grid")
        yield line(left + place * cell, top, left + place * cell, top + size, "grid")


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


def _cells(
    matrix: Sequence[Sequence[int]],
    chosen: Sequence[int],
    names: Sequence[str],
    cell: float,
    left: float,
    top: float,
    *,
    in_percent: bool,
) -> Iterator[Markup]:
    for row, truth in enumerate(chosen):
        total = sum(matrix[truth])
        for column, answer in enumerate(chosen):
            count = matrix[truth][answer]
            if count > 0:
                told = _told(names[truth], names[answer], count, total)
                shown = f"{count / total * 100:.0f} %" if in_percent else f"{count:,}"
                yield _cell(left + column * cell, top + row * cell, cell, shown, count / total, told, hit=truth == answer)


def _told(truth: str, answer: str, count: int, total: int) -> str:
    verb = "recognised" if truth == answer else f"called {shorten(answer, 60)}"
    return f"{shorten(truth, 60)} {verb}: {count:,} of {total:,} ({count / total:.0%})"


def _cell(x: float, y: float, side: float, shown: str, share: float, told: str, *, hit: bool) -> Markup:
    class_ = "hit" if hit else "miss"
    rect = tag("rect", x=x + 1, y=y + 1, width=side - 2, height=side - 2, rx=2, class_=class_, fill_opacity=0.12 + 0.88 * share)
    inside = [tag("title", told), rect]
    if side >= _ROOM_FOR_COUNTS_PX:
        inside.append(
            label(shown, x + side / 2, y + side / 2 + 4, anchor="middle", class_="count on" if share > 0.45 else "count")
        )
    return tag("g", *inside, class_="cell")
