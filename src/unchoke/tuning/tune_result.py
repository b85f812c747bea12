"""What `unchoke tune` answers: verdicts, what was gained, and how much of the head-room that is. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core.tuned import Tuned, Verdict
from unchoke.tuning.compare import Compared
from unchoke.tuning.tune_text import render_tune

_LEAST_SHARE = 0.02
"""Below this share of a step, loading is hidden behind computing as well as can be measured."""


@dataclass(frozen=True)
class HeadRoom:
    """Seconds of a sample as it is and with loading free, before and after; the difference is what loading costs.

    None where there was no time to look again.
    """

    before_s: float
    free_before_s: float
    after_s: float | None = None
    free_after_s: float | None = None

    @property
    def loading_share(self) -> float:
        """The head-room before: the share of the time that goes away if loading is free."""
        return max(0.0, 1 - self.free_before_s / self.before_s)

    @property
    def matters(self) -> bool:
        """Whether loading costs anything worth speaking of."""
        return self.loading_share >= _LEAST_SHARE

    @property
    def recovered_share(self) -> float | None:
        """How much of the head-room was recovered; None where there was none worth speaking of, or nobody looked."""
        if not self.matters or self.after_s is None or self.free_after_s is None:
            return None
        left_s = max(0.0, self.after_s - self.free_after_s)
        return min(1.0, max(0.0, 1 - left_s / (self.before_s - self.free_before_s)))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "loading_share": self.loading_share, "recovered_share": self.recovered_share}


@dataclass(frozen=True)
class TunedPart:
    """One kind of work: every trial in order, the winner against the beginning, and the head-room."""

    name: str
    unit: str
    trials: list[Verdict]
    whole: Compared | None = None
    head_room: HeadRoom | None = None
    equality: str = ""
    """How the numbers of the way before compare with those of plain float32."""
    piece: str = ""
    """What was timed at once."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "trials": [{"switch": one.switch, **one.to_dict()} for one in self.trials],
            "whole": self.whole.to_dict() if self.whole else None,
            "head_room": self.head_room.to_dict() if self.head_room else None,
            "equality": self.equality,
            "piece": self.piece,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class TuneResult:
    """`tuned` is what stands in `unchoke.toml` now; `notes` is what a reader should know beside it."""

    tuned: Tuned
    parts: list[TunedPart]
    workspace: Path
    seconds: float
    minutes: float
    next_command: str
    notes: list[str] = field(default_factory=list)
    already_done: bool = False
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.tuned.model,
            "tuned": self.tuned.to_dict(),
            "parts": [part.to_dict() for part in self.parts],
            "workspace": str(self.workspace),
            "seconds": self.seconds,
            "minutes": self.minutes,
            "notes": self.notes,
            "already_done": self.already_done,
            "dry_run": self.dry_run,
            "next_command": self.next_command,
        }

    def to_text(self) -> str:
        return render_tune(self.to_dict())


def in_order(verdicts: Mapping[str, Verdict]) -> list[Verdict]:
    """Verdicts as a list: what was kept, what was refused, what was not tried."""
    rank = {"kept": 0, "refused": 1, "not tried": 2}
    return sorted(verdicts.values(), key=lambda one: rank[one.verdict])
