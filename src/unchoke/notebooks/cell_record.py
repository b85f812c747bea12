"""What is known of a notebook's run: a cell to run, what it cost, how it ended. Plain values, no behaviour of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["done", "failed", "timeout", "died", "interrupted", "skipped", "not run"]


@dataclass(frozen=True)
class CellFigures:
    """What a cell cost. None: this system does not tell, or the cell did not get that far."""

    wall_s: float | None = None
    cpu_s: float | None = None
    rss_before_bytes: int | None = None
    rss_after_bytes: int | None = None
    peak_rss_bytes: int | None = None
    children_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    wait_s: float | None = None
    batches: int | None = None
    steps: int | None = None

    @property
    def growth_bytes(self) -> int | None:
        """What it left behind: resident memory after it, less that before."""
        if self.rss_after_bytes is None or self.rss_before_bytes is None:
            return None
        return self.rss_after_bytes - self.rss_before_bytes

    @property
    def rise_bytes(self) -> int | None:
        """How far its peak lay above what was there before."""
        if self.peak_rss_bytes is None or self.rss_before_bytes is None:
            return None
        return max(0, self.peak_rss_bytes - self.rss_before_bytes)


@dataclass(frozen=True)
class CellRun:
    """How one cell ended. `error` says so in one line, `line` where in the cell it happened."""

    status: Status
    figures: CellFigures = field(default_factory=CellFigures)
    output_bytes: int = 0
    error: str = ""
    line: int | None = None

    @property
    def ran(self) -> bool:
        return self.status not in ("skipped", "not run")

    def to_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("status", "output_bytes", "error", "line")}
        derived = {"growth_bytes": self.figures.growth_bytes, "rise_bytes": self.figures.rise_bytes}
        return {**own, **vars(self.figures), **derived}


@dataclass(frozen=True)
class CellTask:
    """A cell to run, by the number it has in its file. `may_fail`: its author expects it to raise."""

    number: int
    text: str
    may_fail: bool = False
    skip: bool = False


@dataclass(frozen=True)
class NotebookRun:
    """What came of every cell, by its number. `ended` says in words why the run did not reach its end; empty if it did."""

    kernel: str
    cells: dict[int, CellRun]
    wall_s: float
    ended: str = ""
    interrupted: bool = False
