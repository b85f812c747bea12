"""The command that works in a workspace now, as the page shows it: stages, how far each is, and curves as they grow.

In: `logs/progress.jsonl` as it is written, by whichever process. Out: plain values for a template. Nothing is asked of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from unchoke.core.events import Progress, StageDone, StageStarted
from unchoke.core.metrics import find_metric, metric_label
from unchoke.core.units import format_seconds
from unchoke.core.workspace import Workspace
from unchoke.runs.progress_log import ProgressReader
from unchoke.runs.report.charts import Series, line_chart

_MOST_POINTS = 400
_BEST = "best_val_"
Point = tuple[float, float]


@dataclass
class StageView:
    """One stage: its last progress while it runs, its seconds once it is done."""

    name: str
    detail: str = ""
    progress: Progress | None = None
    seconds: float | None = None

    @property
    def words(self) -> list[str]:
        """Counted things with rate and time left, in words."""
        if self.progress is None:
            return [self.detail] if self.detail else []
        told = self.progress
        parts = [f"{told.done:,} of {told.total:,} {told.unit}"]
        jobs = (told.extra.get("jobs_done"), told.extra.get("jobs_total"))
        if jobs[0] is not None and jobs[1] is not None:
            parts.append(f"{jobs[0]:,} of {jobs[1]:,} jobs, {jobs[1] - jobs[0]:,} left")
        if told.rate_per_s:
            shown = f"{told.rate_per_s:,.0f}" if told.rate_per_s >= 10 else f"{told.rate_per_s:.1f}"
            parts.append(f"{shown} {told.unit}/s")
        if told.left_s is not None and told.done < told.total and self.seconds is None:
            parts.append(f"{format_seconds(told.left_s)} left")
        if told.failed:
            parts.append(f"{told.failed:,} failed")
        return parts

    @property
    def took(self) -> str:
        return "" if self.seconds is None else format_seconds(self.seconds)


@dataclass
class LiveWatch:
    """What was told so far, brought up to date by `look`."""

    workspace: Workspace
    stages: dict[str, StageView] = field(default_factory=dict)
    series: dict[str, list[Point]] = field(default_factory=dict)
    unit: str = ""

    def __post_init__(self) -> None:
        self._reader = ProgressReader(self.workspace)

    def look(self) -> bool:
        """Read what is new; whether there was anything."""
        told = self._reader.read()
        if self._reader.started_anew:
            self.stages, self.series, self.unit = {}, {}, ""
        for one in told:
            self._hear(one.event)
        return bool(told) or self._reader.started_anew

    def is_of(self, process: int) -> bool:
        """Whether that process told this: the one that works now may count nothing, and leaves what was told before it."""
        return self._reader.process == process

    def _hear(self, event: Any) -> None:
        if isinstance(event, StageStarted):
            self.stages[event.stage] = StageView(event.stage, event.detail)
        elif isinstance(event, StageDone):
            self.stages.setdefault(event.stage, StageView(event.stage)).seconds = event.seconds
        elif isinstance(event, Progress):
            self.stages.setdefault(event.stage, StageView(event.stage)).progress = event
            if event.stage == "train":
                self._plot(event)

    def _plot(self, event: Progress) -> None:
        """A point for each figure that training tells of."""
        self.unit = event.unit
        for name, value in event.extra.items():
            if isinstance(value, int | float) and (name == "loss" or name.startswith(_BEST)):
                points = self.series.setdefault(name, [])
                if points and points[-1][0] >= event.done:  # another configuration, or a rung of its own
                    points.clear()
                points.append((float(event.done), float(value)))

    def charts(self) -> list[tuple[str, Markup]]:
        """A drawing for each figure that has points."""
        return [self._chart(name, points) for name, points in self.series.items() if points]

    def _chart(self, name: str, points: Sequence[Point]) -> tuple[str, Markup]:
        metric = name.removeprefix(_BEST)
        is_loss = name == "loss"
        title = "Training loss" if is_loss else f"Best validation {metric_label(metric)} so far"
        percent = not is_loss and find_metric(metric).is_share
        line = [Series("training" if is_loss else "validation", thin(points), "s1" if is_loss else "s2")]
        return title, line_chart(f"live-{name}", title, line, x_label=self.unit, percent=percent)


def thin(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Evenly fewer points where there are too many, the last one always among them."""
    step = -(-len(points) // most)
    return [*points[:-1][::step], *points[-1:]] if step > 1 else list(points)
