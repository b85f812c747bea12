"""The order of runs in a list."""

from __future__ import annotations

import pytest

from errors import refused
from unchoke.core.record import StoredRun
from unchoke.runs.lookup import sort_runs


def run(number: int, *, encoder: str = "a", seconds: float = 1.0, **metrics: float) -> StoredRun:
    found = {"test": {name: {"value": value} for name, value in metrics.items()}} if metrics else {}
    parts = {"number": number, "name": f"exp_{number}", "key": str(number), "encoder": encoder, "metrics": found}
    return StoredRun(**parts, timings={"train": seconds})


RUNS = [
    run(1, accuracy=0.7, log_loss=0.3, seconds=3),
    run(2, encoder="b", seconds=2),
    run(3, accuracy=0.9, log_loss=0.5, seconds=1),
]


@pytest.mark.parametrize(
    ("by", "numbers"),
    [
        ("run", [1, 2, 3]),
        ("-run", [3, 2, 1]),
        ("result", [3, 1, 2]),
        ("-result", [1, 3, 2]),
        ("accuracy", [3, 1, 2]),
        ("test.log_loss", [1, 3, 2]),
        ("time", [3, 2, 1]),
        ("-encoder", [2, 1, 3]),
    ],
)
def test_best_first_and_missing_values_last(by: str, numbers: list[int]) -> None:
    assert [one.number for one in sort_runs(RUNS, by)] == numbers


@pytest.mark.parametrize(("by", "suggestion"), [("acuracy", "accuracy"), ("val.accuracy", "accuracy"), ("zzz", "result")])
def test_an_order_there_is_none_of_suggests_one_that_works(by: str, suggestion: str) -> None:
    with refused("unknown-order") as caught:
        sort_runs(RUNS, by)
    assert caught.value.try_ == f"--sort {suggestion}"
    sort_runs(RUNS, suggestion)
