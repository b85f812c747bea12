"""Findings of the trainer's own checks and runs. Rules that look at a run of ours name a `Cause`; those worth it become
findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from unchoke_doctor.finding import Finding as Finding
from unchoke_doctor.finding import Severity as Severity
from unchoke_doctor.finding import rank as rank

WORTH_SHARE = 0.1
"""A cause that takes less of a training than this is a note."""
NOTED_SHARE = 0.03
"""One that takes less than this is not told."""


class _LinePlace(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def function(self) -> str: ...


@dataclass(frozen=True)
class CodeLine:
    """A line of the user's code."""

    file: str = ""
    line: int = 0
    function: str = ""

    @classmethod
    def of(cls, row: _LinePlace) -> CodeLine:
        return cls(row.file, row.line, row.function)


@dataclass(frozen=True)
class Cause:
    """What a rule found: its code, how many seconds of the training it would save, where, and what to do."""

    code: str
    stage: str
    saved_s: float
    message: str
    fix: str
    place: CodeLine = field(default_factory=CodeLine)
    evidence: dict[str, Any] = field(default_factory=dict)
    edit: str = ""
    """What to write instead, or the command that does it."""
    diff: tuple[str, ...] = ()
    """The user's own line before and after, where the edit is safe; only before where the line should go."""
    worth_share: float = WORTH_SHARE
    """From which share of a training on it is more than a note."""


def per(count: float, number: float) -> float:
    return count / number if number else 0.0
