"""The columns of predictions, the same in `predictions.csv` of a run and in what `predict` answers; and reading that file again.

In: logits, class names and the temperature that calibrates them. Out: columns by name: ``predicted`` and ``confidence``, for the
second and further guesses ``predicted_2``, ``confidence_2`` and so on, and ``p/NAME`` for the probability of a class.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.core.checksums import making_sense, read_checked
from unchoke.data.corrections import LABEL, VALUE, Corrections
from unchoke.data.several_labels import MULTI_LABEL, label_cells
from unchoke.runs.report.json import WRITE_AGAIN
from unchoke.training.scoring.figures import probabilities, softmax

PREDICTIONS_FILE = "predictions.csv"
TRUTH = "truth"
GROUP = "group"
"""The column that says which samples are alike, where some are."""
MAX_CLASSES = 100
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
        columns |= {f"p/{name}": rounded[:, place] for place, name in enumerate(names)}
    return columns


def label_columns(
    logits: NDArray[np.float32], names: Sequence[str], temperature: float, thresholds: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Of several labels: those that reach their threshold, and the probability of each."""
    chances = probabilities(MULTI_LABEL, logits, temperature)
    rounded = round_digits(chances)
    guesses = np.array(label_cells(chances >= thresholds, names), dtype=object)
    return {"predicted": guesses, **{f"p/{name}": rounded[:, place] for place, name in enumerate(names)}}


def kept_columns(
    logits: NDArray[np.float32], targets: NDArray[np.int64], names: Sequence[str], temperature: float
) -> dict[str, NDArray[Any]]:
    """What `predictions.csv` keeps: every probability, or where there are many classes the likeliest and the true one's."""
    if len(names) <= MAX_CLASSES:
        return class_columns(logits, names, temperature, every_class=True)
    columns = class_columns(logits, names, temperature, top=TOP_KEPT)
    truth_confidence = np.take_along_axis(softmax(logits / temperature), targets[:, None], axis=1)[:, 0]
    return {**columns, TRUTH_CONFIDENCE: round_digits(truth_confidence)}


def round_digits(values: NDArray[Any]) -> NDArray[np.float64]:
    """To six significant digits, however small the value."""
    wide = values.astype(np.float64)
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.where(wide > 0, wide, 1.0))))
    return np.asarray(np.round(wide * scale) / scale)


def load_predictions(file: Path) -> pd.DataFrame:
    """`predictions.csv` with text kept as text."""
    text = {"sample_id": "str", "split": "str", TRUTH: "str", "predicted": "str", GROUP: "str"}
    data = read_checked(file, try_=WRITE_AGAIN)
    with making_sense(file, try_=WRITE_AGAIN):
        return pd.read_csv(io.BytesIO(data), dtype=text, na_filter=False)


def correct_predictions(table: pd.DataFrame, corrections: Corrections) -> tuple[pd.DataFrame, int]:
    """The table with truths as they were corrected and without what was dropped; how many rows that changed."""
    ids = table["sample_id"]
    gone = ids.isin(list(corrections.dropped)).to_numpy()
    changed = gone.copy()
    table = table.copy()
    columns = {TRUTH: corrections.values(LABEL)} if TRUTH in table.columns else {}
    names = [name.removeprefix("truth/") for name in table.columns if name.startswith("truth/")]
    columns |= {f"truth/{name}": corrections.values(f"{VALUE}{name}") for name in names}
    for column, wanted in columns.items():
        pairs = zip(ids.tolist(), table[column].tolist(), strict=True)
        now = [(wanted[name] if column == TRUTH else float(wanted[name])) if name in wanted else value for name, value in pairs]
        changed |= np.array([old != new for old, new in zip(table[column].tolist(), now, strict=True)], dtype=bool)
        table[column] = now
    if TRUTH_CONFIDENCE in table.columns:
        relabelled = np.flatnonzero(changed & ~gone)
        table.loc[table.index[relabelled], TRUTH_CONFIDENCE] = np.nan  # that of the class that was true before
    return table[~gone].reset_index(drop=True), int(changed.sum())
