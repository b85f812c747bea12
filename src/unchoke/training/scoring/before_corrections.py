"""What corrections brought: the run before them and this one, on the same test photos, both judged by the corrected truth.

In: what a run says of its test photos. Out: a `CorrectionsRecord`. The run before is the newest one of the workspace that was
trained the same way with other corrections, or none; what it said stands in its `predictions.csv`. Photos that either did not
keep for its test are left out, so that both are asked the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.core.choices import CORRECTIONS
from unchoke.core.record import CorrectionsRecord
from unchoke.core.workspace import Workspace
from unchoke.runs.experiment_store import ExperimentStore, RunRow
from unchoke.runs.run_files import recall_record
from unchoke.runs.session import Session
from unchoke.training.data import Problem
from unchoke.training.scoring.judge import ScoredOutputs
from unchoke.training.scoring.predictions_file import load_predictions

_FILE = "predictions.csv"


def compare_before(session: Session, run: RunRow, problem: Problem, judged: ScoredOutputs) -> CorrectionsRecord | None:
    """What was used, and what it brought; None where nothing was corrected."""
    used = next((choice.evidence for choice in session.choices if choice.name == CORRECTIONS), None)
    if used is None:
        return None
    counts = {name: count for name, count in used.items() if isinstance(count, int)}
    record = CorrectionsRecord(used=counts, key=str(used.get("key", "")))
    before = _run_before(session, run, record.key)
    if before is None or "test" not in judged.positions:
        return record
    table = load_predictions(session.workspace.run_folder(before.name) / _FILE)
    return _compared(record, before.name, table[table["split"] == "test"], problem, judged)


def _run_before(session: Session, run: RunRow, key: str) -> RunRow | None:
    """The newest finished run with the same settings and other corrections."""
    with ExperimentStore.open(session.workspace.experiments_file) as experiments:
        rows = [row for row in experiments.runs() if row.number != run.number and row.status == "done"]
    for row in sorted(rows, key=lambda one: -one.number):
        if _settings_of(row) == _settings_of(run) and _has_other(session, row, key):
            return row
    return None


def _settings_of(row: RunRow) -> dict[str, Any]:
    return {name: value for name, value in row.settings.items() if name != CORRECTIONS} | {"fingerprint": row.fingerprint}


def _has_other(session: Session, row: RunRow, key: str) -> bool:
    workspace: Workspace = session.workspace
    folder = workspace.run_folder(row.name)
    if not (folder / _FILE).is_file():
        return False
    record = recall_record(folder, session.warn)
    return record is not None and (record.corrections is None or record.corrections.key != key)


def _compared(
    record: CorrectionsRecord, name: str, table: pd.DataFrame, problem: Problem, judged: ScoredOutputs
) -> CorrectionsRecord:
    """Both runs on the photos that both kept for the test."""
    where = judged.positions["test"]
    place = {problem.sample_ids[position]: row for row, position in enumerate(where.tolist())}
    rows = [row for row, sample_id in enumerate(table["sample_id"].tolist()) if sample_id in place]
    if not rows:
        return record
    own = np.array([place[sample_id] for sample_id in table["sample_id"].iloc[rows].tolist()], np.int64)
    truth, outputs = problem.targets[where[own]], judged.outputs["test"][own]
    earlier = table.iloc[rows]
    if problem.kind == "classification":
        said = earlier["predicted"].tolist()
        before = np.mean([problem.names[target] == guess for target, guess in zip(truth.tolist(), said, strict=True)])
        after = np.mean(outputs.argmax(axis=1) == truth)
        metric = "accuracy"
    else:
        columns = [f"predicted/{target}" for target in problem.names]
        if not set(columns) <= set(earlier.columns):
            return record
        before, after = _r2(earlier[columns].to_numpy(np.float64), truth), _r2(outputs.astype(np.float64), truth)
        metric = "r2"
    figures = {"before": round(float(before), 6), "after": round(float(after), 6), "num_test": len(rows)}
    return record.model_copy(update={"run": name, "metric": metric, **figures})


def _r2(outputs: NDArray[np.float64], truth: NDArray[Any]) -> float:
    """The mean of all targets' shares of variance."""
    spread = np.maximum(truth.var(axis=0), 1e-12)
    return float((1 - ((outputs - truth) ** 2).mean(axis=0) / spread).mean())
