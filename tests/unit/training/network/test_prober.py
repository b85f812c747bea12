"""Sizes are measured once, side by side where they fit together, and with the answers they have alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from unchoke.core.choices import Choice
from unchoke.core.events import Event, Progress
from unchoke.machine.memory.memory_limit import MemoryLimit
from unchoke.machine.memory.probe import ProbeResult, StepCost
from unchoke.training.network import prober as module
from unchoke.training.network.prober import Prober, Size, fitting_together

SIZES: list[Size] = [("train", 1), ("train", 4), ("evaluation", 4), ("evaluation", 16)]


class Processes:
    """Stands in for `probe`: sizes above `most` fail, and side by side so do those above `most_beside`."""

    def __init__(self, *, most: int = 100, most_beside: int = 100, meet: int = 1) -> None:
        self.most, self.most_beside = most, most_beside
        self.alone: list[int] = []
        self.beside: list[int] = []
        self._meeting = threading.Barrier(meet)

    def __call__(self, target: str, trial: str, batches: list[int], *, given_up: Any = None, **_: Any) -> list[ProbeResult]:
        (batch,) = batches
        together = trial.endswith("beside")
        (self.beside if together else self.alone).append(batch)
        if together:
            self._meeting.wait(timeout=30)
        fits = batch <= (self.most_beside if together else self.most)
        return [ProbeResult(batch, "ok", StepCost(batch, 0.0)) if fits else ProbeResult(batch, "out of memory")]


def prober(processes: Processes, heard: list[Event], monkeypatch: pytest.MonkeyPatch) -> Prober:
    monkeypatch.setattr(module, "probe", processes)
    limit = MemoryLimit(1000, True, Choice("memory", "1 kB", "given"))
    return Prober(
        "somewhere:something",
        lambda way: way,
        beside=lambda way: f"{way} beside",
        device=torch.device("cpu"),
        limit=limit,
        on_event=heard.append,
        usual=5,
        words=lambda way, batch: f"{way} {batch}",
    )


def ahead(asked: Prober, *, free_bytes: int = 1000, most: int = 5) -> None:
    asked.ahead(SIZES, bound_bytes=lambda _, batch: 10 * batch, free_bytes=free_bytes, most=most)


def test_sizes_side_by_side_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Event] = []
    processes = Processes(meet=4)
    asked = prober(processes, heard, monkeypatch)
    ahead(asked)
    assert [one.batch for one in asked("train", [1, 4])] == [1, 4]
    assert [one.batch for one in asked("evaluation", [4, 16])] == [4, 16]
    assert (sorted(processes.beside), processes.alone) == ([1, 4, 4, 16], [])
    asked.finish()
    last = heard[-1]
    assert isinstance(last, Progress)
    assert (last.done, last.total) == (4, 4)


def test_what_failed_beside_others_is_asked_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(most_beside=4, meet=4)
    asked = prober(processes, [], monkeypatch)
    ahead(asked)
    assert [one.fits for one in asked("evaluation", [4, 16])] == [True, True]
    assert processes.alone == [16]


def test_one_size_by_itself_waits_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes()
    asked = prober(processes, [], monkeypatch)
    ahead(asked, free_bytes=45)
    ahead(asked, most=1)
    assert processes.beside == []
    assert [one.batch for one in asked("train", [1, 4])] == [1, 4]
    assert processes.alone == [1, 4]


def test_sizes_together_within_memory_and_processes() -> None:
    def chosen(free_bytes: int, most: int) -> list[Size]:
        return fitting_together([*SIZES, SIZES[0]], bound_bytes=lambda _, batch: 10 * batch, free_bytes=free_bytes, most=most)

    assert chosen(250, 5) == SIZES
    assert chosen(249, 5) == SIZES[:3]
    assert chosen(55, 5) == SIZES[:2]
    assert chosen(250, 2) == SIZES[:2]
