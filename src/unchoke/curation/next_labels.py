"""Which photos to label next: those the model is least sure of, unlike one another and unlike copies of what is labelled.

In: features of labelled and of unlabelled photos, and labels. Out: findings, the first to label first. Picked one by one: each
time the photo with the most doubt, as far as nothing like it was picked before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unchoke.curation.data_finding import DataFinding
from unchoke.curation.fold_ridge import one_hot, solve_all
from unchoke.data.corrections import LABEL, Correction
from unchoke.features.nearest import UnitRows
from unchoke.training.scoring.figures import softmax

_MOST_WEIGHED = 4000
_COPY_COSINE = 0.98


def choose_next(
    paths: Sequence[str],
    unlabelled_nd: NDArray[np.float16],
    labelled_nd: NDArray[np.float16],
    targets: NDArray[np.int64],
    names: Sequence[str],
    *,
    strength: float,
    temperature: float,
    num: int,
) -> list[DataFinding]:
    """Up to `num` photos of `paths`, in the order in which they help most."""
    answer = solve_all(labelled_nd, one_hot(targets, len(names)), strength)
    probs = softmax(answer(unlabelled_nd) * temperature)
    doubt = -(probs * np.log(probs + 1e-9)).sum(axis=1) / np.log(max(2, len(names)))
    doubtful = np.argsort(-doubt, kind="stable")[:_MOST_WEIGHED]
    units = UnitRows(labelled_nd)
    rows = units.of(unlabelled_nd[doubtful]).numpy()
    picked = _pick(rows, doubt[doubtful], num)
    found = []
    for place, one in enumerate(picked):
        row = int(doubtful[one])
        guess = int(probs[row].argmax())
        evidence = {
            "doubt": round(float(doubt[row]), 4),
            "likely": names[guess],
            "probability": round(float(probs[row, guess]), 4),
            "place": place + 1,
        }
        message = f"{paths[row]!r} is most likely {names[guess]!r} ({100 * probs[row, guess]:.0f} %): doubt {doubt[row]:.2f} of 1"
        suggested = (Correction(paths[row], LABEL, names[guess]),)
        score = round(1 - place / 100_000, 5)
        found.append(DataFinding("next-label", message, (paths[row],), score, evidence, suggested))
    return found


def _pick(rows: NDArray[np.float32], doubt: NDArray[np.floating], num: int) -> list[int]:
    """Greedy: doubt times how far a photo is from all that were picked."""
    picked: list[int] = []
    far = np.ones(len(rows), np.float32)
    for _ in range(min(num, len(rows))):
        worth = doubt * np.maximum(far, 0)
        worth[picked] = -1
        best = int(worth.argmax())
        if worth[best] <= 0:
            break
        picked.append(best)
        cosines = rows @ rows[best]
        far = np.minimum(far, np.where(cosines >= _COPY_COSINE, 0, 1 - np.clip(cosines, 0, 1)))
    return picked
