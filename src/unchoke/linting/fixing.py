"""Mechanical rewrites: edits into a file, and the difference they make. Everything an edit does not touch stays byte for byte.

In come findings with edits, out goes new text (or bytes of the notebook) and a unified diff; `write` puts it in place atomically.
Edits that overlap one taken before are left for the next run. Never decides what to edit: rules do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unchoke.code.magics import plain_python
from unchoke.code.notebook_bytes import replace_sources
from unchoke.code.source import Cell, Source, parse_python
from unchoke.core import atomic
from unchoke.linting.lint_engine import Found
from unchoke.linting.rule import Edit, Place

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True)
class Fixed:
    """One file after its edits; `applied` are the findings that are gone."""

    path: str
    data: bytes
    diff: str
    applied: list[Found]


def fix_source(source: Source, data: bytes, found: Sequence[Found]) -> Fixed | None:
    """The file with every mechanical fix applied that still parses; None where there is none."""
    texts = {cell.number: cell.text for cell in source.cells}
    applied: list[Found] = []
    for item in found:
        if _fits(source, texts, item, applied):
            applied.append(item)
    if not applied:
        return None
    edits = [edit for item in applied for edit in item.hit.all_edits]
    after = {number: apply_edits(text, [edit for edit in edits if edit.place.cell == number]) for number, text in texts.items()}
    new = _notebook_bytes(data, source, after) if source.is_notebook else _script_bytes(data, source, after[None])
    return None if new is None else Fixed(source.path, new, diff_of(source, after), applied)


def _fits(source: Source, texts: dict[int | None, str], item: Found, applied: list[Found]) -> bool:
    """Can this finding's edits go in beside those already taken, and does every cell still parse?"""
    edits = item.hit.all_edits
    taken = [edit for other in applied for edit in other.hit.all_edits]
    if not edits or any(_overlap(edit.place, other.place) for edit in edits for other in taken):
        return False
    for cell in source.cells:
        own = [edit for edit in (*taken, *edits) if edit.place.cell == cell.number]
        if own and not _still_parses(cell, apply_edits(texts[cell.number], own)):
            return False
    return True


def _overlap(first: Place, second: Place) -> bool:
    if first.cell != second.cell:
        return False
    if first == second:
        return True
    begin, end = (first.line, first.column), (first.end_line or first.line, first.end_column)
    other_begin, other_end = (second.line, second.column), (second.end_line or second.line, second.end_column)
    return begin < other_end and other_begin < end


def _still_parses(cell: Cell, text: str) -> bool:
    """A script with magics in it was read without them, and so it is here."""
    tree, _ = parse_python(text if cell.number is None and cell.python == cell.text else plain_python(text).text)
    return tree is not None


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with each place replaced, from the last to the first."""
    starts = _line_starts(text)
    line_end = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    for edit in sorted(edits, key=lambda edit: (edit.place.line, edit.place.column), reverse=True):
        begin = starts[edit.place.line - 1] + edit.place.column
        end = starts[(edit.place.end_line or edit.place.line) - 1] + edit.place.end_column
        text = text[:begin] + re.sub(r"\r?\n", line_end, edit.replacement) + text[end:]
    return text


def _line_starts(text: str) -> list[int]:
    starts = [found.start() for found in _LINE.finditer(text)]
    return starts or [0]


def diff_of(source: Source, after: dict[int | None, str]) -> str:
    """A unified diff; for a notebook one for each cell changed, with the cell in its heading."""
    parts = []
    for cell in source.cells:
        new = after[cell.number]
        if new != cell.text:
            name = source.path if cell.number is None else f"{source.path} cell {cell.number}"
            lines = difflib.unified_diff(_shown(cell.text), _shown(new), f"{name} (before)", f"{name} (after)", lineterm="")
            parts.append("\n".join(lines))
    return "\n".join(parts) + ("\n" if parts else "")


def _shown(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text)


def _script_bytes(data: bytes, source: Source, text: str) -> bytes:
    mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    encoding = "utf-8" if source.encoding == "utf-8-sig" else source.encoding
    new = text.encode(encoding)
    return new if new.startswith(mark) else mark + new


def _notebook_bytes(data: bytes, source: Source, after: dict[int | None, str]) -> bytes | None:
    changed = {cell.number: after[cell.number] for cell in source.cells if after[cell.number] != cell.text}
    return replace_sources(data, {number: text for number, text in changed.items() if number is not None})


def write(fixed: Fixed) -> None:
    """Put the new file in place of the old, wholly or not at all."""
    atomic.write_bytes(Path(fixed.path), fixed.data)
