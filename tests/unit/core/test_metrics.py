"""One list of metrics, and what everyone reads from it."""

from __future__ import annotations

from unchoke.core.metrics import BEST_BY, LEADING, METRICS, find_metric, format_metric, metric_label, metric_order


def test_every_name_is_there_once_and_what_leads_is_listed() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert {*LEADING, *BEST_BY} <= set(names)


def test_errors_are_better_lower_all_else_higher() -> None:
    lower = {metric.name for metric in METRICS if not metric.higher_is_better}
    assert lower == {"log_loss", "ece", "mae", "rmse", "loss"}


def test_a_figure_of_one_target_reads_like_its_metric() -> None:
    assert metric_label("r2/height") == "R² of height"
    assert format_metric("iou/water", 0.81234) == "81.2 %"
    assert format_metric("mae/height", 12.345) == "12.3"
    assert find_metric("ece").higher_is_better is False


def test_unlisted_metric_comes_after_the_others() -> None:
    assert metric_label("made_up") == "made up"
    assert format_metric("made_up", 0.5) == "0.500"
    assert metric_order("made_up") > metric_order("rmse") > metric_order("accuracy")
