"""What a row holds, and what the run's own photos say of a threshold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from errors import refused
from unchoke.core.record import Interval, ValueIntervalRecord
from unchoke.training.predict import (
    RowOptions,
    class_rows,
    interval_words,
    run_intervals,
    threshold_facts,
    value_rows,
    whole_table,
)

NAMES = ("a", "b")
LOGITS = np.array([[5, 0], [0.2, 0]], dtype=np.float32)


def test_unsure_photo_keeps_its_guess() -> None:
    sure, unsure = class_rows(["1.jpg", "2.jpg"], LOGITS, NAMES, 1.0, RowOptions(unsure_below=0.7, probabilities=True))
    assert (sure["predicted"], sure["guess"], sure["error"]) == ("a", "a", "")
    assert (unsure["predicted"], unsure["guess"]) == ("unsure", "a")
    assert unsure["p/a"] + unsure["p/b"] == pytest.approx(1, abs=1e-5)
    assert list(sure) == ["path", "predicted", "confidence", "guess", "p/a", "p/b", "error"]


def test_a_plain_row_has_what_it_always_had() -> None:
    row = class_rows(["1.jpg"], LOGITS[:1], NAMES, 1.0, RowOptions())[0]
    assert list(row) == ["path", "predicted", "confidence", "error"]


def test_values_have_intervals_not_below_zero() -> None:
    widened = ValueIntervalRecord(level=0.9, half_widths={"a": 2.0, "b": 1.0})
    outputs = np.array([[1.0, 5.0]], dtype=np.float32)
    row = value_rows(["1.jpg"], outputs, NAMES, widened, positive=True)[0]
    assert row == {"path": "1.jpg", "a": 1.0, "b": 5.0, "a/low": 0.0, "a/high": 3.0, "b/low": 4.0, "b/high": 6.0, "error": ""}
    assert value_rows(["1.jpg"], outputs, NAMES, widened)[0]["a/low"] == -1.0
    assert list(value_rows(["1.jpg"], outputs, NAMES, None)[0]) == ["path", "a", "b", "error"]


def test_an_unreadable_photo_keeps_its_place_and_its_reason() -> None:
    rows = class_rows(["1.jpg", "3.jpg"], LOGITS, NAMES, 1.0, RowOptions())
    table = whole_table(["1.jpg", "2.jpg", "3.jpg"], {0: rows[0], 2: rows[1]}, {"2.jpg": "unreadable: no picture"})
    assert [row["path"] for row in table] == ["1.jpg", "2.jpg", "3.jpg"]
    assert table[1] == {"path": "2.jpg", "predicted": None, "confidence": None, "error": "unreadable: no picture"}
    assert whole_table(["2.jpg"], {}, {"2.jpg": "gone"}) == [{"path": "2.jpg", "error": "gone"}]


def test_the_runs_own_photos_say_what_a_threshold_does() -> None:
    rows = [("test", "a", "a", 0.9), ("test", "a", "b", 0.6), ("test", "b", "b", 0.8), ("val", "a", "b", 0.99)]
    table = pd.DataFrame(rows, columns=["split", "truth", "predicted", "confidence"])
    found = threshold_facts(table, 0.7)
    assert found is not None
    assert (found.split, found.num_photos, found.coverage.value, found.accuracy.value) == ("test", 3, pytest.approx(2 / 3), 1.0)
    assert "66.7 % of the run's 3 test photos were at least that sure, and 100.0 % of these were right" in found.words()
    none_sure = threshold_facts(table, 0.95)
    assert none_sure is not None
    assert none_sure.accuracy.value is None
    assert threshold_facts(table[:0], 0.5) is None


def test_too_few_val_photos_give_no_interval_with_a_word() -> None:
    table = pd.DataFrame({"split": ["val"] * 8, "truth/a": np.arange(8.0), "predicted/a": np.arange(8.0) + 1})
    found, said = run_intervals(table, ("a",), None)
    assert found is None
    assert said == "none: the run has 8 val photos, and 90 % takes 9"
    found, said = run_intervals(table, ("a",), 0.8)
    assert found is not None
    assert found.half_widths == {"a": 1.0}


def test_what_intervals_held_is_said() -> None:
    held = {"a": Interval(0.8, 0.6, 0.9), "b": Interval(1.0, 0.8, 1.0)}
    found = ValueIntervalRecord(level=0.9, num_val=30, num_test=20, half_widths={"a": 1.0, "b": 2.0}, coverage=held)
    said = "90 % from the errors on 30 val photos; on the run's 20 test photos they held 90.0 % of the values"
    assert interval_words(found) == said
    assert interval_words(ValueIntervalRecord(level=0.8, num_val=30)) == "80 % from the errors on 30 val photos"


@pytest.mark.parametrize("options", [{"top": 0}, {"unsure_below": 1.5}, {"unsure_below": 1.0}, {"level": 0.0}])
def test_what_is_out_of_range_is_refused(options: dict[str, float]) -> None:
    with refused("out-of-range"):
        RowOptions(**options)  # type: ignore[arg-type]


def test_what_does_not_go_with_a_run_is_refused() -> None:
    with refused("option-not-for-task", "--level", "exp_1"):
        RowOptions(level=0.8).refuse_kind("classification", NAMES, "exp_1")
    with refused("option-not-for-task", "--top", "exp_1"):
        RowOptions(top=3).refuse_kind("regression", NAMES, "exp_1")
    with refused("class-name-taken", "unsure", "exp_1"):
        RowOptions(unsure_below=0.5).refuse_kind("classification", ("a", "unsure"), "exp_1")
    RowOptions(top=3, probabilities=True, unsure_below=0.5).refuse_kind("classification", NAMES, "exp_1")
