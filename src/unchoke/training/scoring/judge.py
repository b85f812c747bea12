"""Judges a finished training: scores with intervals, calibration, predictions as a table, the worst mistakes as pictures.

`compare_before` says what corrections of the data brought: the newest run with the same settings and other corrections, and this
one, on the test photos that both have, judged by the corrected truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unchoke.core.choices import CORRECTIONS
from unchoke.core.record import (
    BaselineRecord,
    CalibrationRecord,
    CorrectionsRecord,
    MistakeRecord,
    ScatterRecord,
    ValueIntervalRecord,
)
from unchoke.data.sample_set import is_input
from unchoke.data.several_labels import MULTI_LABEL, label_cells
from unchoke.machine.backend import one_thread
from unchoke.pixels.image import DecodeError, read_image
from unchoke.runs.experiment_store import ExperimentStore, RunRow
from unchoke.runs.report.page import make_thumbnail
from unchoke.runs.run_files import recall_record
from unchoke.runs.session import Session
from unchoke.training.data import FeatureSource, Problem
from unchoke.training.heads.heads import TrainedHead
from unchoke.training.scoring.figures import as_pairs, calibrate, probabilities, scaled_apart
from unchoke.training.scoring.intervals import value_intervals
from unchoke.training.scoring.label_scores import choose_cuts, cuts_apart
from unchoke.training.scoring.predictions import GROUP, PREDICTIONS_FILE, kept_columns, label_columns, load_predictions
from unchoke.training.scoring.scores import ConstantAnswer, JudgedSplit, Scores, compare, score

JUDGED = ("val", "test")
"""The splits that are scored, in this order."""
_MISTAKES_SHOWN = 24
_THUMBNAIL_PX = 160
_SCATTER_POINTS = 2000


@dataclass(frozen=True)
class ScoredOutputs:
    """Outputs for every sample of val and test, and what they are worth. `outputs` is aligned with `positions`.

    Logits are scored as `predict` hands them out, calibrated; those of val by temperatures that did not see them.
    """

    positions: dict[str, NDArray[np.int64]]
    outputs: dict[str, NDArray[np.float32]]
    scores: dict[str, Scores]
    calibration: CalibrationRecord | None
    baseline: BaselineRecord | None = None
    value_intervals: ValueIntervalRecord | None = None
    thresholds: NDArray[np.float64] | None = None
    """Of several labels: the probability from which on each counts as given."""

    @property
    def temperature(self) -> float:
        return (self.calibration.temperature if self.calibration else None) or 1.0


Outputs = dict[str, NDArray[np.float32]]


def run_head(head: TrainedHead, source: FeatureSource, problem: Problem, *, device: torch.device) -> Outputs:
    """The head's outputs for val and test; for val those of the head that was trained without it."""
    judged = {"val": head.without_val or head, "test": head}
    with one_thread():
        return {
            split: one.predict(source, problem.positions(split), device=device)
            for split, one in judged.items()
            if len(problem.positions(split))
        }


