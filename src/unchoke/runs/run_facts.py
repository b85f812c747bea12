"""What rules ask of the record of a run: its clocks, its choices, its machine, and its own command with one option changed.

In: a record, of this version or an older one. Out: `RunFacts`, and sums over what readers did. Nothing is judged here.
"""

from __future__ import annotations

import shlex
from functools import cached_property
from typing import Any

from unchoke.core.findings import CodeLine, per
from unchoke.core.record import RunRecord
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_seconds

MAKING = ("open", "read", "verify", "decode", "transform")
"""What a cache of pixels does once."""
AROUND = ("evaluate", "checkpoint", "profiler")
"""Stages of a training that are not part of its steps."""


class RunFacts:
    """The record of a run, with what rules ask of it. Parts that older records lack count as nothing."""

    def __init__(self, record: RunRecord, out: str = "") -> None:
        self.record, self.out = record, out
        self.machine, self.timings, self.splits = record.machine, record.timings, record.data.splits
        self.total_s = sum(self.timings.values())
        self.choices = {choice.name: choice for choice in record.choices}
        self.train = record.timeline.get("train", Timeline(0.0))
        self.extract = record.timeline.get("extract", Timeline(0.0))

    @cached_property
    def epochs(self) -> int:
        return max(1, self.planned_epochs or len(self.train.epochs) or len(self.record.history))

    @property
    def planned_epochs(self) -> int:
        """Where the record is of a few steps: how many epochs the training they belong to would have."""
        return self.record.planned_epochs or 0

    @cached_property
    def steps_s(self) -> float:
        """Seconds of the training's own thread in its steps."""
        return self.train.wall_s - self.train.seconds(*AROUND)

    @property
    def place(self) -> CodeLine:
        return CodeLine(self.record.data.source)

    def command(self, option: str, value: Any = None) -> str:
        """The run's own command with one option changed, or without it. Nothing where several models were trained within given
        minutes: what one of them did is not an option of all, and those that are there are found done.
        """
        if self.record.ladder:
            return ""
        words = shlex.split(self.record.command or "unchoke train")
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
        return shlex.join([*words, option, str(value)] if value is not None else words) + self.out

    @property
    def is_tunable(self) -> bool:
        """Whether `unchoke tune` knows this kind of run."""
        return not self.record.command.startswith("unchoke segment")

    @property
    def tuning(self) -> str:
        """The command that tries what cannot be told from clocks."""
        return f"unchoke tune{self.out}"


def loading_s(timeline: Timeline, *names: str) -> float:
    """Seconds of readers, of some stages or of all that make a sample."""
    wanted = names or (*MAKING, "collate")
    return sum(row.seconds for row in timeline.loading if row.stage in wanted)


def slowest(timeline: Timeline) -> str:
    """``decode (12.1 ms each)``: what readers did longest."""
    row = max(timeline.loading, key=lambda row: row.seconds if row.stage != "hand over" else 0.0, default=None)
    return f"{row.stage} ({format_seconds(per(row.seconds, row.calls))} each)" if row else "loading"
