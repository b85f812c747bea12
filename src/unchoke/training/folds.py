"""`--fold all`: every fold is the test set once, and the predictions of all of them are judged together.

In: what runs one fold. Out: `experiments/folds_<key>/oof.csv`, in which every sample is predicted once, by the run that never saw
it; `folds.json` with the scores of each fold, their mean and deviation, and those of all predictions together; and a
`FoldsResult`. Nothing is trained here: a fold that is done is found done, and one that was stopped goes on.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.clock import StageTimers
from unchoke.core.errors import DataError, UsageError
from unchoke.core.events import Chosen, Event, Note
from unchoke.core.fingerprint import digest
from unchoke.core.metrics import format_metric, metric_label, metric_order
from unchoke.core.record import Interval, RunRecord
from unchoke.core.remembered import remember
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.core.workspace import Workspace, out_option
from unchoke.data.manifest import load_manifest
from unchoke.data.several_labels import MULTI_LABEL, label_matrix
from unchoke.data.targets import plan_targets
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.report.json import to_jsonable
from unchoke.runs.report.layout import columns
from unchoke.runs.report.summary import JUDGED_BY, ReportedMetric, baseline_value
from unchoke.runs.session import Session
from unchoke.training.results import FitResult, plain_metrics
from unchoke.training.scoring.judge import number_groups
from unchoke.training.scoring.predictions import GROUP, TRUTH_CONFIDENCE, load_predictions
from unchoke.training.scoring.scores import ConstantAnswer, Scores, score

OOF_FILE = "oof.csv"
FOLDS_FILE = "folds.json"


@dataclass
class FoldSession(Session):
    """A session in which one fold is the test set. What the workspace remembers is the `whole`: that all folds were asked for."""

    whole: Settings = field(default_factory=Settings)

    def remember_settings(self) -> None:
        if self.remembering:
            remember(self.workspace, self.whole)

    def use_encoder(self, name: str, input_px: int | None) -> None:
        super().use_encoder(name, input_px)
        self.whole = replace(self.whole, encoder=name, input_px=input_px)


def run_all_folds(session: Session, one_fold: Callable[[Session], FitResult]) -> FoldsResult:
    """Run `one_fold` in a session of its own for each fold, then judge all predictions together."""
    told: list[Event] = []

    def listener(event: Event) -> None:
        """Passes each choice and note on the first time only: the folds share most of theirs."""
        if isinstance(event, Chosen | Note):
            if event in told:
                return
            told.append(event)
        session.on_event(event)

    if session.cluster is not None:
        listener(Note("features of all folds are extracted once; then one fold trains after the other, networks on all nodes"))

    def run(fold: int) -> FitResult:
        of = "" if session.settings.fold_column and fold == 0 else f" of {count_folds(session.settings, session.workspace)}"
        listener(Note(f"fold {fold} is tested now, {fold + 1}{of}"))
        same = {one.name: getattr(session, one.name) for one in fields(Session)}
        own = {"timers": StageTimers(), "timelines": {}, "choices": [*session.choices], "on_event": listener}
        settings = replace(session.settings, fold=fold)
        folded = FoldSession(**same | own | {"settings": settings}, whole=session.settings)
        result = one_fold(folded)
        session.settings, session.encoder_from = folded.whole, folded.encoder_from  # of the first fold, for all
        return result

    return train_all_folds(run, settings=session.settings, workspace=session.workspace)


def count_folds(settings: Settings, workspace: Workspace) -> int:
    """How many folds there are: as many as were asked for, or as the user's own column has, by the manifest of the first run."""
    if settings.fold_column is None and settings.folds is not None:
        return settings.folds
    manifest = load_manifest(workspace.manifest_file)
    assert manifest is not None, "a run writes the manifest"
    return int(manifest["fold"].max()) + 1


def train_all_folds(one_fold: Callable[[int], FitResult], *, settings: Settings, workspace: Workspace) -> FoldsResult:
    """Call `one_fold` with 0, 1, 2, …; gather, judge and keep what the test sets were predicted to be."""
    if settings.folds is None and settings.fold_column is None:
        raise UsageError(
            "--fold all was given without a number of folds",
            code="folds-missing",
            why="the data is divided into as many parts",
            try_="--folds 5 --fold all, or --fold-column NAME for folds of your own",
        )
    results = [one_fold(0)]
    results += [one_fold(fold) for fold in range(1, count_folds(settings, workspace))]
    oof = gather_oof(results, workspace)
    task = results[0].run_record.task
    pooled = judge_oof(oof, task.kind, task.names, settings=settings)
    with ExperimentStore.open(workspace.experiments_file) as experiments:
        key = digest([experiments.run(result.run).key for result in results])
    result = FoldsResult(
        results=results,
        pooled=pooled,
        name=f"folds_{key[:8]}",
        workspace=workspace.root,
        already_done=all(one.already_done for one in results),
        baseline=judge_constant(oof, results, settings=settings),
    )
    atomic.sweep_temporaries(result.folder)
    record = json.dumps(to_jsonable(result.to_record()), indent=1, sort_keys=True, ensure_ascii=False)
    table = oof.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    for file, text in ((result.folder / OOF_FILE, table), (result.folder / FOLDS_FILE, record + "\n")):
        if not file.is_file() or file.read_bytes() != text.encode("utf-8"):
            atomic.write_text(file, text)
    return result


