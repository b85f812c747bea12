"""What a rule is and what it says: `Rule`, `Hit`, `Edit`, `Place`. Plain values, no behaviour of their own.

A rule file holds one `RULE` and one `check(program)` that yields hits; `engine` turns hits into findings.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Literal

from unchoke.core.findings import Severity

Group = Literal["input", "device", "resume", "process", "compute"]


@dataclass(frozen=True, order=True)
class Place:
    """Where in the source: the cell (None in a script), lines from 1, columns from 0, counted in characters."""

    cell: int | None
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0


@dataclass(frozen=True)
class Edit:
    """A piece of source to replace. An empty piece (start = end) is an insertion."""

    place: Place
    replacement: str


@dataclass(frozen=True)
class Hit:
    """One choke point found by a rule. `fix` is what to write instead; `edits` do it where that is mechanical."""

    at: ast.AST | Place
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    fix: str = ""
    edit: Edit | None = None
    edits: tuple[Edit, ...] = ()

    @property
    def all_edits(self) -> tuple[Edit, ...]:
        return (*((self.edit,) if self.edit else ()), *self.edits)


@dataclass(frozen=True)
class Rule:
    """`gain` is a commonly reported gain in words; `claim` a heading in docs/claims.md that measures it, or empty: unmeasured."""

    code: str
    group: Group
    stage: str
    title: str
    gain: str = ""
    claim: str = ""
    command: str = ""
    severity: Severity = "warning"
    fixable: bool = False
    devices: tuple[str, ...] = ()  # empty: any
    since: str = ""  # the version from which the advice holds, such as "torch 2.0"
    frameworks: tuple[str, ...] = ("torch", "keras")
