from __future__ import annotations

from typing import Any

import pytest

from records import as_record
from unchoke.core.record import RunRecord
from unchoke.runs.report.baseline_words import baseline_value, reached_words, warning
from unchoke.runs.report.html import render_report
from unchoke.runs.report.text import render_fit_result, render_headline, render_run, render_runs_table


def record(accuracy: float, gain: tuple[float, float, float], *, balanced: tuple[float, float] = (0.2, 0.18)) -> RunRecord:
    metrics = {
        "accuracy": {"value": accuracy, "low": 0.0, "high": 1.0},
        "balanced_accuracy": {"value": balanced[0], "low": balanced[1]},
    }
    value, low, high = gain
    baseline = {
        "answer": "nv",
        "metrics": {"test": {"accuracy": {"value": 0.669}, "balanced_accuracy": {"value": 0.143}}},
        "gains": {"test": {"accuracy": {"value": value, "low": low, "high": high}}},
    }
    task = {"kind": "classification", "names": ["mel", "nv"]}
    return RunRecord.of(
        {"run": "exp_1", "task": task, "metrics": {"test": metrics}, "baseline": baseline, "selection_metric": "accuracy"}
    )


def test_model_below_the_commonest_class_says_so_first():
    found = record(0.666, (-0.003, -0.02, 0.014), balanced=(0.45, 0.4))
    first = render_fit_result(found).splitlines()[0]
    assert first.startswith("exp_1 does not beat always answering “nv”, the commonest class: accuracy 66.6 % against 66.9 %")
    assert "-2.0 to +1.4 points" in first
    assert "45.0 % against 14.3 %" in first
    assert "--class-weights none" in first
    assert render_run(found).startswith(first)
    assert first[:40] in render_report(found)


@pytest.mark.parametrize(
    "chosen",
    [
        {"sweep": [{"config": {"class_weights": "none"}, "picked": True}, {"config": {"class_weights": "gentle"}}]},
        {"training": {"loop": {"class_weights": "none"}}},
        {"settings": {"class_weights": "none"}},
    ],
)
def test_what_was_already_chosen_is_not_offered(chosen: dict[str, Any]):
    found = record(0.666, (-0.003, -0.02, 0.014), balanced=(0.45, 0.4)).model_dump()
    said = warning(RunRecord.of({**found, **chosen}))
    assert "--class-weights" not in said
    assert "More photos would help" in said and "--folds 5 --fold all" in said
    assert "--folds" not in warning(RunRecord.of({**found, **chosen, "settings": {"class_weights": "none", "folds": 5}}))


def test_one_that_tells_nothing_apart_is_given_other_advice():
    said = warning(record(0.669, (0.0, -0.01, 0.01), balanced=(0.143, 0.12)))
    assert "does not beat" in said
    assert "--class-weights" not in said
    assert "unchoke check" in said


def test_difference_within_noise_is_called_so():
    assert "chance alone can give" in warning(record(0.68, (0.011, -0.005, 0.03)))
    assert warning(record(0.74, (0.071, 0.05, 0.09))) == ""


def test_headline_and_list_hold_the_baseline():
    found = record(0.74, (0.071, 0.05, 0.09))
    assert render_headline(found).endswith("; always answering “nv”, the commonest class, gets 66.9 %")
    assert "66.9 %" in render_runs_table([found])


def test_values_are_compared_with_the_mean():
    metrics = {"r2": {"value": -0.1, "low": -0.5, "high": 0.1}}
    baseline = {
        "metrics": {"test": {"r2": {"value": -0.02}}},
        "gains": {"test": {"r2": {"value": -0.08, "low": -0.5, "high": 0.1}}},
    }
    task = {"kind": "regression", "names": ["x"]}
    found = RunRecord.of({"run": "exp_2", "task": task, "metrics": {"test": metrics}, "baseline": baseline})
    assert warning(found).startswith("exp_2 does not beat always answering the training mean: R² -0.100 against -0.020")
    assert "always answering the training mean gets -0.020" in render_headline(found)


def test_old_records_are_compared_by_their_counts(groceries: dict[str, Any]):
    old = as_record(groceries)
    counts = groceries["data"]["class_counts"]
    commonest = max(counts["train"], key=lambda name: counts["train"][name])
    assert baseline_value(old, "test", "accuracy") == pytest.approx(counts["test"][commonest] / sum(counts["test"].values()))
    assert commonest in reached_words(old, "test", "accuracy")
    assert warning(old) == ""
    assert reached_words(RunRecord.of({"run": "exp_3"}), "test", "accuracy") == ""
