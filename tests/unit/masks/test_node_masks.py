"""How what is left of masks is divided among nodes."""

from __future__ import annotations

from unchoke.core.boxes import Box
from unchoke.masks.node_masks import split_bands, task_size


def bands(left: int, *tops: int) -> list[Box]:
    return [Box(top, left, 10, 50) for top in tops]


def test_bands_that_follow_each_other_stay_together() -> None:
    todo = [*bands(0, 0, 10, 20, 50, 60), *bands(50, 0, 10)]
    assert split_bands(todo, 2) == [tuple(bands(0, 0, 10)), tuple(bands(0, 20)), tuple(bands(0, 50, 60)), tuple(bands(50, 0, 10))]
    assert [band for task in split_bands(todo, 8) for band in task] == todo


def test_tasks_small_and_never_too_large() -> None:
    assert task_size(4, slots=8) == 1
    assert task_size(60, slots=4) == 5
    assert task_size(10_000, slots=4) == 8
