"""Mechanical rewrites: edits into a file, and the difference they make. Everything an edit does not touch stays byte for byte.

In come a file's bytes and rules; out goes a `FileRepair`: new bytes, a unified diff, what is gone and what is left. A file is
fixed, read again and fixed again until nothing more can be: edits that overlap one taken before wait for the next round.
`put_in_place` writes it, wholly or not at all. Never decides what to edit: rules do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from unchoke.code.magics import FILE_CELLS, plain_python, split_lines, written_python
from unchoke.code.neighbours import with_neighbours
from unchoke.code.notebook_bytes import TextChange, replace_pieces
from unchoke.code.source import Cell, CodePlace, SourceFile, is_borrowed, parse_python, parse_source
from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.linting.lint_engine import FileProblem, LintFinding, lint_source
from unchoke.linting.rule import Edit
from unchoke.linting.rules import LoadedRule

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_MOST_ROUNDS = 10  # edits that overlap wait for the next round
_NOT_REWRITTEN = ("utf-16", "utf-32")  # Python runs no script in them, and their byte order would not survive


@dataclass(frozen=True)
class FileFix:
    """One file after its edits; `applied` are the findings that are gone."""

    path: str
    data: bytes
    diff: str
    applied: list[LintFinding]


@dataclass(frozen=True)
class FileRepair(FileFix):
    """A file fixed as often as that changes something. `found` and `problems` are what is there now."""

    found: list[LintFinding]
    problems: list[FileProblem]

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, "fixed": [item.finding.to_dict() for item in self.applied], "diff": self.diff}


def fix_source(source: SourceFile, data: bytes, found: Sequence[LintFinding]) -> FileFix | None:
    """The file with every mechanical fix applied that still parses; None where there is none."""
    texts = {cell.number: cell.text for cell in source.cells}
    applied: list[LintFinding] = []
    for item in found:
        if _fits(source, texts, item, applied):
            applied.append(item)
    if not applied:
        return None
    edits = {number: [edit for item in applied for edit in item.hit.all_edits if edit.place.cell == number] for number in texts}
    after = {number: apply_edits(text, edits[number]) for number, text in texts.items()}
    if source.is_notebook:
        changes = {number: _changes(text, edits[number]) for number, text in texts.items() if number is not None}
        new = replace_pieces(data, {number: some for number, some in changes.items() if some})
    else:
        new = _script_bytes(data, source, after[None])
    return None if new is None else FileFix(source.path, new, diff_of(source, after), applied)


def _fits(source: SourceFile, texts: dict[int | None, str], item: LintFinding, applied: list[LintFinding]) -> bool:
    """Can this finding's edits go in beside those already taken, and does every cell still parse?"""
    edits = item.hit.all_edits
    taken = [edit for other in applied for edit in other.hit.all_edits]
    if not edits or any(is_borrowed(edit.place) for edit in edits):
        return False
    if any(_overlap(edit.place, other.place) for edit in edits for other in taken):
        return False
    for cell in source.cells:
        own = [edit for edit in (*taken, *edits) if edit.place.cell == cell.number]
        if own and not _still_parses(cell, apply_edits(texts[cell.number], own)):
            return False
    return True


def _overlap(first: CodePlace, second: CodePlace) -> bool:
    if first.cell != second.cell:
        return False
    if first == second:
        return True
    begin, end = (first.line, first.column), (first.end_line or first.line, first.end_column)
    other_begin, other_end = (second.line, second.column), (second.end_line or second.line, second.end_column)
    return begin < other_end and other_begin < end


def _still_parses(cell: Cell, text: str) -> bool:
    """A script with magics in it was read without them, and so it is here; what a cell writes follows its first line."""
    if cell.language in FILE_CELLS:
        python = written_python(text)
    else:
        python = text if cell.number is None and cell.python == cell.text else plain_python(text).text
    return parse_python(python)[0] is not None


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with each place replaced."""
    for begin, end, new in _changes(text, edits):
        text = text[:begin] + new + text[end:]
    return text


def _changes(text: str, edits: Iterable[Edit]) -> list[TextChange]:
    """Edits by characters of the text, from the last to the first, with its own line ends."""
    starts = [found.start() for found in _LINE.finditer(text)] or [0]
    line_end = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    found = []
    for edit in sorted(edits, key=lambda edit: (edit.place.line, edit.place.column), reverse=True):
        end = starts[(edit.place.end_line or edit.place.line) - 1] + edit.place.end_column
        new = re.sub(r"\r?\n", line_end, edit.replacement)
        found.append((starts[edit.place.line - 1] + edit.place.column, end, new))
    return found


def diff_of(source: SourceFile, after: dict[int | None, str]) -> str:
    """A unified diff; for a notebook one for each cell changed, with the cell in its heading."""
    parts = []
    for cell in source.cells:
        new = after[cell.number]
        if new != cell.text:
            name = source.path if cell.number is None else f"{source.path} cell {cell.number}"
            lines = difflib.unified_diff(
                split_lines(cell.text), split_lines(new), f"{name} (before)", f"{name} (after)", lineterm=""
            )
            parts.append("\n".join(lines))
    return "\n".join(parts) + ("\n" if parts else "")


def line_diff(item: LintFinding) -> list[str]:
    """The author's lines as they are (`- …`) and as the finding would have them (`+ …`); empty where it shows no edit."""
    edits = item.hit.all_edits or item.hit.suggestion
    lines: list[str] = []
    for cell in item.source.cells:
        own = [edit for edit in edits if edit.place.cell == cell.number]
        own = own if own and _still_parses(cell, apply_edits(cell.text, own)) else []
        before, after = split_lines(cell.text), split_lines(apply_edits(cell.text, own)) if own else []
        for kind, begin, end, other, stop in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if own else ():
            if kind != "equal":
                lines += [f"- {line}" for line in before[begin:end]] + [f"+ {line}" for line in after[other:stop]]
            if kind == "insert":
                lines += [f"  {line}" for line in before[begin : begin + 1]]
    return lines


def _script_bytes(data: bytes, source: SourceFile, text: str) -> bytes:
    mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    encoding = "utf-8" if source.encoding == "utf-8-sig" else source.encoding
    new = text.encode(encoding)
    return new if new.startswith(mark) else mark + new


def repair(path: str, data: bytes, rules: Sequence[LoadedRule]) -> FileRepair | None:
    """The file with every mechanical fix applied; None where there is none."""
    before = source = with_neighbours(parse_source(path, data))
    found, problems = lint_source(source, rules)
    applied: list[LintFinding] = []
    for _ in range(_MOST_ROUNDS):
        if source.encoding.startswith(_NOT_REWRITTEN):
            break
        try:
            fixed = fix_source(source, data, found)
        except UnicodeError:  # a notebook in another encoding than UTF-8: left as it is
            break
        if fixed is None or fixed.data == data:
            break
        applied += fixed.applied
        data = fixed.data
        source = with_neighbours(parse_source(path, data))
        found, problems = lint_source(source, rules)
    if not applied:
        return None
    diff = diff_of(before, {cell.number: cell.text for cell in source.cells})
    return FileRepair(path, data, diff, applied, found, problems)


def put_in_place(repaired: FileFix) -> None:
    """Write the file, wholly or not at all; a link stays a link, and the mode of the file stays as it was."""
    path = Path(repaired.path).resolve()
    try:
        mode = path.stat().st_mode
        atomic.write_bytes(path, repaired.data)
        path.chmod(mode & 0o7777)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"cannot write {repaired.path}",
            code="output-not-writable",
            why=why,
            try_="--diff shows the fixes without writing them",
        ) from error
