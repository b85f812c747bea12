"""What stretches of a run took is kept and added up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unchoke.core.clock import StageTimers
from unchoke.core.events import Note, ignore
from unchoke.runs.stretches import StretchLog


class Ticks:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def make_log(file: Path, ticks: Ticks) -> tuple[StretchLog, StageTimers]:
    timers = StageTimers(clock=ticks)
    return StretchLog(file, "a-key", timers, now=ticks), timers


def test_killed_stretch_is_found_with_its_stage(tmp_path: Path) -> None:
    ticks, file = Ticks(), tmp_path / "stretches.json"
    log, timers = make_log(file, ticks)
    hear = log.listening(ignore)
    timers.add("extract", 3.0)
    with timers.stage("train"):
        hear(Note("not yet"))
        assert not file.exists()
        ticks.s = 7.0
        hear(Note("now"))  # and here it is killed
        assert make_log(file, ticks)[0].earlier == [{"extract": 3.0, "train": 7.0}]


def test_stretches_of_another_run_do_not_count(tmp_path: Path) -> None:
    ticks, file = Ticks(), tmp_path / "stretches.json"
    for run in ("exp_1", "exp_2", ""):
        log, timers = make_log(file, ticks)
        log._run = run
        timers.add("train", 1.0)
        log.save()
    log, _ = make_log(file, ticks)
    log.begin_run("exp_2")
    assert len(log.earlier) == 2


def test_stretch_without_results_is_not_kept(tmp_path: Path) -> None:
    log, timers = make_log(tmp_path / "stretches.json", Ticks())
    timers.add("check", 9.0)
    log.save()
    assert not (tmp_path / "stretches.json").exists()


def test_a_run_that_is_done_is_forgotten_and_others_are_not(tmp_path: Path) -> None:
    file = tmp_path / "stretches.json"
    file.write_text(json.dumps({"another": [], "a-key": [{"run": "", "timings": {"train": 1}}]}))
    make_log(file, Ticks())[0].forget()
    assert json.loads(file.read_text()) == {"another": []}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"a-key": 3}', '{"a-key": [{"timings": {"train": "x"}}]}', "[" * 100_000, '{"a-key": [{"timings": {"a": NaN}}]}'],
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "stretches.json"
    file.write_text(text)
    log, timers = make_log(file, Ticks())
    assert log.earlier == []
    timers.add("train", 1.0)
    log.save()
    assert make_log(file, Ticks())[0].earlier == [{"train": 1.0}]
