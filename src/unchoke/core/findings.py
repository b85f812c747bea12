"""A finding: one problem or choke point, with its place, its evidence and what to do about it.

`check`, `lint` and `profile` all produce these; `reports` renders them. Rules that look for choke points in a run, ours or
somebody's script, name a `Cause` with the seconds it costs; those that are worth it become findings.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from unchoke.core.errors import shorten_values

Severity = Literal["error", "warning", "info"]
Kind = Literal["choke", "risk", "nit"]
_RANK = {"error": 0, "warning": 1, "info": 2}
WORTH_SHARE = 0.1
"""A cause that takes less of a training than this is a note."""
NOTED_SHARE = 0.03
"""One that takes less than this is not told."""


@dataclass(frozen=True)
class Finding:
    """`severity` decides whether a gate stops; `paths` holds every file concerned, `path` the first."""

    code: str
    """What kind of finding it is."""
    message: str
    """What was found, in words."""
    severity: Severity = "warning"
    """Whether it stops a gate (error), should be seen to (warning), or is worth knowing (info)."""
    path: str | None = None
    """The first file concerned."""
    line: int | None = None
    """The line in it, counted from 1."""
    cell: int | None = None
    """The cell of a notebook, counted from 1."""
    stage: str = "index"
    """Which part of the work it is about."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The figures behind it."""
    expected_gain: str = ""
    """What seeing to it would bring."""
    fix: str = ""
    """What to do about it."""
    command: str = ""
    """The command that does it."""
    paths: tuple[str, ...] = ()
    """Every file concerned."""
    kind: Kind | None = None
    """Of `lint`: whether it likely costs time or loses work (choke), may break elsewhere (risk), or hardly matters (nit)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shorten_values(self.message))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rank(findings: list[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes; stable within each."""
    return sorted(findings, key=lambda finding: _RANK[finding.severity])


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
