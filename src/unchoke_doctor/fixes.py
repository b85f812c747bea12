"""Fixes that alter nothing but the speed: how a rule builds an edit, and how edits get into a file.

`lint` keeps a fix only if its proof holds in the file itself: it still parses, the finding is gone and no other has come. Every
byte outside the edits stays as it was, in scripts of any encoding and in the JSON of notebooks; a notebook whose JSON cannot be
written again byte for byte is left alone.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from unchoke_doctor.code.magics import LINE_END, split_lines
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.source import Cell, CodePlace, SourceFile
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
    lines, begin, end = program.cell(call).lines, program.place(last), program.place(call)
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
    indent = program.cell(function).lines[place.line - 1][: place.column]
    return _insertion(place.cell, place.line, place.column, f"{text}\n{indent}")


def _insertion(cell: int | None, line: int, column: int, text: str) -> Edit:
    return Edit(CodePlace(cell, line, column, line, column), text)


# Edits into text and bytes ------------------------------------------------------------------------------------------------


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text of a cell or script with each place replaced, from the last to the first, with its own line ends."""
    ends = list(LINE_END.finditer(text))
    starts = [0, *(found.end() for found in ends)]
    line_end, later = ends[0][0] if ends else "\n", len(text)
    for edit in sorted(set(edits), key=lambda edit: edit.place, reverse=True):
        place = edit.place
        begin, end = starts[place.line - 1] + place.column, starts[(place.end_line or place.line) - 1] + place.end_column
        if end > later:
            continue  # of two edits that overlap the later one stays
        text, later = text[:begin] + edit.text.replace("\n", line_end) + text[end:], begin
    return text


def apply(source: SourceFile, data: bytes, edits: Sequence[Edit]) -> bytes | None:
    """The file with the edits in it; None where they cannot go in without a change elsewhere."""
    try:
        if source.is_notebook:
            texts = {cell.number: cell.text for cell in source.cells}
            cells = {edit.place.cell for edit in edits}
            return _rewrite(
                data, {n: apply_edits(texts[n], [edit for edit in edits if edit.place.cell == n]) for n in cells if n}
            )
        text = source.cells[0].text
        return apply_edits(text, edits).encode(source.encoding) if text.encode(source.encoding) == data else None
    except (ValueError, LookupError, RecursionError):  # also a character that the encoding does not have
        return None


def _rewrite(data: bytes, texts: Mapping[int, str]) -> bytes | None:
    """The notebook with the source of these cells replaced; None where no layout of JSON gives the bytes that were read."""
    book = json.loads(data.decode("utf-8-sig"))
    layout = next((one for one in _LAYOUTS if _written(book, data, *one) == data), None)
    for number, text in texts.items() if layout is not None else ():
        cell = book["cells"][number - 1]
        cell["source"] = text if isinstance(cell["source"], str) else text.splitlines(keepends=True)
    return _written(book, data, *layout) if layout is not None else None


_LAYOUTS = [(indent, ascii, safe) for indent in (1, 2, 4, 0) for ascii in (False, True) for safe in (False, True)]
"""Indentation, letters beyond ASCII as escapes, `<`, `>` and `&` as escapes: how Jupyter, VS Code, Kaggle and Colab write."""


def _written(book: object, like: bytes, indent: int | None, ascii: bool, safe: bool) -> bytes:
    """JSON in one layout, with the byte order mark, the line ends and the end of the file as they were."""
    compact = b'":' in like and b'": ' not in like
    text = json.dumps(book, indent=indent or None, ensure_ascii=ascii, separators=(",", ":") if compact else None)
    for letter in "<>&" if safe else "":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    end = like[len(like.rstrip()) :]
    line_end = "\r\n" if b"\r\n" in like else "\n"
    return (b"\xef\xbb\xbf" if like.startswith(b"\xef\xbb\xbf") else b"") + text.replace("\n", line_end).encode() + end


def preview(cell: Cell, edits: Sequence[Edit]) -> list[str]:
    """The lines of a cell or script that edits alter, as `- before` and `+ after`."""
    shown: list[str] = []
    for first, some in groupby(sorted(edits, key=lambda edit: edit.place), key=lambda edit: edit.place.line):
        moved = [replace(edit, place=edit.place.shifted(1 - first)) for edit in some]
        before = cell.lines[first - 1 : first - 1 + max(edit.place.end_line for edit in moved)]
        after = split_lines(apply_edits("\n".join(before), moved))
        shown += [line[0] + " " + line[1:] for line in _diff_lines(before, after, context=0) if line[:1] in ("-", "+")]
    return shown


def _diff_lines(before: list[str], after: list[str], *, context: int) -> list[str]:
    """The lines of a unified diff without its heading."""
    return list(difflib.unified_diff(before, after, lineterm="", n=context))[2:]


def diff_text(before: SourceFile, after: SourceFile) -> str:
    """A unified diff; for a notebook one for each cell that changed, with the cell in its heading."""
    parts = []
    for old, new in zip(before.cells, after.cells, strict=True):
        if old.text != new.text:
            name = before.path if old.number is None else f"{before.path} cell {old.number}"
            parts += [f"--- {name}", f"+++ {name}", *_diff_lines(old.lines, new.lines, context=3)]
    return "\n".join(parts)