def judge(
    outputs: Outputs,
    problem: Problem,
    *,
    seed: int,
    weights: tuple[float, ...] | None = None,
    groups: Sequence[str] | None = None,
    answer: ConstantAnswer | None = None,
) -> ScoredOutputs:
    """Calibrate outputs on val and score them, with intervals (targets weighted where `weights` are declared).

    `groups` names each sample's group, "" for none: intervals are then those of groups. `answer` is the baseline where the
    problem has no train split to take it from.
    """
    positions = {split: problem.positions(split) for split in outputs}
    targets = {split: problem.targets[where] for split, where in positions.items()}
    calibration = None
    judged = dict(outputs)
    several = problem.kind == MULTI_LABEL
    if problem.kind != "regression" and {"val", "test"} <= set(positions):
        rows = {split: as_pairs(outputs[split]) if several else outputs[split] for split in positions}
        truths = {split: targets[split].reshape(-1).astype(np.int64) for split in positions}
        calibration = calibrate(rows["val"], truths["val"], rows["test"], truths["test"])
        judged["test"] = outputs["test"] / np.float32(calibration.temperature or 1.0)
        apart = scaled_apart(rows["val"], truths["val"])
        judged["val"] = apart[:, 1].reshape(outputs["val"].shape) if several else apart
    cuts: dict[str, NDArray[Any]] = {}
    if several and "val" in positions:
        cuts = {"val": cuts_apart(judged["val"], targets["val"]), "test": choose_cuts(judged["val"], targets["val"])}
    units = {split: number_groups(groups, where) for split, where in positions.items()}
    scores = {
        split: score(
            problem.kind,
            problem.names,
            judged[split],
            targets[split],
            seed=seed,
            weights=weights,
            groups=units[split],
            cuts=cuts.get(split),
        )
        for split in positions
    }
    splits = {split: JudgedSplit(judged[split], targets[split], units[split], scores[split]) for split in positions}
    baseline = compare(ConstantAnswer.of_problem(problem) or answer, splits, seed=seed, weights=weights)
    widened = None
    if problem.kind == "regression":
        pairs = {split: (outputs[split], targets[split]) for split in positions}
        widened = value_intervals(problem.names, pairs.get("val"), pairs.get("test"))
    thresholds = None
    if several:
        at = cuts["test"] if cuts else np.zeros(problem.num_outputs)
        thresholds = 1 / (1 + np.exp(-at.astype(np.float64)))
    return ScoredOutputs(positions, outputs, scores, calibration, baseline, widened, thresholds)


def number_groups(groups: Sequence[str] | None, where: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """A number for each sample, the same within a group; samples without a group stand alone. None where every sample does."""
    if groups is None:
        return None
    names = [groups[place] for place in where.tolist()]
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(name or f"\0{place}", len(numbers)) for place, name in enumerate(names)]
    return np.array(found, dtype=np.int64) if len(numbers) < len(found) else None


def predictions_table(judged: ScoredOutputs, problem: Problem, frame: pd.DataFrame) -> pd.DataFrame:
    """One row per sample of val and test: its truth, what was predicted, the extra inputs it was predicted from, its group."""
    parts = []
    inputs = [name for name in frame.columns if is_input(name)]
    groups = frame[GROUP].to_numpy() if GROUP in frame and frame[GROUP].ne("").any() else None
    for split, where in judged.positions.items():
        part: dict[str, Any] = {"sample_id": frame["sample_id"].to_numpy()[where], "split": split}
        if problem.kind == "classification":
            part["truth"] = np.array(problem.names, dtype=object)[problem.targets[where]]
            part.update(kept_columns(judged.outputs[split], problem.targets[where], problem.names, judged.temperature))
        elif problem.kind == MULTI_LABEL:
            assert judged.thresholds is not None
            part["truth"] = np.array(label_cells(problem.targets[where], problem.names), dtype=object)
            part.update(label_columns(judged.outputs[split], problem.names, judged.temperature, judged.thresholds))
        else:
            for index, name in enumerate(problem.names):
                part[f"truth/{name}"] = problem.targets[where, index]
                part[f"predicted/{name}"] = judged.outputs[split][:, index]
        part.update({name: frame[name].to_numpy()[where] for name in inputs})
        if groups is not None:
            part[GROUP] = groups[where]
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"sample_id": [], "split": []})


def worst_mistakes(judged: ScoredOutputs, problem: Problem, frame: pd.DataFrame) -> list[MistakeRecord]:
    """The test images the model was most confidently wrong about, with thumbnails."""
    if problem.kind == "regression" or "test" not in judged.positions:
        return []
    where = judged.positions["test"]
    chances = probabilities(problem.kind, judged.outputs["test"], judged.temperature)
    if judged.thresholds is not None:
        truth, predicted = problem.targets[where], chances >= judged.thresholds
        truths, guesses = (label_cells(one, problem.names) for one in (truth, predicted))
        # the label that was got most wrong says how wrong a photo is
        sure = np.where(predicted != (truth > 0), np.abs(chances - truth), 0).max(axis=1)
    else:
        words = np.array(problem.names, dtype=object)
        truths, guesses = words[problem.targets[where]].tolist(), words[chances.argmax(axis=1)].tolist()
        sure = chances.max(axis=1)
    wrong = np.flatnonzero([one != other for one, other in zip(truths, guesses, strict=True)])
    worst = wrong[np.argsort(-sure[wrong], kind="stable")][:_MISTAKES_SHOWN]

    def thumbnail(path: str) -> str | None:
        try:
            return make_thumbnail(read_image(path, cover_px=_THUMBNAIL_PX), side_px=_THUMBNAIL_PX)
        except DecodeError:  # the file is gone: the report then shows its name alone
            return None

    rows = frame.iloc[where[worst]]
    return [
        MistakeRecord(
            sample_id=str(sample_id),
            path=str(path),
            truth=truths[index],
            predicted=guesses[index],
            confidence=float(sure[index]),
            thumbnail=thumbnail(str(path)),
        )
        for index, sample_id, path in zip(worst, rows["sample_id"], rows["path"], strict=True)
    ]


