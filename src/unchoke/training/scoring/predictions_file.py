"""`predictions.csv` of a run: read again, and with the truths that people corrected since."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from unchoke.core.checksums import making_sense, read_checked
from unchoke.data.corrections import LABEL, VALUE, Corrections
from unchoke.runs.report.json import WRITE_AGAIN
from unchoke.training.scoring.judge import GROUP
from unchoke.training.scoring.predicted_columns import TRUTH_CONFIDENCE

TRUTH = "truth"


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
