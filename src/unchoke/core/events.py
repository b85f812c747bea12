"""Events of a running command: plain values, rendered elsewhere.

Commands call an `OnEvent` with these; `runs/report/console.py` turns them into lines on stderr or JSON
lines on stdout. Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from unchoke.core.choices import Choice
from unchoke.core.errors import shorten_values


@dataclass(frozen=True)
class StageStarted:
    stage: str
    detail: str = ""


@dataclass(frozen=True)
class StageDone:
    stage: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True)
class Progress:
    """How far a stage is. `done` and `total` count `unit`s; `rate_per_s` is measured in this run, `left_s` estimated from it.

    `figures` is the row of a training's history that an epoch which just ended has added.
    """

    stage: str
    done: int
    total: int
    unit: str
    rate_per_s: float | None = None
    left_s: float | None = None
    failed: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    choice: Choice


@dataclass(frozen=True)
class Note:
    text: str
    level: Literal["info", "warning"] = "info"

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", shorten_values(self.text))


Event = StageStarted | StageDone | Progress | Chosen | Note
OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """An `OnEvent` for callers who want silence."""
