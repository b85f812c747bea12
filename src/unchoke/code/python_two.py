"""Is a text that does not parse Python 2? Told by what only Python 2 has: print statements, `except E, e`, `<>`, `0777`.

In come a text and the line at which Python 3 gave up; out goes the first sign and its line, or None. Nothing is converted here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_END = re.compile(r"\r\n|\r|\n")
_SIGNS = (
    ("print statement", re.compile(r"^\s*print(?:\s+(?![=.,:)\]+*/|&<>-])|\s*>>\s*\w|['\"])(?!.*=\s*print\b)")),
    ("`except E, e:`", re.compile(r"^\s*except\s+[\w.]+\s*,\s*\w+\s*:")),
    ("`raise E, text`", re.compile(r"^\s*raise\s+[\w.]+\s*,\s*\S")),
    ("exec statement", re.compile(r"^\s*exec\s+[\w'\"]")),
    ("`<>` for `!=`", re.compile(r"\w\s*<>\s*\w")),
    ("a number like 0777", re.compile(r"(?<![\w.])0[0-7]+(?![\w.])")),
    ("a number like 10L", re.compile(r"(?<![\w.])\d+[lL]\b")),
    ("a string like ur''", re.compile(r"\bur['\"]")),
    ("a parameter that is a tuple", re.compile(r"^\s*def\s+\w+\s*\([^)]*?\(\s*\w+\s*,")),
)


@dataclass(frozen=True)
class OldPython:
    """What gave it away, in words, and on which line."""

    line: int
    sign: str


def python_two(text: str, line: int | None) -> OldPython | None:
    """The sign of Python 2 at the line where Python 3 gave up; elsewhere such a line may be part of a string."""
    lines = _END.split(text)
    if line is None or not 0 < line <= len(lines):
        return None
    for name, sign in _SIGNS:
        if sign.search(lines[line - 1]):
            return OldPython(line, f"{name} at line {line}")
    return None
