"""A notebook's bytes with the source of some cells replaced, and nothing else changed: spacing, order, outputs, escapes stay.

In come the bytes and new sources by cell number, out go bytes, or None where the file is no UTF-8 JSON notebook. Positions are
found by reading the JSON member by member, never by searching for text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_TOKEN = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
TextSpan = tuple[int, int]


@dataclass(frozen=True)
class Letter:
    """One character, how the file spells it, and whether an element of the list of lines begins with it."""

    text: str
    raw: str
    starts: bool


def replace_sources(data: bytes, changes: dict[int, str]) -> bytes | None:
    """The notebook with these cells (numbered from 1) given new source."""
    try:
        text = data.decode("utf-8-sig")
        spans = list(_cell_spans(text))
        for number in sorted(changes, reverse=True):
            begin, end = _source_span(text, spans[number - 1])
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


def _source_span(text: str, cell: TextSpan) -> TextSpan:
    members = dict(_members(text, cell[0]))
    return members["source"] if "source" in members else members["input"]


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


def _as_written(old: str, new: str) -> str:
    """The new source as JSON in the shape of the old: a string or a list, and all that did not change spelled as it was."""
    before = list(_letters(old))
    after = list(_changed(before, new, ascii_only=old.isascii()))
    if not old.startswith("["):
        return '"' + "".join(letter.raw for letter in after) + '"'
    elements: list[str] = []
    for letter in after:
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


def _changed(before: list[Letter], new: str, *, ascii_only: bool) -> Iterator[Letter]:
    """The characters of the new text: those of the old where they stayed, fresh ones between."""
    old = "".join(letter.text for letter in before)
    first, second = _LINE.findall(old), _LINE.findall(new)
    starts, others = (list(accumulate(map(len, lines), initial=0)) for lines in (first, second))
    for kind, begin, end, other, stop in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        kept = before[starts[begin] : starts[end]]
        if kind == "equal":
            yield from kept
        else:
            yield from _spliced(kept, new[others[other] : others[stop]], ascii_only=ascii_only)


def _spliced(kept: list[Letter], text: str, *, ascii_only: bool) -> Iterator[Letter]:
    """A piece with its beginning and its end kept as far as they are the same."""
    same = "".join(letter.text for letter in kept)
    head = _shared(same, text)
    tail = _shared(same[head:][::-1], text[head:][::-1])
    yield from kept[:head]
    for number in range(head, len(text) - tail):
        begins = text[number - 1] == "\n" if number else True
        yield Letter(text[number], json.dumps(text[number], ensure_ascii=ascii_only)[1:-1], begins)
    yield from kept[len(kept) - tail :]


def _shared(first: str, second: str) -> int:
    """How many characters two texts begin with together."""
    return next(
        (number for number, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]),
        min(len(first), len(second)),
    )


def _spacing(old: str) -> tuple[str, str, str]:
    """What stands before, between and after the elements of a list."""
    ends = [found.span() for found in _STRING.finditer(old)]
    gap = _SPACE.match(old, 1)
    space = gap.group() if gap else ""
    if not ends:
        return "[", ", ", "]"
    between = old[ends[0][1] : ends[1][0]] if len(ends) > 1 else "," + (space or " ")
    return old[: ends[0][0]], between, old[ends[-1][1] :]