def gather_oof(results: Sequence[FitResult], workspace: Workspace) -> pd.DataFrame:
    """The test rows of every fold: sample_id, fold, group, and truth and prediction as in `predictions.csv`."""
    tables = [load_predictions(result.folder / "predictions.csv") for result in results]
    tests = [table[table["split"] == "test"].drop(columns="split").assign(fold=fold) for fold, table in enumerate(tables)]
    oof = pd.concat(tests, ignore_index=True).sort_values("sample_id", kind="stable", ignore_index=True)
    _refuse_uncovered(oof, results, tables)
    manifest = load_manifest(workspace.manifest_file)
    assert manifest is not None, "a run writes the manifest"
    groups = manifest.set_index("sample_id")["group"].reindex(oof["sample_id"]).to_numpy()
    predicted = [name for name in oof.columns if name not in ("sample_id", "fold", GROUP)]
    return oof.assign(group=groups)[["sample_id", "fold", "group", *predicted]]


def _refuse_uncovered(oof: pd.DataFrame, results: Sequence[FitResult], tables: Sequence[pd.DataFrame]) -> None:
    """Every sample validates once and is tested once, so both must be the same samples, as many as each run had; those that no
    score counts (copies in other folds, or with other labels) are left out of both.
    """
    left_out = {side: _unscored(results, side) for side in ("val", "test")}
    validated = {name for table in tables for name in table.loc[table["split"] == "val", "sample_id"]} | left_out["val"]
    tested = set(oof["sample_id"]) | left_out["test"]
    sizes = {int(result.run_record.data.num_samples or 0) for result in results} | {len(tested)}
    if len(sizes) > 1 or not oof["sample_id"].is_unique or tested != validated:
        raise DataError(
            "the folds do not test every sample exactly once",
            code="folds-do-not-cover",
            why=f"{len(oof):,} predictions for {oof['sample_id'].nunique():,} samples, in runs of "
            f"{' and '.join(f'{size:,}' for size in sorted(sizes))}: the data or the manifest changed between folds",
            try_="run the same command again: the folds that no longer fit are trained anew",
        )


def _unscored(results: Sequence[FitResult], side: str) -> set[str]:
    """The samples that were left out of this split, in whichever fold."""
    return {row.sample_id for result in results for row in result.run_record.unscored or () if row.split == side}


def judge_oof(oof: pd.DataFrame, kind: str, names: Sequence[str], *, settings: Settings) -> Scores:
    """The scores of all out-of-fold predictions together, with intervals; weighted as the settings declare."""
    groups = number_groups(oof[GROUP].tolist() if GROUP in oof else None, np.arange(len(oof)))
    if kind == "regression":
        truth, predicted = (oof[[f"{what}/{name}" for name in names]].to_numpy(np.float32) for what in ("truth", "predicted"))
        plan = plan_targets(names, sums=settings.sums, weights=settings.target_weights, positive=settings.positive)
        return score("regression", names, predicted, truth, seed=settings.seed, weights=plan.weights, groups=groups)
    if kind == MULTI_LABEL:
        marks = {what: label_matrix(oof[what].tolist(), names) for what in ("truth", "predicted")}
        chances = np.clip(oof[[f"p/{name}" for name in names]].to_numpy(np.float64), 1e-9, 1 - 1e-9)
        logits = np.log(chances / (1 - chances)).astype(np.float32)
        cuts = np.where(marks["predicted"] > 0, -np.inf, np.inf)  # each fold has thresholds of its own
        return score(MULTI_LABEL, names, logits, marks["truth"], seed=settings.seed, groups=groups, cuts=cuts)
    codes = {what: pd.Categorical(oof[what], categories=list(names)).codes.astype(np.int64) for what in ("truth", "predicted")}
    logits, exact = _oof_logits(oof, codes["truth"], codes["predicted"], names)
    scores = score("classification", names, logits, codes["truth"], seed=settings.seed, groups=groups)
    notes = [*scores.notes, "the probabilities of all predictions are calibrated, each fold's by its own temperature"]
    values = dict(scores.values)
    if not exact:
        del values["log_loss"]
        notes.append("of all predictions there is no log loss: some folds were trained before every probability was kept")
    return replace(scores, values=values, notes=notes)


