"""The errors a person may see.

    UnchokeError
    ├── UsageError      exit 2   a wrong option, a missing file or column: the command must change
    ├── DataError       exit 1   the data has problems, or too many items failed
    ├── MachineError    exit 3   this machine cannot: no room, no hub, a missing extra
    └── Interrupted     exit 130 stopped on request, resumable

Every error says three things: what happened (with the value), why (the fact behind it) and what to try. Its `code` names the
kind of problem and stays when the words improve: programs and tests match it, `docs/reference/errors.md` lists them. Foreign
errors are translated into these once, at the boundary where they arise; anything else that escapes is our bug and keeps its
traceback.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST_VALUE, _LONGEST_LINE = 200, 2000
"""Characters of one value, and of one line, that a message quotes."""


class UnchokeError(Exception):
    """A problem that can be explained in three lines."""

    exit_code = 1

    def __init__(self, what: str, *, code: str, why: str, try_: str) -> None:
        self.code = code
        self.what = shorten_values(what)
        self.why = shorten_values(why)
        self.try_ = try_
        super().__init__(self.what)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep code, lines and attributes when the error crosses a process boundary."""
        return (_rebuild, (type(self), self.what, self.code, self.why, self.try_), self.__dict__)


class UsageError(UnchokeError):
    """The command as typed cannot work."""

    exit_code = 2


class DataError(UnchokeError):
    """The data is not sound enough to go on."""

    exit_code = 1


class MachineError(UnchokeError):
    """This machine lacks something: room, a package, a network."""

    exit_code = 3


class Interrupted(UnchokeError):  # noqa: N818 (a request, not a fault)
    """Stopped on request; the same command goes on from here."""

    exit_code = 130


def _rebuild(kind: type[UnchokeError], what: str, code: str, why: str, try_: str) -> UnchokeError:
    return kind(what, code=code, why=why, try_=try_)


def shorten_values(text: str) -> str:
    """A message in which no value of the user's data is longer than a person reads: a quoted text, a word, a line.

    What is left out is counted: a cell of 3 MB reads as its beginning, its length and its end.
    """
    if len(text) <= _LONGEST_VALUE:
        return text
    lines = (_LONG_VALUE.sub(lambda found: _cut(found[0], _LONGEST_VALUE), line) for line in text.split("\n"))
    return "\n".join(_cut(line, _LONGEST_LINE) for line in lines)


_LONG_VALUE = re.compile(rf"'[^']{{{_LONGEST_VALUE},}}'|\S{{{_LONGEST_VALUE},}}")


def _cut(text: str, longest: int) -> str:
    """The beginning and the end of a text that is too long, and how long it was."""
    if len(text) <= longest:
        return text
    head = longest // 2
    return f"{text[:head]} … ({len(text):,} characters) … {text[-head // 4 :]}"


def list_some(items: Sequence[str], *, limit: int = 5) -> str:
    """The first few items and how many more there are: ``a, b, c and 4 more``."""
    shown = ", ".join(items[:limit])
    rest = len(items) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown
