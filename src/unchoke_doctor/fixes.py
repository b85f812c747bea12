"""Fixes that alter nothing but the speed: how a rule builds an edit, and how edits get into a file.

`lint` keeps a fix only if its proof holds in the file itself: it still parses, the finding is gone and no other has come. Every
byte outside the edits stays as it was, in scripts of any encoding and in the JSON of notebooks.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unchoke_doctor.code.magics import LINE_END, split_lines
from unchoke_doctor.code.notebook_bytes import TextChange, replace_pieces
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.source import CodePlace, SourceFile
from unchoke_doctor.rules import Edit

_COMMENT = re.compile(r"#[^\r\n]*")


@dataclass(frozen=True)
class FixedFile:
    """A file after its fixes; `num_fixed` findings are gone."""

    path: str
    data: bytes
    diff: str
    num_fixed: int


# Edits that rules build ---------------------------------------------------------------------------------------------------


def add_keyword(program: Program, call: ast.Call, name: str, value: str) -> Edit | None:
    """`name=value` behind the last argument of a call; None if the call cannot take it there."""
    arguments = [*call.args, *(word.value for word in call.keywords)]
    if any(word.arg in (name, None) for word in call.keywords) or any(isinstance(part, ast.GeneratorExp) for part in call.args):
        return None
    last = max(arguments, key=lambda part: (part.end_lineno or 0, part.end_col_offset or 0), default=call.func)
    lines, begin, end = split_lines(program.cell(call).text), program.place(last), program.place(call)
    if lines[end.end_line - 1][: end.end_column][-1:] != ")":  # a cell whose lines are indented unevenly
        return None
    # Between the last argument and the closing bracket stand brackets around it, a comma, comments and line ends.
    at, comma = (begin.end_line, begin.end_column), False
    for line in range(begin.end_line, end.end_line + 1):
        start = begin.end_column if line == begin.end_line else 0
        stop = end.end_column - 1 if line == end.end_line else None
        for found in re.finditer(r"\S", _COMMENT.sub("", lines[line - 1][start:stop])):
            at, comma = (line, start + found.end()), comma or found[0] == ","
    text = f"{name}={value}" if not arguments else f" {name}={value}," if comma else f", {name}={value}"
    return _insertion(begin.cell, *at, text)


def append(program: Program, expr: ast.expr, text: str) -> Edit:
    """`text`, such as `.prefetch(2)`, directly behind an expression."""
    place = program.place(expr)
    return _insertion(place.cell, place.end_line, place.end_column, text)


def decorate(program: Program, function: ast.FunctionDef, text: str) -> Edit:
    """A decorator directly above `def`."""
    place = program.place(function)
    indent = split_lines(program.cell(function).text)[place.line - 1][: place.column]
    return _insertion(place.cell, place.line, place.column, f"{text}\n{indent}")


def _insertion(cell: int | None, line: int, column: int, text: str) -> Edit:
    return Edit(CodePlace(cell, line, column, line, column), text)


# Edits into text and bytes ------------------------------------------------------------------------------------------------


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text of a cell or script with each place replaced."""
    for begin, end, new in _changes(text, edits):
        text = text[:begin] + new + text[end:]
    return text


def _changes(text: str, edits: Iterable[Edit]) -> list[TextChange]:
    """Edits by characters of the text, from the last to the first, with its own line ends."""
    ends = list(LINE_END.finditer(text))
    starts = [0, *(found.end() for found in ends)]
    line_end = ends[0][0] if ends else "\n"
    found = []
    for edit in sorted(set(edits), key=lambda edit: edit.place, reverse=True):
        place = edit.place
        begin, end = starts[place.line - 1] + place.column, starts[(place.end_line or place.line) - 1] + place.end_column
        found.append((begin, end, edit.text.replace("\n", line_end)))
    if any(end > later for (_, end, _), (later, _, _) in zip(found[1:], found, strict=False)):
        raise ValueError("edits overlap")
    return found


def apply(source: SourceFile, data: bytes, edits: Sequence[Edit]) -> bytes | None:
    """The file with the edits in it; None where they cannot go in without a change elsewhere."""
    try:
        if source.is_notebook:
            texts = {cell.number: cell.text for cell in source.cells if cell.number is not None}
            cells = {edit.place.cell for edit in edits if edit.place.cell is not None}
            changes = {cell: _changes(texts[cell], [edit for edit in edits if edit.place.cell == cell]) for cell in cells}
            return replace_pieces(data, changes)
        text = source.cells[0].text
        if text.encode(source.encoding) != data:
            return None
        return apply_edits(text, edits).encode(source.encoding)
    except (ValueError, LookupError):  # also a character that the encoding does not have
        return None


def preview(text: str, edits: Sequence[Edit]) -> list[str]:
    """The lines of a cell or script that edits alter, as `- before` and `+ after`."""
    try:
        before, after = split_lines(text), split_lines(apply_edits(text, edits))
    except (ValueError, IndexError):
        return []
    return [line[0] + " " + line[1:] for line in _diff_lines(before, after, context=0) if line[:1] in ("-", "+")]


def _diff_lines(before: list[str], after: list[str], *, context: int) -> Iterator[str]:
    """The lines of a unified diff without its heading."""
    yield from list(difflib.unified_diff(before, after, lineterm="", n=context))[2:]


def diff_text(before: SourceFile, after: SourceFile) -> str:
    """A unified diff; for a notebook one for each cell that changed, with the cell in its heading."""
    parts = []
    for old, new in zip(before.cells, after.cells, strict=True):
        if old.text != new.text:
            name = before.path if old.number is None else f"{before.path} cell {old.number}"
            parts += [f"--- {name}", f"+++ {name}", *_diff_lines(split_lines(old.text), split_lines(new.text), context=3)]
    return "\n".join(parts)
