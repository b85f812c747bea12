"""What a record says: leading metric, words, times, confusions."""

from __future__ import annotations

from typing import Any

import pytest

from records import as_record
from unchoke.core.metrics import format_metric
from unchoke.core.record import RunRecord
from unchoke.runs.report import summary
from unchoke.runs.report.html import render_report
from unchoke.runs.report.text import render_fit_result, render_run, render_runs_table


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


def compared(accuracy: float, gain: tuple[float, float, float], *, balanced: tuple[float, float] = (0.2, 0.18)) -> RunRecord:
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
    found = compared(0.666, (-0.003, -0.02, 0.014), balanced=(0.45, 0.4))
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
    found = compared(0.666, (-0.003, -0.02, 0.014), balanced=(0.45, 0.4)).model_dump()
    said = summary.warning(RunRecord.of({**found, **chosen}))
    assert "--class-weights" not in said
    assert "More photos would help" in said and "--folds 5 --fold all" in said
    assert "--folds" not in summary.warning(RunRecord.of({**found, **chosen, "settings": {"class_weights": "none", "folds": 5}}))


def test_one_that_tells_nothing_apart_is_given_other_advice():
    said = summary.warning(compared(0.669, (0.0, -0.01, 0.01), balanced=(0.143, 0.12)))
    assert "does not beat" in said
    assert "--class-weights" not in said
    assert "unchoke check" in said


def test_difference_within_noise_is_called_so():
    assert "chance can give" in summary.warning(compared(0.68, (0.011, -0.005, 0.03)))
    assert summary.warning(compared(0.74, (0.071, 0.05, 0.09))) == ""


def test_headline_and_list_hold_the_baseline():
    found = compared(0.74, (0.071, 0.05, 0.09))
    assert summary.headline(found).endswith("; always answering “nv”, the commonest class, gets 66.9 %")
    assert "66.9 %" in render_runs_table([found])


def test_values_are_compared_with_the_mean():
    metrics = {"r2": {"value": -0.1, "low": -0.5, "high": 0.1}}
    baseline = {
        "metrics": {"test": {"r2": {"value": -0.02}}},
        "gains": {"test": {"r2": {"value": -0.08, "low": -0.5, "high": 0.1}}},
    }
    task = {"kind": "regression", "names": ["x"]}
    found = RunRecord.of({"run": "exp_2", "task": task, "metrics": {"test": metrics}, "baseline": baseline})
    assert summary.warning(found).startswith("exp_2 does not beat always answering the training mean: R² -0.100 against -0.020")
    assert "always answering the training mean gets -0.020" in summary.headline(found)


def test_old_records_are_compared_by_their_counts(groceries: dict[str, Any]):
    old = as_record(groceries)
    counts = groceries["data"]["class_counts"]
    commonest = max(counts["train"], key=lambda name: counts["train"][name])
    assert summary.baseline_value(old, "test", "accuracy") == pytest.approx(
        counts["test"][commonest] / sum(counts["test"].values())
    )
    assert commonest in summary.headline(old)
    assert summary.warning(old) == ""


TREES, INDEX = "gradient-boosted trees on the bands of each pixel", "(b3-b6)/(b3+b6) > 0.1"


def beside_pixels(
    own: float, trees: float, index: float, *, names: tuple[str, ...] = ("land", "water"), split: str = "test"
) -> RunRecord:
    held: dict[str, Any] = {"mean_iou": {"value": own}, "iou/land": {"value": 0.99}, "iou/water": {"value": own}}
    beside = [
        {"name": name, split: {"class": "water", "iou": value, "mean_iou": value}}
        for name, value in ((TREES, trees), (INDEX, index))
    ]
    return RunRecord.model_validate(
        {
            "run": "exp_1",
            "task": {"kind": "segmentation", "names": list(names)},
            "metrics": {split: held},
            "pixel_baselines": beside,
        }
    )


def test_a_network_that_trees_beat_says_so_first() -> None:
    beaten = beside_pixels(0.682, 0.735, 0.6)
    said = f"The network does not beat {TREES} on the test patches: IoU of water 68.2 % against 73.5 %."
    assert summary.warning(beaten) == said
    assert render_fit_result(beaten).startswith(said)


def test_better_network_has_figures_and_no_warning() -> None:
    better = beside_pixels(0.75, 0.735, 0.6)
    assert summary.warning(better) == ""
    said = " ".join(summary.sentences(better))
    assert f"{TREES} 73.5 %, {INDEX} 60.0 %; the network 75.0 %" in said and "IoU of water" in said
    assert said in render_fit_result(better)


def test_of_more_classes_the_mean_is_compared() -> None:
    assert "mean IoU" in " ".join(summary.sentences(beside_pixels(0.5, 0.4, 0.3, names=("land", "water", "cloud"))))
