from __future__ import annotations

from typing import Any

from unchoke.core.record import RunRecord
from unchoke.runs.report.pixel_words import pixel_sentence, pixel_warning
from unchoke.runs.report.text import render_fit_result

TREES, INDEX = "gradient-boosted trees on the bands of each pixel", "(b3-b6)/(b3+b6) > 0.1"


def record(
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
    beaten = record(0.682, 0.735, 0.6)
    said = f"The network does not beat {TREES} on the test patches: IoU of water 68.2 % against 73.5 %."
    assert pixel_warning(beaten) == said
    assert render_fit_result(beaten).startswith(said)


def test_the_best_of_those_that_beat_it_is_named() -> None:
    assert INDEX in pixel_warning(record(0.5, 0.6, 0.7))


def test_better_network_has_figures_and_no_warning() -> None:
    better = record(0.75, 0.735, 0.6)
    assert pixel_warning(better) == ""
    said = pixel_sentence(better)
    assert f"{TREES} 73.5 %, {INDEX} 60.0 %; the network 75.0 %" in said and "IoU of water" in said
    assert said in render_fit_result(better)


def test_of_more_classes_the_mean_is_compared() -> None:
    assert "mean IoU" in pixel_sentence(record(0.5, 0.4, 0.3, names=("land", "water", "cloud")))


def test_without_a_test_side_the_validation_side_judges() -> None:
    assert "validation patches" in pixel_warning(record(0.5, 0.6, 0.3, split="val"))


def test_runs_without_such_baselines_say_nothing() -> None:
    bare = RunRecord.model_validate({"run": "exp_1", "task": {"kind": "segmentation", "names": ["a", "b"]}})
    assert pixel_warning(bare) == pixel_sentence(bare) == ""
