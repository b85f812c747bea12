"""The stretches of a run that was stopped and went on: what each took, so that its report says what all of them took.

In: the clocks of a session, and what a stretch of the same command left behind. Out: `experiments/stretches.json`, one entry for
each training that is not done yet, written every few seconds because a killed process has no time to say how long it took. It is
only a memory: without it a run is the same and its report has the time of the last stretch alone. Nothing is trained here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unchoke.core import atomic
from unchoke.core.clock import StageTimers
from unchoke.core.events import Event, OnEvent
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import parse_json, read_plain
from unchoke.core.settings import OPTIONS, Settings

Seconds = dict[str, float]
FILE = "stretches.json"
_EVERY_S = 5.0
_WORK = ("extract", "pixels", "train")
"""A stretch counts from its first stage that leaves something to go on from."""


class StretchLog:
    """What earlier stretches of one training took, and this one so far."""

    def __init__(
        self, file: Path, key: str, timers: StageTimers, *, every_s: float = _EVERY_S, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._file, self._key, self._timers, self._every_s, self._now = file, key, timers, every_s, now
        self._earlier = _load(file).get(key, [])
        self._run = ""
        self._told_s = now()
        self._writing = threading.Lock()

    def begin_run(self, run: str) -> None:
        """From here on the stretch belongs to this run; those that went to another one (other samples by then) do not count."""
        self._run = run
        self._earlier = [one for one in self._earlier if one["run"] in ("", run)]

    @property
    def earlier(self) -> list[Seconds]:
        """Seconds by stage of each stretch before this one, the first of them first."""
        return [dict(one["timings"]) for one in self._earlier]

    def listening(self, on_event: OnEvent) -> OnEvent:
        """The same listener; while it hears, what was spent by now is written every few seconds."""

        def listen(event: Event) -> None:
            on_event(event)
            if self._now() - self._told_s >= self._every_s:
                self.save()

        return listen

    def save(self) -> None:
        """Write down what this stretch has taken by now; a thread that comes while another one writes does not wait."""
        spent = self._timers.so_far()
        if not any(stage in spent for stage in _WORK) or not self._writing.acquire(blocking=False):
            return
        try:
            self._told_s = self._now()
            self._write([*self._earlier, {"run": self._run, "timings": {name: round(s, 3) for name, s in spent.items()}}])
        finally:
            self._writing.release()

    def forget(self) -> None:
        """The run is done: nothing is left to add up."""
        if self._key in _load(self._file):
            self._write([])

    def _write(self, stretches: Sequence[Mapping[str, Any]]) -> None:
        others = {key: held for key, held in _load(self._file).items() if key != self._key}
        atomic.write_json(self._file, {**others, **({self._key: stretches} if stretches else {})})


def sum_stretches(stretches: Sequence[Mapping[str, float]]) -> Seconds:
    """Seconds by stage over all of them, in the order stages first appear."""
    names = dict.fromkeys(name for one in stretches for name in one)
    return {name: sum(one.get(name, 0.0) for one in stretches) for name in names}


def training_key(settings: Settings) -> str:
    """Which training it is, as far as settings say: what only concerns the machine may differ from stretch to stretch."""
    told_apart = [
        name for name, option in OPTIONS.items() if option.tells_runs_apart or option.group not in ("Machine", "Profile")
    ]
    values = settings.to_dict()
    return digest({name: values[name] for name in told_apart})


def _load(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Every entry; a file that cannot be read, or holds anything else, has none."""
    try:
        return {
            key: [
                {"run": str(one["run"]), "timings": {stage: _seconds(s) for stage, s in one["timings"].items()}} for one in held
            ]
            for key, held in parse_json(read_plain(file)).items()
        }
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return {}


def _seconds(value: Any) -> float:
    if not 0 <= value < math.inf:
        raise ValueError("no seconds")
    return float(value)