def _oof_logits(
    oof: pd.DataFrame, truth: NDArray[np.int64], predicted: NDArray[np.int64], names: Sequence[str]
) -> tuple[NDArray[np.float32], bool]:
    """Logits with the probabilities in the table, the predicted class above all others; and whether that of the truth is among
    them. Probabilities that were not kept share what is left.
    """
    columns, rows, sure = [f"p/{name}" for name in names], np.arange(len(oof)), oof["confidence"].to_numpy(np.float64)
    exact = True
    if set(columns) <= set(oof.columns) and np.isfinite(oof[columns].to_numpy(np.float64)).all():
        chances = oof[columns].to_numpy(np.float64).copy()
    elif TRUTH_CONFIDENCE in oof and np.isfinite(of_truth := oof[TRUTH_CONFIDENCE].to_numpy(np.float64)).all():
        rest = np.maximum(0, 1 - sure - np.where(truth == predicted, 0, of_truth))
        chances = np.repeat(rest[:, None] / max(1, len(names) - 2), len(names), axis=1)
        chances[rows, predicted], chances[rows, truth] = sure, of_truth
    else:
        exact = False
        chances = np.repeat((1 - sure)[:, None] / max(1, len(names) - 1), len(names), axis=1)
        chances[rows, predicted] = sure
    chances[rows, predicted] = np.maximum(chances[rows, predicted], chances.max(axis=1) * (1 + 1e-6))
    return np.log(np.maximum(chances, 1e-30)).astype(np.float32), exact


def judge_constant(oof: pd.DataFrame, results: Sequence[FitResult], *, settings: Settings) -> float | None:
    """The score of one answer for all, in each fold that of its training photos: the commonest class, or the mean of each target.
    None where a fold has none.
    """
    task = results[0].run_record.task
    if task.kind == "classification":
        sizes = [result.run_record.data.splits.get("test", 0) for result in results]
        known = [baseline_value(result.run_record, "test", "accuracy") for result in results]
        shares = [value * size for value, size in zip(known, sizes, strict=True) if value is not None]
        return float(np.sum(shares) / np.sum(sizes)) if len(shares) == len(sizes) and any(sizes) else None
    answers = [one.outputs for result in results if (one := ConstantAnswer.of_record(result.run_record)) is not None]
    if len(answers) < len(results):
        return None
    outputs = np.array(answers)[oof["fold"].to_numpy()]
    column = "p" if task.kind == MULTI_LABEL else "predicted"
    constant = oof.assign(**{f"{column}/{name}": outputs[:, place] for place, name in enumerate(task.names)})
    values = judge_oof(constant, task.kind, task.names, settings=settings).values
    return next(values[name].value for name in JUDGED_BY if name in values)


@dataclass(frozen=True)
class MetricSpread:
    """A metric over the folds in which it is defined; the deviation is that of a sample (n − 1), None for a single fold."""

    mean: float
    deviation: float | None
    num_folds: int


