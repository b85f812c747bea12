"""Plain text in lines and columns: no colours, no dependence on a terminal, safe for names taken from files.

`visible` makes control characters, bidirectional overrides and undecodable bytes readable instead of effective; `columns` aligns
cells by the width they take on screen. Knows nothing of runs or findings.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import takewhile

_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = {"\u200c", "\u200d"}
_LONGEST_CELL = 500
_GAP = "  "


def visible(text: object, *, keep: str = "") -> str:
    """`text` with characters that could steer a terminal written as escapes (``\\x1b``); those in `keep` stay."""
    return "".join(
        one
        if one in keep or one in _JOINERS or unicodedata.category(one) not in _HIDDEN_CATEGORIES
        else one.encode("unicode_escape", "surrogatepass").decode("ascii")
        for one in str(text)
    )


def visible_block(text: object) -> str:
    """As `visible`, for text of several lines: line ends and tabs stay."""
    return visible(text, keep="\n\t")


def width(text: str) -> int:
    """How many terminal cells `text` takes: wide characters two, combining marks none."""
    shown = [one for one in text if not unicodedata.combining(one) and one not in _JOINERS]
    return len(shown) + sum(unicodedata.east_asian_width(one) in "WF" for one in shown)


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """`text` padded with spaces to `cells`; on the left when `right`-aligned."""
    fill = " " * max(0, cells - width(text))
    return fill + text if right else text + fill


def columns(rows: Sequence[Sequence[object]], *, header: Sequence[str] = (), right: Sequence[int] = (), indent: str = "") -> str:
    """Rows as aligned columns; the columns numbered in `right` are right-aligned, the last one is never padded. Below a header,
    columns in which nothing stands are left out, and a cell longer than anyone reads is cut.
    """
    body = [[shorten(cell, _LONGEST_CELL) for cell in row] for row in rows]
    cells = [[visible(cell) for cell in header], *body] if header else body
    if not cells:
        return ""
    shown = [place for place in range(len(cells[0])) if not header or not body or any(row[place] for row in body)]
    cells = [[row[place] for place in shown] for row in cells]
    widths = [max(width(row[place]) for row in cells) for place in range(len(shown))]
    lines = [_line(row, widths, [new for new, old in enumerate(shown) if old in right]) for row in cells]
    if header:
        lines.insert(1, _GAP.join("-" * cells_wide for cells_wide in widths))
    return "\n".join(indent + line for line in lines)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    return _GAP.join(pad(cell, widths[place], right=place in right) for place, cell in enumerate(row)).rstrip()


def wrap(text: object, *, indent: str, limit: int = 110) -> str:
    """One paragraph broken at spaces; words are never cut, so paths and commands stay whole."""
    lines = textwrap.wrap(visible(text), limit, break_long_words=False, break_on_hyphens=False)
    return "\n".join(indent + line for line in lines)


def tell_apart(names: Sequence[str], limit: int) -> list[str]:
    """Names made visible and cut to `limit` characters so that different ones stay different: where cutting the end makes some
    alike, what they begin with in common is cut instead; what is alike even so is numbered.
    """
    full = [visible(name) for name in names]
    shown = [shorten(name, limit) for name in full]
    for alike in _alike(full, shown):
        texts = [full[place] for place in alike]
        pairs = zip(min(texts), max(texts), strict=False)
        common = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        for place in alike:
            rest = full[place][max(0, min(common - 2, len(full[place]) - limit + 1)) :]
            shown[place] = shorten(f"…{rest}", limit)
    for alike in _alike(full, shown):
        for number, place in enumerate(alike, start=1):
            mark = f"…{number}"
            shown[place] = shown[place][: limit - len(mark)] + mark
    return shown


def _alike(full: Sequence[str], shown: Sequence[str]) -> list[list[int]]:
    """Places of different names that are shown alike."""
    places: dict[str, list[int]] = {}
    for place, text in enumerate(shown):
        places.setdefault(text, []).append(place)
    return [group for group in places.values() if len({full[place] for place in group}) > 1]


def shorten(text: object, limit: int) -> str:
    """`text` made visible and cut to `limit` characters, the cut marked."""
    shown = visible(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
