"""Which samples must stay on one side: those of a group, and those with the same bytes. Pure: columns to unit numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def tie_samples(groups: Sequence[str], contents: Sequence[str] | None) -> npt.NDArray[np.int64]:
    """A number per sample, equal for samples tied by group or content, directly or through others; "" ties nothing."""
    parent = list(range(len(groups)))
    for column in (groups, contents or ()):
        first: dict[str, int] = {}
        for row, value in enumerate(column):
            if value:
                _join(parent, first.setdefault(value, row), row)
    return np.fromiter((_root(parent, row) for row in range(len(parent))), dtype=np.int64, count=len(parent))


def _root(parent: list[int], row: int) -> int:
    while parent[row] != row:
        parent[row] = parent[parent[row]]
        row = parent[row]
    return row


def _join(parent: list[int], left: int, right: int) -> None:
    left, right = _root(parent, left), _root(parent, right)
    parent[max(left, right)] = min(left, right)
