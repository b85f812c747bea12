"""The order of runs in a list: by when they were made, by what they are made of, or by a result, the best first.

In: runs as the database knows them, and what to sort by. Out: the same runs in that order; those without a value come last.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from unchoke.core.errors import UsageError, list_some
from unchoke.core.metrics import find_metric
from unchoke.core.record import StoredRun
from unchoke.runs.report import summary

RESULT = "result"


def _result(run: StoredRun) -> Any:
    """The leading metric, so that higher values of the list come first: metrics by name, and each from its best value down."""
    metric = summary.leading_metric(run)
    return None if metric is None else (metric.name, _worse_later(metric.name, metric.value))


_ORDERS: dict[str, Callable[[StoredRun], Any]] = {
    "run": lambda run: run.number,
    "status": lambda run: run.status,
    "started": lambda run: run.created_at,
    "encoder": lambda run: run.encoder,
    "cut": lambda run: summary.run_setup(run).cut,
    "head": lambda run: summary.run_setup(run).head,
    "epochs": lambda run: summary.run_setup(run).epochs,
    RESULT: _result,
    "time": summary.total_seconds,
}


def sort_runs(runs: Sequence[StoredRun], by: str) -> list[StoredRun]:
    """Sorted by a column of the list or by a metric (``accuracy``, ``val.log_loss``); a leading ``-`` turns the order round."""
    name = by.removeprefix("-")
    value: Callable[[StoredRun], Any] = _ORDERS.get(name) or _metric_order(runs, name)
    known = [run for run in runs if value(run) is not None]
    ordered = sorted(known, key=value, reverse=by.startswith("-"))
    return ordered + [run for run in runs if value(run) is None]


def _metric_order(runs: Sequence[StoredRun], name: str) -> Callable[[StoredRun], float | None]:
    """By a metric of one split, or of test where a run has it and else of val."""
    recorded = {f"{split}.{metric}" for run in runs for split, found in run.metrics.items() for metric in found}
    split, dot, rest = name.partition(".")
    splits, metric = ((split,), rest) if dot and split in summary.SPLITS else (summary.SPLITS, name)
    if not any(f"{one}.{metric}" in recorded for one in splits):
        raise _no_order(name, sorted({one.partition(".")[2] for one in recorded}))

    def value(run: StoredRun) -> float | None:
        found = [one.value for one in (run.metrics.get(split, {}).get(metric) for split in splits) if one is not None]
        return next((_worse_later(metric, one) for one in found if one is not None), None)

    return value


def _worse_later(metric: str, value: float) -> float:
    return -value if find_metric(metric).higher_is_better else value


def _no_order(name: str, metrics: Sequence[str]) -> UsageError:
    known = [*_ORDERS, *metrics]
    meant = difflib.get_close_matches(name, known, n=1) or [RESULT]
    return UsageError(
        f"runs cannot be sorted by {name!r}",
        code="unknown-order",
        why=f"there are {', '.join(_ORDERS)}, and the metrics {list_some(metrics, limit=8) if metrics else '(none yet)'}",
        try_=f"--sort {meant[0]}",
    )
