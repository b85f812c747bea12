"""Comments and markdown: what an author tells people, and where, without parsing it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unchoke.code.source import Cell
from unchoke.linting.rule import Place

Prose = tuple[int | None, str]
_PIECES = re.compile(
    r"""(?P<triple>\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z)|'''(?:\\.|[^\\])*?(?:'''|\Z))"""
    r"""|"(?:\\.|[^"\\\n\r])*"?|'(?:\\.|[^'\\\n\r])*'?|(?P<comment>\#[^\n\r]*)|(?P<end>\r\n|\r|\n)""",
    re.DOTALL,
)
_LINE_END = re.compile(r"\r\n|\r|\n")


def comments_of(cell: Cell) -> Iterator[tuple[Place, str]]:
    """Each comment of a code cell with its place."""
    if "#" not in cell.python:
        return
    line, start = 1, 0
    for found in _PIECES.finditer(cell.python):
        kind = found.lastgroup
        if kind == "comment":
            column = found.start() - start + cell.indent
            text = found.group()
            yield Place(cell.number, line, column, line, column + len(text)), text.lstrip("#").strip()
        elif kind == "end":
            line, start = line + 1, found.end()
        elif kind == "triple":
            ends = list(_LINE_END.finditer(found.group()))
            if ends:
                line, start = line + len(ends), found.start() + ends[-1].end()


def prose_of(cell: Cell) -> Iterator[Prose]:
    """The text of a markdown cell, or the comments of a code cell."""
    if cell.kind != "code":
        yield cell.number, cell.text
    elif cell.executed:
        yield from ((cell.number, text) for _, text in comments_of(cell))