def scatter(judged: ScoredOutputs, problem: Problem) -> list[ScatterRecord]:
    """Truth against prediction for each target of the test split, thinned to what a page can show."""
    if problem.kind != "regression" or "test" not in judged.positions:
        return []
    truth = problem.targets[judged.positions["test"][:_SCATTER_POINTS]]
    outputs = judged.outputs["test"][:_SCATTER_POINTS]
    return [
        ScatterRecord(target=name, truth=truth[:, index].tolist(), predicted=outputs[:, index].tolist())
        for index, name in enumerate(problem.names)
    ]


def compare_before(session: Session, run: RunRow, problem: Problem, judged: ScoredOutputs) -> CorrectionsRecord | None:
    """Which corrections were used, and what they brought; None where nothing was corrected."""
    used = next((choice.evidence for choice in session.choices if choice.name == CORRECTIONS), None)
    if used is None:
        return None
    counts = {name: count for name, count in used.items() if isinstance(count, int)}
    record = CorrectionsRecord(used=counts, key=str(used.get("key", "")))
    before = _run_before(session, run, record.key)
    if before is None or "test" not in judged.positions:
        return record
    table = load_predictions(session.workspace.run_folder(before.name) / PREDICTIONS_FILE)
    where = judged.positions["test"]
    place = {problem.sample_ids[position]: row for row, position in enumerate(where.tolist())}
    earlier = table[(table["split"] == "test") & table["sample_id"].isin(place)]
    if earlier.empty:
        return record
    own = np.array([place[sample_id] for sample_id in earlier["sample_id"]], np.int64)
    truth, outputs = problem.targets[where[own]], judged.outputs["test"][own]
    if problem.kind == "classification":
        metric, both = "accuracy", [earlier["predicted"].to_numpy() == np.array(problem.names, dtype=object)[truth]]
        both.append(outputs.argmax(axis=1) == truth)
    else:
        columns = [f"predicted/{target}" for target in problem.names]
        if not set(columns) <= set(earlier.columns):
            return record
        spread = np.maximum(truth.var(axis=0), 1e-12)
        values = (earlier[columns].to_numpy(np.float64), outputs.astype(np.float64))
        metric, both = "r2", [1 - ((one - truth) ** 2).mean(axis=0) / spread for one in values]
    figures = {name: round(float(np.mean(found)), 6) for name, found in zip(("before", "after"), both, strict=True)}
    return record.model_copy(update={"run": before.name, "metric": metric, "num_test": len(earlier), **figures})


def _run_before(session: Session, run: RunRow, key: str) -> RunRow | None:
    """The newest finished run with the same settings and other corrections."""

    def settings_of(row: RunRow) -> dict[str, Any]:
        return {name: value for name, value in row.settings.items() if name != CORRECTIONS} | {"fingerprint": row.fingerprint}

    with ExperimentStore.open(session.workspace.experiments_file) as experiments:
        rows = [row for row in experiments.runs() if row.number != run.number and row.status == "done"]
    for row in sorted(rows, key=lambda one: -one.number):
        folder = session.workspace.run_folder(row.name)
        if settings_of(row) == settings_of(run) and (folder / PREDICTIONS_FILE).is_file():
            record = recall_record(folder, session.warn)
            if record is not None and (record.corrections is None or record.corrections.key != key):
                return row
    return None
