"""One list of metrics, and what everyone reads from it."""

from __future__ import annotations

from unchoke.core.metrics import BEST_BY, LEADING, METRICS


def test_every_name_is_there_once_and_what_leads_is_listed() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert {*LEADING, *BEST_BY} <= set(names)


def test_errors_are_better_lower_all_else_higher() -> None:
    lower = {metric.name for metric in METRICS if not metric.higher_is_better}
    assert lower == {"log_loss", "ece", "mae", "rmse", "loss"}
