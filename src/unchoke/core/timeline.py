"""Where the time of one piece of work went, as plain data: what is saved with a run and shown again.

In: what clocks counted, in this process or (as the `info` of a job's record) in another. Out: a `Timeline`, to and from plain
JSON types. Nothing is measured here, and nothing is rendered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unchoke.core.clock import Clock, Loading, StageTally, sum_tallies

EXTRACTION = ("load", "collate", "decode", "encode", "write")
"""The stages of a job that runs the frozen part."""
TRAINING = ("wait", "copy", "prepare", "forward", "backward", "exchange", "optimizer", "device", "evaluate", "checkpoint")
"""The stages of the thread that trains."""
LOADING = ("list", "stat", "open", "read", "verify", "decode", "transform", "collate", "write", "hand over")
"""The stages of its loader workers."""


@dataclass(frozen=True)
class StageRow:
    """One stage: its seconds, their share of the whole, and how often it ran."""

    stage: str
    seconds: float
    share: float
    calls: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Timeline:
    """`stages` add up to `wall_s`, or to that of all jobs together. `loading` is what went on meanwhile in `readers` threads.

    `epochs` has a row of seconds by stage for each epoch.
    """

    wall_s: float
    stages: tuple[StageRow, ...] = ()
    loading: tuple[StageRow, ...] = ()
    readers: int = 0
    epochs: tuple[dict[str, float], ...] = ()

    @classmethod
    def of(cls, clock: Clock | None, loading: Loading, *, epochs: Sequence[Mapping[str, float]] = ()) -> Timeline:
        """What the clocks say now; without a clock only what readers did."""
        own = cls.of_tally({} if clock is None else clock.tally())
        rounded = tuple({name: round(value, 6) for name, value in row.items()} for row in epochs)
        return cls(own.wall_s, own.stages, _rows(loading.tally(), LOADING), loading.num_threads, rounded)

    @classmethod
    def of_tally(cls, tally: StageTally, loading: StageTally | None = None, *, readers: int = 0) -> Timeline:
        """A part of what a training's clock counted, and of what its readers did."""
        return cls(sum(seconds for seconds, _ in tally.values()), _rows(tally, TRAINING), _rows(loading or {}, LOADING), readers)

    def seconds(self, *names: str) -> float:
        """What went to some of the stages."""
        return sum(row.seconds for row in self.stages if row.stage in names)

    def calls(self, name: str) -> int:
        """How often one of the stages was entered."""
        return sum(row.calls for row in self.stages if row.stage == name)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Timeline:
        """What `to_dict` gave, after a journey through JSON."""
        stages, loading = (tuple(StageRow(**row) for row in values[name]) for name in ("stages", "loading"))
        return cls(values["wall_s"], stages, loading, values["readers"], tuple(values["epochs"]))


class JobTimes:
    """What jobs noted by `noted_clocks`, added up as they come in: from threads, or from other processes."""

    def __init__(self) -> None:
        self._stages: StageTally = {}
        self._loading: StageTally = {}

    def add(self, info: Mapping[str, Any]) -> None:
        """Count one more job."""
        self._stages = sum_tallies([self._stages, info["clocks"]])
        self._loading = sum_tallies([self._loading, info["loading"]])

    def progress(self) -> dict[str, float]:
        """For the progress line: which share of their time jobs spend on getting at their pictures."""
        total_s = sum(seconds for seconds, _ in self._stages.values())
        return {"loading_share": self._stages["load"][0] / total_s} if total_s > 0 else {}

    def timeline(self, *, readers: int) -> Timeline:
        wall_s = sum(seconds for seconds, _ in self._stages.values())
        return Timeline(wall_s, _rows(self._stages, EXTRACTION), _rows(self._loading, LOADING), readers)


def noted_clocks(stages: StageTally, loading: StageTally) -> dict[str, Any]:
    """What a job notes in its record: seconds and calls of its own stages, and of what its readers did."""
    return {
        name: {stage: [round(seconds, 6), calls] for stage, (seconds, calls) in tally.items()}
        for name, tally in (("clocks", stages), ("loading", loading))
    }


def _rows(tally: StageTally, order: Sequence[str]) -> tuple[StageRow, ...]:
    """The stages that were entered or took time, in `order`, others after them."""
    total_s = sum(seconds for seconds, _ in tally.values())
    names = sorted(tally, key=lambda name: order.index(name) if name in order else len(order))
    return tuple(
        StageRow(name, round(seconds, 6), seconds / total_s if total_s else 0.0, calls)
        for name in names
        for seconds, calls in [tally[name]]
        if seconds > 0 or calls
    )
