"""A notebook's bytes with pieces of the source of some cells replaced, and nothing else changed: spacing, order, escapes stay.

In come the bytes and what changes in the source of which cells, out go bytes, or None where the file is no UTF-8 JSON notebook.
Positions are found by reading the JSON member by member, never by searching for text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_BOM = b"\xef\xbb\xbf"
_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_TOKEN = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
TextSpan = tuple[int, int]
TextChange = tuple[int, int, str]
"""From which character to which, and what stands there instead."""


@dataclass(frozen=True)
class Letter:
    """One character, how the file spells it, and whether an element of the list of lines begins with it."""

    text: str
    raw: str
    starts: bool


def replace_pieces(data: bytes, changes: Mapping[int, Iterable[TextChange]]) -> bytes | None:
    """The notebook with pieces of these cells (numbered from 1) replaced; those of a cell come last first."""
    try:
        text = data.decode("utf-8-sig")
        spans = list(_cell_spans(text))
        for number in sorted(changes, reverse=True):
            members = dict(_members(text, spans[number - 1][0]))
            begin, end = members["source"] if "source" in members else members["input"]
            text = text[:begin] + _as_written(text[begin:end], changes[number]) + text[end:]
    except (ValueError, LookupError, RecursionError):
        return None
    return (_BOM if data.startswith(_BOM) else b"") + text.encode("utf-8")


def _cell_spans(text: str) -> Iterator[TextSpan]:
    """Where each cell's object stands, in the order of the notebook."""
    top = dict(_members(text, _skip(text, 0)))
    if "cells" in top:
        yield from (span for _, span in _members(text, top["cells"][0]))
        return
    for _, (begin, _end) in _members(text, top["worksheets"][0]):
        sheet = dict(_members(text, begin))
        if "cells" in sheet:
            yield from (span for _, span in _members(text, sheet["cells"][0]))


def _members(text: str, at: int) -> Iterator[tuple[str, TextSpan]]:
    """Key (empty in an array) and place of every value of the object or array that begins at `at`."""
    is_object = text[at] == "{"
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        key = ""
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # past the colon
        _, end = _DECODER.raw_decode(text, at)
        yield key, (at, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _as_written(old: str, changes: Iterable[TextChange]) -> str:
    """The changed source as JSON in the shape of the old: a string or a list, and all that did not change spelled as it was."""
    letters = list(_letters(old))
    for begin, end, text in changes:
        before = [letter.text for letter in letters[begin - 1 : begin]] or ["\n"]
        spelled = [json.dumps(letter, ensure_ascii=old.isascii())[1:-1] for letter in text]
        starts = [letter == "\n" for letter in (*before, *text)]
        letters[begin:end] = map(Letter, text, spelled, starts)
    if not old.startswith("["):
        return '"' + "".join(letter.raw for letter in letters) + '"'
    elements: list[str] = []
    for letter in letters:
        if letter.starts or not elements:
            elements.append("")
        elements[-1] += letter.raw
    gap, between, last = _spacing(old)
    return gap + between.join(f'"{element}"' for element in elements) + last


def _letters(old: str) -> Iterator[Letter]:
    """The characters of a JSON string or list of strings."""
    for found in _STRING.finditer(old):
        for number, token in enumerate(_TOKEN.findall(found.group()[1:-1])):
            yield Letter(json.loads(f'"{token}"', strict=False), token, number == 0)


def _spacing(old: str) -> tuple[str, str, str]:
    """What stands before, between and after the elements of a list."""
    ends = [found.span() for found in _STRING.finditer(old)]
    gap = _SPACE.match(old, 1)
    space = gap.group() if gap else ""
    if not ends:
        return "[", ", ", "]"
    between = old[ends[0][1] : ends[1][0]] if len(ends) > 1 else "," + (space or " ")
    return old[: ends[0][0]], between, old[ends[-1][1] :]