@dataclass(frozen=True, kw_only=True)
class FoldsResult(FitResult):
    """The runs of all folds, and the scores of their predictions together. The records are those of `results`."""

    run_record: RunRecord = field(init=False, repr=False, compare=False)
    """There is none of all folds together: see `results`."""
    results: list[FitResult]
    """The run of each fold, in order."""
    pooled: Scores
    """The scores of all test predictions together."""
    name: str
    """What the folds are called together, `folds_1a2b3c4d` for instance."""
    baseline: float | None = None
    """The score of one answer for all, in the figure they are `judged_by`; None where a fold does not say."""

    def __repr__(self) -> str:
        return self.to_text()

    @property
    def run(self) -> str:
        """What the folds are called together."""
        return self.name

    @property
    def runs(self) -> list[str]:
        """The names of the folds' runs."""
        return [result.run for result in self.results]

    @property
    def oof_file(self) -> Path:
        """The table in which every sample is predicted once, by the run that did not train on it."""
        return self.folder / OOF_FILE

    @property
    def num_unscored(self) -> int:
        """How many samples no fold scored: copies that are in other folds, or that have other labels."""
        return len(_unscored(self.results, "test"))

    def fold_metrics(self, fold: int) -> dict[str, Interval]:
        """The test metrics of one fold, with their intervals."""
        return self.results[fold].run_record.metrics.get("test", {})

    def spreads(self) -> dict[str, MetricSpread]:
        """Each test metric over the folds."""
        found: dict[str, list[float]] = {}
        for fold in range(len(self.results)):
            for name, one in self.fold_metrics(fold).items():
                found.setdefault(name, []).extend([] if one.value is None else [one.value])
        return {
            name: MetricSpread(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, len(values))
            for name, values in found.items()
            if values
        }

    @property
    def judged_by(self) -> str:
        """The figure by which all predictions together are compared with one answer for all."""
        return next(name for name in JUDGED_BY if name in self.pooled.values)

    def _baseline_words(self) -> str:
        name, found = self.judged_by, self.pooled.values[self.judged_by]
        if self.baseline is None or found.value is None:
            return ""
        answer = "the commonest class" if name == "accuracy" else "the training mean"
        reached = f"always answering {answer} gets {format_metric(name, self.baseline)}"
        if found.value > self.baseline:
            return reached
        own = f"{metric_label(name)} {format_metric(name, found.value)}"
        return f"{self.run} does not beat one answer for all: {own}, and {reached}. Try `unchoke check`, or more photos."

    def to_record(self) -> dict[str, Any]:
        """What `folds.json` holds."""
        sizes = [result.run_record.data.splits["test"] for result in self.results]
        return {
            "schema": 1,
            "task": self.results[0].run_record.task.to_dict(),
            "num_samples": self.pooled.num_samples,
            "folds": [
                {
                    "fold": fold,
                    "run": run,
                    "num_test": size,
                    "test": {name: asdict(one) for name, one in self.fold_metrics(fold).items()},
                }
                for fold, (run, size) in enumerate(zip(self.runs, sizes, strict=True))
            ],
            "over_folds": {name: asdict(one) for name, one in self.spreads().items()},
            "pooled": to_jsonable(self.pooled),
            "baseline": None if self.baseline is None else {self.judged_by: self.baseline},
        }

    def to_dict(self) -> dict[str, Any]:
        """As `FitResult.to_dict`, the test metrics being those of all folds' predictions together; times are summed."""
        records, kept = [result.run_record for result in self.results], self.to_record()
        stages = dict.fromkeys(stage for record in records for stage in record.timings)
        rates = [record.images_per_s for record in records if record.images_per_s]
        return {
            "run": self.run,
            "runs": self.runs,
            "workspace": str(self.workspace),
            "reports": [str(result.report) for result in self.results],
            "oof": str(self.oof_file),
            "already_done": self.already_done,
            **plain_metrics({"test": self.pooled.values}),
            "baseline": kept["baseline"],
            "over_folds": kept["over_folds"],
            "folds": kept["folds"],
            "timings": {stage: sum(record.timings.get(stage, 0.0) for record in records) for stage in stages},
            "images_per_s": rates[0] if rates else None,
            "memory": {
                "planned_bytes": _most(record.memory.planned_bytes for record in records),
                "measured_bytes": _most(record.memory.measured_bytes for record in records),
            },
            "num_quarantined": len(records[-1].quarantine or []),
            "num_unscored": self.num_unscored,
        }

    def to_text(self) -> str:
        done = "every fold is done: the same data and settings gave this\n\n" if self.already_done else ""
        samples = format_count(self.pooled.num_samples, "sample")
        header = ("metric", "mean of folds", "deviation", "all predictions", "95 % interval")
        tail = [
            ("runs", ", ".join(self.runs)),
            ("oof", str(self.oof_file)),
            ("record", str(self.folder / FOLDS_FILE)),
            ("next", f"unchoke report {self.runs[0]}{out_option(self.workspace)}"),
        ]
        compared = self._baseline_words()
        warned = compared.startswith(self.run)
        parts = [
            compared if warned else "",
            f"{self.run}: {len(self.results)} folds, {samples}, each predicted by the run that did not train on it",
            "" if warned else compared,
            columns(self._rows(), header=header, right=(1, 2, 3)),
            "\n".join(self.pooled.notes),
            f"{format_count(self.num_unscored, 'sample')} left out of the score: `unchoke check` names them and their copies"
            if self.num_unscored
            else "",
            columns(tail),
        ]
        return done + "\n\n".join(part for part in parts if part)

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        spreads, rows = self.spreads(), []
        for name in sorted(dict.fromkeys([*spreads, *self.pooled.values]), key=metric_order):
            mean, deviation, together, interval = "-", "", "-", ""
            if (spread := spreads.get(name)) is not None:
                mean = format_metric(name, spread.mean)
                deviation = "" if spread.deviation is None else format_metric(name, spread.deviation)
            if (one := self.pooled.values.get(name)) is not None and one.value is not None:
                metric = ReportedMetric("test", name, one.value, one.low, one.high)
                together, interval = metric.text, metric.interval
            rows.append((metric_label(name), mean, deviation, together, interval))
        return rows


def _most(figures: Iterable[float | None]) -> float | None:
    """The largest of a memory figure over the folds; None where nobody planned or measured it."""
    return max((figure for figure in figures if figure is not None), default=None)
