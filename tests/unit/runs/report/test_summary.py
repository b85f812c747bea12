"""What a record says: leading metric, words, times, confusions."""

from __future__ import annotations

from typing import Any

import pytest

from records import as_record
from unchoke.core.metrics import format_metric, metric_label
from unchoke.core.record import RunRecord
from unchoke.runs.report import summary


def test_the_test_split_leads_and_validation_stands_in() -> None:
    both = {"metrics": {"val": {"accuracy": {"value": 0.9}}, "test": {"accuracy": {"value": 0.8}}}}
    only_val = {"metrics": {"val": {"r2": 0.4}, "test": {"accuracy": {"value": None}}}}
    assert (summary.leading_metric(as_record(both)) or pytest.fail()).value == 0.8
    assert (summary.leading_metric(as_record(only_val)) or pytest.fail()).split == "val"
    assert summary.leading_metric(as_record({})) is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("accuracy", 0.9432, "94.3 %"),
        ("r2", 0.7421, "0.742"),
        ("mae", 1234.5, "1,234"),
        ("mae", 0.00001234, "1.2e-05"),
        ("mae", 0.0, "0.000"),
    ],
)
def test_metrics_read_naturally(name: str, value: float, text: str) -> None:
    assert format_metric(name, value) == text


def test_an_interval_names_its_unit_once() -> None:
    assert summary.ReportedMetric("test", "accuracy", 0.9, 0.88, 0.925).interval == "88.0–92.5 %"
    assert summary.ReportedMetric("test", "r2", 0.1, -0.2, 0.3).interval == "-0.200 to 0.300"
    assert summary.ReportedMetric("test", "r2", 0.1).interval == ""


def test_a_target_is_named_with_its_metric() -> None:
    assert metric_label("r2/dry_green") == "R² of dry_green"


def test_stages_come_in_the_order_they_run() -> None:
    timings: dict[str, Any] = {"train": 1.0, "check": 2.0, "own": 3, "extract": float("nan"), "total": 9}
    assert summary.stage_seconds(as_record({"timings": timings}).timings) == [("check", 2.0), ("train", 1.0), ("own", 3.0)]


def test_the_most_frequent_confusion_comes_first() -> None:
    pairs = summary.confused_pairs([[8, 2, 0], [5, 5, 0], [0, 1, 0]], ["a", "b", "c"])
    assert [(pair.truth, pair.predicted, pair.count) for pair in pairs] == [("b", "a", 5), ("a", "b", 2), ("c", "b", 1)]
    assert pairs[0].share == 0.5


def test_the_weighted_r2_leads_where_there_is_one() -> None:
    record = {"metrics": {"test": {"r2": {"value": 0.5}, "weighted_r2": {"value": 0.6}}}}
    leading = summary.leading_metric(as_record(record)) or pytest.fail()
    assert (leading.label, leading.text) == ("weighted R²", "0.600")
    assert [metric.name for metric in summary.metrics_of(as_record(record), "test")] == ["weighted_r2", "r2"]


def test_intervals_of_values_are_said_with_what_they_held() -> None:
    held = {"level": 0.9, "num_val": 40, "num_test": 50, "half_widths": {"height": 2.5}, "coverage": {"height": {"value": 0.88}}}
    said = summary.value_interval_sentence(RunRecord.of({"value_intervals": held}))
    assert (
        said
        == "`predict` gives intervals that are to hold 90 % of true values (height ± 2.50); on 50 test images they held 88.0 %."
    )
    assert summary.value_interval_sentence(RunRecord.of({})) == ""


@pytest.mark.parametrize(
    ("gain", "next_gain", "said"),
    [
        (
            (0.04, 0.02, 0.06),
            (0.024, 0.012, 0.036),
            "Twice the photos would bring about +2.4 points of accuracy (+1.2 to +3.6): ",
        ),
        ((0.001, -0.004, 0.006), None, "More photos of the same kind would bring little: "),
        ((0.02, -0.01, 0.05), None, "Whether more photos would help cannot be told from these: "),
    ],
)
def test_a_learning_curve_says_no_more_than_it_knows(gain: Any, next_gain: Any, said: str) -> None:
    names = ("value", "low", "high")
    points = [{"num_photos": 500, "value": 0.9}, {"num_photos": 1000, "value": 0.94}]
    curve = {"metric": "accuracy", "points": points, "gain": dict(zip(names, gain, strict=True))}
    if next_gain:
        curve["next_gain"] = dict(zip(names, next_gain, strict=True))
    sentence = summary.curve_sentence(RunRecord.of({"learning_curve": curve}))
    assert sentence.startswith(f"{said}1,000 photos instead of 500 brought")
    assert summary.curve_sentence(RunRecord.of({})) == ""
    skipped = RunRecord.of({"learning_curve": {"skipped": "12 photos are too few"}})
    assert summary.curve_sentence(skipped) == "Whether more photos would help was not measured: 12 photos are too few."
