"""An interval around each predicted value, from the errors on val (split conformal prediction).

In: predictions and truth of val, and of test. Out: by how much a prediction is widened, so that the truth lies within in as many
cases as asked for, whatever the errors look like; and in how many it did on test, which had no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import Interval, ValueIntervalRecord
from unchoke.training.scoring.proportions import wilson

LEVEL = 0.9


def fewest_samples(level: float) -> int:
    """How many val samples it takes: 9 for 90 %."""
    return math.ceil(level / (1 - level) - 1e-9)


def half_widths(outputs: NDArray[Any], targets: NDArray[Any], *, level: float) -> NDArray[np.float64] | None:
    """For each target the error that ⌈(n + 1) · level⌉ of the n samples do not exceed; None where there are too few samples."""
    place = math.ceil((len(targets) + 1) * level - 1e-9)
    if len(targets) == 0 or place > len(targets):
        return None
    return np.asarray(np.sort(np.abs(outputs.astype(np.float64) - targets), axis=0)[place - 1])


def value_intervals(
    names: Sequence[str],
    val: tuple[NDArray[Any], NDArray[Any]] | None,
    test: tuple[NDArray[Any], NDArray[Any]] | None,
    *,
    level: float = LEVEL,
) -> ValueIntervalRecord | None:
    """From (outputs, targets) of val and test; None where val is too small, coverage left out where there is no test split."""
    widths = None if val is None else half_widths(*val, level=level)
    if widths is None or val is None:
        return None
    record = ValueIntervalRecord(level=level, num_val=len(val[1]), half_widths=dict(zip(names, widths.tolist(), strict=True)))
    if test is not None and len(test[1]):
        inside = (np.abs(test[0].astype(np.float64) - test[1]) <= widths).mean(axis=0)
        lows, highs = wilson(inside, len(test[1]))
        figures = zip(names, inside.tolist(), lows.tolist(), highs.tolist(), strict=True)
        record.num_test = len(test[1])
        record.coverage = {name: Interval(share, low, high) for name, share, low, high in figures}
    return record
