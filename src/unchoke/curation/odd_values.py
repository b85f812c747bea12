"""Values that disagree with those of photos like it.

In: features, targets, folds, and the nearest rows of every photo. Out: a finding for each target of a photo that is far from what
a linear head without it says and from what the photos most like it have, both measured in what is usual for such differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unchoke.core.units import format_number
from unchoke.curation.data_finding import DataFinding
from unchoke.curation.fold_ridge import answer_held_out, value_loss
from unchoke.curation.odd_photos import robust
from unchoke.features.nearest import NearestRows

_LEAST_DEVIATIONS = 2.5
_NEIGHBOURS = 8
_GROSS = 3.0
"""Beyond the quartiles by so many times the distance between them, a value counts as gross (Tukey's outer fence)."""


def find_odd_values(
    ids: Sequence[str],
    names: Sequence[str],
    values_nt: NDArray[np.float32],
    feats_nd: NDArray[np.float16],
    nearest: NearestRows,
    folds_n: NDArray[np.int64],
) -> list[DataFinding]:
    """One finding for each photo: its oddest target."""
    learnt = _without_gross(values_nt)
    middle, spread = learnt.mean(axis=0), np.maximum(learnt.std(axis=0), 1e-9)
    scaled, calm = (((values - middle) / spread).astype(np.float32) for values in (values_nt, learnt))
    said = answer_held_out(feats_nd, calm, folds_n, loss=value_loss(calm)).outputs
    near = np.median(scaled[nearest.rows[:, :_NEIGHBOURS]], axis=1) if nearest.rows.shape[1] else said
    off = np.minimum(_deviations(scaled - said), _deviations(scaled - near))
    same_way = np.sign(scaled - said) == np.sign(scaled - near)
    off = np.where(same_way, off, 0.0)
    worst = off.argmax(axis=1)
    found = []
    for row in np.flatnonzero(off.max(axis=1) >= _LEAST_DEVIATIONS).tolist():
        target = int(worst[row])
        value, likely, around = (float(column[row, target] * spread[target] + middle[target]) for column in (scaled, said, near))
        evidence = {
            "target": names[target],
            "value": value,
            "likely": round(likely, 6),
            "neighbours": round(around, 6),
            "deviations": round(float(off[row, target]), 2),
        }
        message = (
            f"{ids[row]!r} has {names[target]} {format_number(value)}; a model not trained on it says {format_number(likely)}, "
        )
        message += f"the photos most like it have about {format_number(around)}"
        score = float(1 - 1 / (1 + off[row, target] / 4))
        found.append(DataFinding("value", message, (ids[row],), round(min(0.99, 0.3 + score), 4), evidence))
    return found


def _without_gross(values_nt: NDArray[np.float32]) -> NDArray[np.float32]:
    """Values to learn from: what lies far beyond all others goes to where that begins, or a slip of the pen would teach heads."""
    low, high = np.quantile(values_nt, [0.25, 0.75], axis=0)
    fence = np.where(high > low, _GROSS * (high - low), np.inf)
    return np.clip(values_nt, low - fence, high + fence).astype(np.float32)


def _deviations(errors_nt: NDArray[np.float32]) -> NDArray[np.float64]:
    """Errors in what is usual for each target."""
    usual = np.array([max(robust(errors_nt[:, target])[1], 1e-6) for target in range(errors_nt.shape[1])])
    found: NDArray[np.float64] = np.abs(errors_nt) / usual
    return found
