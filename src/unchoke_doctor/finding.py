"""A finding: one problem, with its place, its evidence and what to do about it. Plain data; text, JSON and HTML render it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from unchoke_doctor.errors import shorten_values

Severity = Literal["error", "warning", "info"]
Kind = Literal["choke", "risk", "note"]
Basis = Literal["measured", "outputs", "code", ""]
Status = Literal["confirmed", "refuted", "not reached", ""]
_RANK = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Finding:
    """`severity` decides whether a gate stops; `paths` holds every file concerned, `path` the first."""

    code: str
    """What kind of finding it is: the name of a cause."""
    message: str
    """What was found, in words."""
    severity: Severity = "warning"
    """Whether it stops a gate (error), needs attention (warning), or is worth knowing (info)."""
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
    """What the fix would bring; empty unless it was computed from a measurement or from saved outputs."""
    fix: str = ""
    """What to do about it."""
    command: str = ""
    """The command that does it."""
    paths: tuple[str, ...] = ()
    """Every file concerned."""
    kind: Kind | None = None
    """Of code: it costs time or loses work (choke), it may break elsewhere (risk), or it hardly matters (note)."""
    basis: Basis = ""
    """Of code: what it rests on. A measurement of this code, the notebook's saved outputs, or the code alone."""
    status: Status = ""
    """Of code that was run afterwards: whether the measurement confirms it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shorten_values(self.message))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rank(findings: list[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes; stable within each."""
    return sorted(findings, key=lambda finding: _RANK[finding.severity])
