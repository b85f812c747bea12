"""Values to strict JSON, and records to and from disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest

from unchoke.choices import Choice
from unchoke.errors import DataError
from unchoke.report.json import dump_line, load_record, save_record, to_jsonable


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


def test_a_record_comes_back_as_saved(tmp_path: Path) -> None:
    save_record(
        tmp_path / "record.json", {"run": "exp_1", "choices": [Choice("device", "cpu", "no other")], "loss": float("nan")}
    )
    record = load_record(tmp_path / "record.json")
    assert record["schema"] == 1
    assert record["choices"][0]["reason"] == "no other"
    assert record["loss"] is None


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"schema": 99}', '{"schema": "x"}', None])
def test_an_unusable_record_is_explained(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "record.json").write_text(content)
    with pytest.raises(DataError, match="cannot read the record") as caught:
        load_record(tmp_path / "record.json")
    assert caught.value.why
    assert caught.value.try_
