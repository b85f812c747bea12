"""Step times that are kept and compared: `profile --save base.json`, `profile --against base.json --fail-if-slower 10%`.

Two runs are compared by the ratio of their median steps, evaluation and checkpoints left out, with a 95 % interval from a
bootstrap that draws runs of neighbouring steps: times of neighbours are alike, and a short disturbance must not look like
many. Steps are slower only if the whole interval lies above the limit.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from unchoke_doctor.causes.figures import Figures, per
from unchoke_doctor.errors import DataError, UsageError

_SCHEMA, _FEWEST, _DRAWS = "unchoke step times 1", 8, 1_000


@dataclass(frozen=True)
class StepTimes:
    """One run: seconds of each step, and seconds a step by stage and by line."""

    step_s: tuple[float, ...] = ()
    stages: dict[str, float] = field(default_factory=dict)
    lines: tuple[dict[str, Any], ...] = ()
    epoch_steps: int = 0
    script: str = ""
    machine: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"schema": _SCHEMA, **asdict(self)}


@dataclass(frozen=True)
class Comparison:
    """A run against an earlier one; `ratio` above 1 is slower, with its interval."""

    before: StepTimes
    after: StepTimes
    ratio: float
    low: float
    high: float
    limit_percent: float | None
    notes: tuple[str, ...] = ()

    @property
    def slower(self) -> bool:
        """Whether the whole interval lies above the limit; without a limit, above no change."""
        return self.low > 1 + (self.limit_percent or 0.0) / 100

    @property
    def fails(self) -> bool:
        return self.limit_percent is not None and self.slower

    def to_dict(self) -> dict[str, Any]:
        names = sorted(
            {*self.before.stages, *self.after.stages},
            key=lambda name: -max(self.before.stages.get(name, 0.0), self.after.stages.get(name, 0.0)),
        )
        epoch = max(1, self.after.epoch_steps or self.before.epoch_steps)
        table = [
            {
                "stage": name,
                "before_s": epoch * self.before.stages.get(name, 0.0),
                "after_s": epoch * self.after.stages.get(name, 0.0),
            }
            for name in names
        ]
        return {
            "ratio": self.ratio, "low": self.low, "high": self.high, "limit_percent": self.limit_percent, "slower": self.slower,
            "fails": self.fails,
            "before_step_s": median(self.before.step_s), "after_step_s": median(self.after.step_s), "epoch_steps": epoch,
            "steps": [len(self.before.step_s), len(self.after.step_s)], "epoch": table, "lines": self._changed_lines(),
            "notes": list(self.notes),
        }  # fmt: skip

    def _changed_lines(self) -> list[dict[str, Any]]:
        """The lines whose seconds a step grew most, by their text: a line may have moved."""
        before = {(Path(row["file"]).name, row["text"]): row["step_s"] for row in self.before.lines}
        grown = [{**row, "before_s": before.get((Path(row["file"]).name, row["text"]), 0.0)} for row in self.after.lines]
        return sorted(grown, key=lambda row: row["before_s"] - row["step_s"])[:3]


def of(run: Figures) -> StepTimes:
    """The steps of a recording, the warm-up left out."""
    steps = run.steps.steady()
    rows = zip(steps.each("wall_s"), steps.each("evaluate_s"), steps.each("checkpoint_s"), strict=True)
    machine = {name: run.recording.machine.get(name) for name in ("cores", "device", "torch", "torch_threads", "busy_cores")}
    return StepTimes(
        tuple(round(max(0.0, wall_s - judged_s - saved_s), 7) for wall_s, judged_s, saved_s in rows),
        {name: per(seconds, max(1, run.num_steps)) for name, seconds in run.stages.items()},
        tuple(group.to_dict(run.num_steps) for group in run.groups[:12]), round(run.num_steps / run.epochs),
        " ".join(run.recording.command), machine,
    )  # fmt: skip


def load(path: Path) -> StepTimes:
    """What `--save` wrote."""
    try_ = f"unchoke profile --save {path} -- python train.py"
    if not path.is_file():
        raise UsageError(f"there is no file {path}", code="no-such-file", why="--against compares with it", try_=try_)
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved.pop("schema") != _SCHEMA:
            raise ValueError("it holds no step times")
        times = StepTimes(**{**saved, "step_s": tuple(map(float, saved["step_s"])), "lines": tuple(saved["lines"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} cannot be compared with", code="unreadable-base", why=str(error), try_=try_) from error
    return times


def compare(before: StepTimes, after: StepTimes, *, limit_percent: float | None = None) -> Comparison:
    """The ratio of the medians with its interval."""
    fewest = min(len(before.step_s), len(after.step_s))
    if fewest < _FEWEST:
        why = f"the first two warm up, and {_FEWEST} more are needed of both runs"
        raise DataError(f"{fewest} steps are too few to compare", code="too-few-steps", why=why, try_="--steps 50, for both runs")
    draw = random.Random(0)
    ratios = sorted(per(_drawn_median(after.step_s, draw), _drawn_median(before.step_s, draw)) for _ in range(_DRAWS))
    notes = [
        f"{name}: {before.machine.get(name)} before, {after.machine.get(name)} now"
        for name in ("cores", "device", "torch", "torch_threads")
        if before.machine.get(name) != after.machine.get(name)
    ]
    ratio = per(median(after.step_s), median(before.step_s))
    return Comparison(
        before, after, ratio, ratios[round(0.025 * _DRAWS)], ratios[round(0.975 * _DRAWS) - 1], limit_percent, tuple(notes)
    )


def _drawn_median(values: tuple[float, ...], draw: random.Random) -> float:
    """The median of as many values, drawn in runs of neighbours."""
    length = max(1, round(len(values) ** 0.5))
    starts = [draw.randrange(len(values) - length + 1) for _ in range(-(-len(values) // length))]
    return median([value for start in starts for value in values[start : start + length]])
