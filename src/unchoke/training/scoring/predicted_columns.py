"""What is said of each sample, column by column: the class and how sure it is, further classes, all probabilities.

In: logits, class names and the temperature that calibrates them. Out: columns by name: ``predicted`` and ``confidence``, for the
second and further guesses ``predicted_2``, ``confidence_2`` and so on, and ``p/NAME`` for the probability of a class. The same in
`predictions.csv` of a run and in what `predict` answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.training.scoring.figures import softmax

MOST_CLASSES = 100
"""Up to as many classes `predictions.csv` has the probability of each; beyond, a few guesses and that of the true class."""
TOP_KEPT = 5
TRUTH_CONFIDENCE = "truth_confidence"
_DIGITS = 6


def class_columns(
    logits: NDArray[np.float32], names: Sequence[str], temperature: float, *, top: int = 1, every_class: bool = False
) -> dict[str, NDArray[Any]]:
    """The `top` guesses, each with its calibrated probability, and with `every_class` that of every class."""
    probabilities = softmax(logits / temperature).astype(np.float64)
    words = np.array(names, dtype=object)
    best = probabilities.argmax(axis=1)
    columns: dict[str, NDArray[Any]] = {"predicted": words[best], "confidence": probabilities.max(axis=1).round(_DIGITS)}
    order = np.argsort(-probabilities, axis=1, kind="stable")
    for place in range(1, min(top, len(names))):
        columns[f"predicted_{place + 1}"] = words[order[:, place]]
        columns[f"confidence_{place + 1}"] = np.take_along_axis(probabilities, order[:, place, None], axis=1)[:, 0].round(_DIGITS)
    if every_class:
        rounded = round_digits(probabilities)
        columns |= {probability_column(name): rounded[:, place] for place, name in enumerate(names)}
    return columns


def kept_columns(
    logits: NDArray[np.float32], targets: NDArray[np.int64], names: Sequence[str], temperature: float
) -> dict[str, NDArray[Any]]:
    """What `predictions.csv` keeps: every probability, or where there are many classes the likeliest and the true one's."""
    if len(names) <= MOST_CLASSES:
        return class_columns(logits, names, temperature, every_class=True)
    columns = class_columns(logits, names, temperature, top=TOP_KEPT)
    of_truth = np.take_along_axis(softmax(logits / temperature), targets[:, None], axis=1)[:, 0]
    return {**columns, TRUTH_CONFIDENCE: round_digits(of_truth)}


def probability_column(name: str) -> str:
    return f"p/{name}"


def round_digits(values: NDArray[Any]) -> NDArray[np.float64]:
    """To six digits that matter, however small the value."""
    wide = values.astype(np.float64)
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.where(wide > 0, wide, 1.0))))
    return np.asarray(np.round(wide * scale) / scale)
