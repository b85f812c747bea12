"""A finding: one problem or choke point, with its place, its evidence and what to do about it.

`check`, `lint` and `profile` all produce these; `report` renders them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
_RANK = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Finding:
    """`severity` decides whether a gate stops; `paths` holds every file concerned, `path` the first."""

    code: str
    message: str
    severity: Severity = "warning"
    path: str | None = None
    line: int | None = None
    cell: int | None = None
    stage: str = "index"
    evidence: dict[str, Any] = field(default_factory=dict)
    expected_gain: str = ""
    fix: str = ""
    command: str = ""
    paths: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rank(findings: list[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes; stable within each."""
    return sorted(findings, key=lambda finding: _RANK[finding.severity])
