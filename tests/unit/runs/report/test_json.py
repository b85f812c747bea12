"""Values to strict JSON, and records to and from disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from typing import Any, get_args

import numpy as np
import pytest

from errors import refused
from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, Event, Note, Progress, StageDone, StageStarted
from unchoke.core.record import RunRecord
from unchoke.runs.report.json import dump_event, dump_line, load_record, parse_event, save_record, to_jsonable


@dataclass(frozen=True)
class Sample:
    place: Path
    weights: Any


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, np.nan]), [1.0, None]),
        (PureWindowsPath(r"a\b"), "a/b"),
        (datetime(2026, 11, 15, tzinfo=UTC), "2026-11-15T00:00:00+00:00"),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}),
        ({"b", "a"}, ["a", "b"]),
        (Sample(Path("x/y"), (1, float("inf"))), {"place": "x/y", "weights": [1, None]}),
    ],
)
def test_values_become_plain_json(value: Any, expected: Any) -> None:
    assert to_jsonable(value) == expected


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        to_jsonable(object())


def test_a_line_stays_one_line_whatever_the_names_hold() -> None:
    line = dump_line({"path": "a\nb\u2028c\x85d\udcff", "value": np.nan})
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {"path": "a\nb\u2028c\x85d\\udcff", "value": None}


EVENTS: list[Event] = [
    StageStarted("extract"),
    StageStarted("train", "3 heads, 20 epochs"),
    StageDone("train", 1.25, "early"),
    Progress("extract", 3, 10, "images"),
    Progress("train", 3, 10, "steps", rate_per_s=7.5, left_s=0.9, failed=1, extra={"jobs": [1, 2], "loss": 0.5, "wait": "3 %"}),
    Chosen(Choice("device", "cpu", "no other", {"cores": 2})),
    Chosen(Choice("sums", {"a": "b + c"}, "preset biomass")),
    Note("line one\nline two \u00fc"),
    Note("careful", "warning"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    line = dump_event(event)
    assert len(line.splitlines()) == 1
    assert parse_event(json.loads(line)) == event


def test_every_kind_of_event_is_among_them() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize(
    "line",
    [
        {"schema": 1, "command": "fit", "ok": True, "result": {}},
        {"schema": 1, "event": "danced", "steps": 3},
        {"schema": 1, "event": "progress", "stage": "extract"},
    ],
)
def test_a_line_that_is_no_event_of_ours_is_none(line: dict[str, Any]) -> None:
    assert parse_event(line) is None


def test_additions_of_a_later_version_are_passed_over() -> None:
    assert parse_event({"event": "note", "text": "so", "level": "info", "colour": "blue"}) == Note("so")


def test_a_record_comes_back_as_saved(tmp_path: Path) -> None:
    saved = RunRecord(run="exp_1", choices=[Choice("device", "cpu", "no other")], made_up={"loss": float("nan")})
    save_record(tmp_path / "record.json", saved)
    record = load_record(tmp_path / "record.json")
    assert record.choices == [Choice("device", "cpu", "no other")]
    assert record.to_dict() == {
        "schema": 1,
        "run": "exp_1",
        "choices": [{"name": "device", "value": "cpu", "reason": "no other", "evidence": {}}],
        "made_up": {"loss": None},
    }


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"schema": 99}', '{"schema": "x"}', None])
def test_an_unusable_record_is_explained(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "record.json").write_text(content)
    with refused("damaged-record", "record.json") as caught:
        load_record(tmp_path / "record.json")
    assert caught.value.why
    assert caught.value.try_
