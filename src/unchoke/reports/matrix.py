"""The confusion matrix as inline SVG: rows are the truth, columns the answers, shading is the share of the row.

Correct answers and mistakes have different hues, so that mistakes stand out. Counts appear on hover, and in the
cells while there is room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from unchoke.reports.layout import shorten
from unchoke.reports.svg import figure, label, line, tag

MOST_CLASSES = 50
_LONGEST_NAME = 20
_CHARACTER_PX = 6.6
_ROOM_FOR_COUNTS_PX = 24


def most_mistaken(matrix: Sequence[Sequence[int]], *, limit: int = MOST_CLASSES) -> list[int]:
    """The classes to draw: all of them, or the `limit` with the most mistakes, in their usual order."""
    if len(matrix) <= limit:
        return list(range(len(matrix)))
    mistakes = [sum(row) + sum(other[place] for other in matrix) - 2 * row[place] for place, row in enumerate(matrix)]
    worst = sorted(range(len(matrix)), key=lambda place: -mistakes[place])[:limit]
    return sorted(worst)


def confusion_chart(ident: str, matrix: Sequence[Sequence[int]], names: Sequence[str], *, in_percent: bool = False) -> Markup:
    """`matrix[truth][answer]` counts; shares are of whole rows, also when only some classes are drawn.

    In the cells stand the counts, or the shares `in_percent`, where counts (of pixels) would be too long.
    """
    chosen = most_mistaken(matrix)
    cell = cell_px(len(chosen))
    margin = 14 + _CHARACTER_PX * max(min(len(names[place]), _LONGEST_NAME) for place in chosen)
    top, size = margin + 12, cell * len(chosen)
    body = [
        *_grid(len(chosen), cell, margin, top),
        *_names(chosen, names, cell, margin, top),
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


def _names(chosen: Sequence[int], names: Sequence[str], cell: float, left: float, top: float) -> Iterator[Markup]:
    class_ = "label" if cell >= 18 else "label small"
    for place, index in enumerate(chosen):
        name, middle = shorten(names[index], _LONGEST_NAME), (place + 0.5) * cell
        yield label(name, left - 8, top + middle + 4, anchor="end", class_=class_)
        x, y = left + middle + 4, top - 8
        yield label(name, x, y, class_=class_, transform=f"rotate(-90 {x:.1f} {y:.1f})")


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
