"""`predict`: new images through a run's encoder and head, or its network, from its files alone.

In: a run and image files or folders. Out: one row of the same shape per image, also for one that cannot be read; and what the
threshold or the intervals that were asked for did on the run's own val and test photos.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.core import listing
from unchoke.core.choices import CORRECTIONS, Choice
from unchoke.core.errors import UsageError
from unchoke.core.events import Chosen, OnEvent, Progress, ignore
from unchoke.core.image_names import PICTURE_SUFFIXES, suffix_of
from unchoke.core.metrics import format_metric
from unchoke.core.output_file import output_file
from unchoke.core.record import Interval, ValueIntervalRecord
from unchoke.core.remembered import load_remembered
from unchoke.core.remote import DataPlace, RemotePlace, locate
from unchoke.core.urls import is_url
from unchoke.core.workspace import Workspace
from unchoke.data.corrections import find_corrections
from unchoke.data.scan import refuse_missing
from unchoke.data.several_labels import MULTI_LABEL, label_matrix
from unchoke.jobs.cluster.connection import cluster_at, leave_cluster
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.runs.report.json import to_jsonable
from unchoke.runs.session import default_listener
from unchoke.training.node_predict import answer_on_nodes
from unchoke.training.open_models import ChunkAnswer, OpenModel, OpenOptions, answer_here, cut_chunks, open_model
from unchoke.training.scoring.intervals import LEVEL, fewest_samples, value_intervals, wilson
from unchoke.training.scoring.label_scores import Wanted, choose_cuts
from unchoke.training.scoring.predictions import (
    PREDICTIONS_FILE,
    class_columns,
    correct_predictions,
    label_columns,
    load_predictions,
)
from unchoke.training.submission import fill_sample, read_sample

_SHOWN = 20


@dataclass(frozen=True)
class Predictions:
    """Rows in the order of the images, also of the unreadable ones, which `failed` maps to their reasons."""

    run: str
    """The run that predicted."""
    rows: list[dict[str, Any]]
    """One row for each image, in the order of the images; `error` says why one could not be read."""
    failed: dict[str, str]
    """Images that could not be read, with their reasons."""
    saved_to: Path | None = None
    """The table that was written, if one was asked for."""
    threshold: ThresholdFacts | None = None
    """What the confidence below which photos are unsure did to the run's own photos."""
    intervals: ValueIntervalRecord | None = None
    """By how much values are widened, and how often that held on the run's own test photos."""
    said: str = ""
    """A word on intervals, or on thresholds."""

    @property
    def num_unsure(self) -> int | None:
        """How many photos were called unsure, where that was asked for."""
        return None if self.threshold is None else sum(row.get("predicted") == UNSURE for row in self.rows)

    @property
    def num_strange(self) -> int | None:
        """How many photos are less like the training photos than 99 % of the run's validation photos; None if not known."""
        known = [row[STRANGENESS] for row in self.rows if isinstance(row.get(STRANGENESS), float)]
        return sum(one > 1 for one in known) if known else None

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return 1 if self.failed else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "predictions": self.rows,
            "failed": self.failed,
            "saved_to": self.saved_to and str(self.saved_to),
            "num_unsure": self.num_unsure,
            "threshold": to_jsonable(self.threshold),
            "intervals": to_jsonable(self.intervals),
        }

    def to_text(self) -> str:
        read = [{name: value for name, value in row.items() if name != ERROR} for row in self.rows if not row[ERROR]]
        lines = ["\t".join(_cell(value) for value in row.values()) for row in read[:_SHOWN]]
        if len(read) > _SHOWN:
            lines.append(
                f"… and {len(read) - _SHOWN} more" + ("" if self.saved_to else ": --to FILE.csv or --json gives them all")
            )
        if read:
            lines.insert(0, "\t".join(read[0]))
        lines += [f"failed\t{path}\t{reason}" for path, reason in self.failed.items()]
        if self.threshold is not None:
            strange = "" if self.num_strange is None else " or strange"
            unsure = f"{self.num_unsure:,} of {len(read):,} below {self.threshold.threshold:g}{strange}"
            lines.append(f"unsure    {unsure}; {self.threshold.words()}")
        if self.num_strange:
            usual = "less like the training photos than 99 % of the run's validation photos"
            lines.append(f"strange   {self.num_strange:,} of {len(read):,}: {usual}")
        if self.said:
            lines.append(self.said if self.said.startswith("thresholds") else f"intervals {self.said}")
        if self.saved_to:
            lines.append(f"saved     {self.saved_to}")
        return "\n".join(lines)


def predict(
    run: str | Path,
    images: str | Path | Sequence[str | Path],
    *,
    to: str | Path | None = None,
    like: str | Path | None = None,
    inputs: str | Path | None = None,
    probabilities: bool = False,
    top: int | None = None,
    unsure_below: float | None = None,
    level: float | None = None,
    least_precision: float | None = None,
    least_recall: float | None = None,
    corrections: str | Path | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    on: str | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> Predictions:
    """Predict new images with a run, from its files alone.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        images: Image files or folders, one or several.
        to: Write the predictions to this CSV file.
        like: Write them as this sample has it: its ids, columns and order, as a sample_submission.csv wants it.
        inputs: Table with the images' extra columns, for a run trained with `input`.
        probabilities: Give the probability of every class, as `p/NAME`.
        top: Give so many guesses, the likeliest first: `predicted_2`, `confidence_2` and so on.
        unsure_below: Call images "unsure" whose class is less probable than this, and strange ones; `guess` still has it.
        level: Of a run trained on values: how many of 1 their intervals, `NAME/low` to `NAME/high`, are to hold (default 0.9).
        least_precision: Of several labels: give as many as keep this precision on the run's val photos (default: highest F1).
        least_recall: Of several labels: give as few as keep this recall there.
        corrections: CSV file with decisions about the run's own photos, for what `unsure_below` and `level` say of them. Left
            out, corrections.csv of the run's workspace, where there is one; "none" for no file.
        weights: The encoder's weights, where they are no longer found.
        device: cpu, cuda or mps.
        on: The Ray cluster that predicts: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        A row for each image, in order; one that could not be read has its reason under `error`, and nothing else.

    Example:
        >>> unchoke.predict("best", ["photos/apple"], out="work").rows[0]["predicted"]
        'apple'
    """
    listener = on_event or default_listener()
    found = find_run(run, out=out)
    found.refuse_masks("unchoke predict")
    is_class = found.record.task.kind != "regression"
    options = RowOptions(
        probabilities or (like is not None and is_class), top, unsure_below, level, least_precision, least_recall
    )
    options.refuse_kind(found.record.task.kind, found.record.task.names, found.record.run)
    paths = list_images([images] if isinstance(images, str | Path) else images)
    if like is not None and to is None:
        raise UsageError(
            "--like without --to", code="option-needs-another", why="it says how a file is written", try_="--to submission.csv"
        )
    sample = None if like is None else read_sample(like, paths)
    saved = None
    if to is not None:  # not over a file that is read, nor over the table that the run's workspace was made from
        data = None if found.workspace is None else load_remembered(found.workspace).get("data")
        sources = [file for file in (*paths, inputs, like, weights, data) if file is not None]
        saved = output_file(to, option="--to", example=PREDICTIONS_FILE, sources=sources)
    opening = OpenOptions(inputs, weights, device, listener)
    try:
        cluster = cluster_at(on)
        model = open_model(found, paths, opening)
        shape = RowShape.of(found, model, options, corrections=corrections, listener=listener)
        chunks = cut_chunks(paths, model.chunk)
        answers = answer_here(model, chunks) if cluster is None else answer_on_nodes(cluster, found, model, chunks, opening)
        by_place, failed = _gather(shape, answers, len(paths), listener)
    finally:
        leave_cluster()
    rows = whole_table(paths, by_place, failed)
    if saved is not None and sample is not None:
        several = found.record.task.kind == MULTI_LABEL
        saved.write_text(fill_sample(sample, rows, found.record.task.names if is_class else (), several=several))
    elif saved is not None:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writeheader()
        writer.writerows(rows)
        saved.write_text(text.getvalue())
    path = None if saved is None else saved.path
    return Predictions(found.record.run, rows, failed, path, shape.threshold, shape.intervals, shape.said)


@dataclass(frozen=True)
class RowShape:
    """How a model's outputs become rows, and how the threshold or the intervals did on the run's own photos."""

    model: OpenModel
    options: RowOptions
    threshold: ThresholdFacts | None = None
    intervals: ValueIntervalRecord | None = None
    said: str = ""
    positive: bool = False
    cuts: tuple[float, ...] = ()
    """Of several labels: the probability from which on each is given."""

    @classmethod
    def of(
        cls,
        found: FoundRun,
        model: OpenModel,
        options: RowOptions,
        *,
        corrections: Path | str | None = None,
        listener: OnEvent = ignore,
    ) -> RowShape:
        """The truths of the run's own photos heed `corrections`."""
        if model.kind == "classification" and options.unsure_below is None:
            return cls(model, options)
        if model.kind == MULTI_LABEL and options.wanted is None:
            return cls(model, options, cuts=found.thresholds)
        file, workspace = found.folder / PREDICTIONS_FILE, found.workspace or Workspace(found.folder)
        decisions = find_corrections(workspace, None if corrections is None else str(corrections))

        def own_predictions() -> tuple[pd.DataFrame, int]:
            return correct_predictions(load_predictions(file), decisions)

        def tell(changed: int) -> None:
            if changed:
                reason = f"decisions in {decisions.file} change so many of the run's own val and test photos"
                listener(Chosen(Choice(CORRECTIONS, changed, reason)))

        if options.unsure_below is not None:
            table, changed = own_predictions()
            tell(changed)
            return cls(model, options, threshold_facts(table, options.unsure_below))
        if options.wanted is not None:
            table, changed = own_predictions()
            tell(changed)
            cuts, said = wanted_thresholds(table, model.names, options.wanted)
            return cls(model, options, said=said, cuts=cuts)
        targets = found.record.training.targets if found.record.training else None
        positive = targets is not None and targets.positive
        recorded = found.record.value_intervals
        unchanged = not decisions.standing or not file.exists() or not own_predictions()[1]
        known = recorded is not None and set(model.names) <= set(recorded.half_widths)
        if recorded is not None and known and unchanged and options.level is None:
            return cls(model, options, None, recorded, interval_words(recorded), positive)
        if not file.exists():
            gone = "none: the run's predictions.csv, which they are made from, is gone"
            return cls(model, options, None, None, gone, positive)
        table, changed = own_predictions()
        tell(changed)
        return cls(model, options, None, *run_intervals(table, model.names, options.level), positive)

    def rows(
        self, paths: list[str], outputs: NDArray[np.float32], strange: NDArray[np.float32] | None = None
    ) -> list[dict[str, Any]]:
        model = self.model
        if model.kind == "classification":
            return class_rows(paths, outputs, model.names, model.temperature, self.options, strange)
        if model.kind == MULTI_LABEL:
            return rows_of(paths, label_columns(outputs, model.names, model.temperature, np.array(self.cuts)))
        return value_rows(paths, outputs, model.names, self.intervals, positive=self.positive)


def list_images(images: Sequence[str | Path]) -> list[str]:
    """Files as given; below folders everything named like a picture: one that cannot be decoded fails, and is named."""
    paths: list[str] = []
    places = [locate(image) for image in images]
    missing = [str(place) for place in places if not place.exists()]
    if missing:
        if is_url(missing[0]):
            refuse_missing(RemotePlace(missing[0]))
        raise UsageError(
            f"no such file or folder: {missing[0]}",
            code="no-such-file",
            why=f"{len(missing)} of {len(images)} do not exist",
            try_="check the path",
        )
    for place in places:
        paths += _below(place) if place.is_dir() else [str(place)]
    if not paths:
        raise UsageError(
            f"there are no images in {images[0]}",
            code="no-images",
            why="no file is named like one",
            try_="name image files, or a folder with some",
        )
    return paths


def _below(folder: DataPlace) -> list[str]:
    """Also links that lead nowhere, where they are named like a picture."""
    special: list[str] = []
    files = [entry.path for entry in listing.walk(folder, on_special=lambda relative, _: special.append(str(folder / relative)))]
    return sorted((path for path in files + special if suffix_of(path) in PICTURE_SUFFIXES), key=lambda path: Path(path).parts)


def _gather(
    shape: RowShape, answers: Iterable[ChunkAnswer], total: int, listener: OnEvent
) -> tuple[dict[int, dict[str, Any]], dict[str, str]]:
    """The rows by place, and the reasons of pictures that failed, in order; progress is told."""
    by_place: dict[int, dict[str, Any]] = {}
    failed: dict[int, tuple[str, str]] = {}
    started, number = time.monotonic(), 0
    for one in answers:
        places = dict(enumerate(one.chunk.paths, start=one.chunk.first))
        failed |= {place: (path, one.broken[path]) for place, path in places.items() if path in one.broken}
        good = {place: path for place, path in places.items() if path not in one.broken}
        if good:
            by_place |= zip(good, shape.rows(list(good.values()), one.outputs, one.strange), strict=True)
        number += len(places)
        rate = number / max(time.monotonic() - started, 1e-6)
        listener(Progress("predict", number, total, "images", rate, (total - number) / rate, len(failed)))
    return by_place, {path: reason for _, (path, reason) in sorted(failed.items())}


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


UNSURE, STRANGENESS = "unsure", "strangeness"
ERROR = "error"


@dataclass(frozen=True)
class RowOptions:
    """`top` guesses, every probability, "unsure" below a confidence; for values the level of their intervals, and for several
    labels the precision or recall to keep.
    """

    probabilities: bool = False
    top: int | None = None
    unsure_below: float | None = None
    level: float | None = None
    least_precision: float | None = None
    least_recall: float | None = None

    @property
    def wanted(self) -> Wanted:
        """The precision or recall that the thresholds of several labels are to keep."""
        if self.least_precision is not None:
            return "precision", self.least_precision
        return None if self.least_recall is None else ("recall", self.least_recall)

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise UsageError(
                f"--top {self.top} asks for no guess",
                code="out-of-range",
                why="it counts guesses, the likeliest first",
                try_="--top 3",
            )
        if self.least_precision is not None and self.least_recall is not None:
            raise UsageError(
                "--least-precision and --least-recall were both given",
                code="options-conflict",
                why="one threshold keeps the one or the other",
                try_="leave one of them out",
            )
        shares = {
            "--unsure-below": self.unsure_below,
            "--level": self.level,
            "--least-precision": self.least_precision,
            "--least-recall": self.least_recall,
        }
        for option, share in shares.items():
            if share is not None and not 0 < share < 1:
                raise UsageError(
                    f"{option} {share:g} is out of range",
                    code="out-of-range",
                    why="it is above 0 and below 1",
                    try_=f"{option} 0.8",
                )

    def refuse_kind(self, kind: str, names: Sequence[str], run: str) -> None:
        """Refuse what does not go with a run of this kind."""
        of_classes = {"--top": self.top, "--unsure-below": self.unsure_below}
        of_labels = {"--least-precision": self.least_precision, "--least-recall": self.least_recall}
        asked = {
            "classification": {"--level": self.level, **of_labels},
            MULTI_LABEL: {"--level": self.level, **of_classes},
        }.get(kind, {"--probabilities": self.probabilities or None, **of_classes, **of_labels})
        wrong = [option for option, value in asked.items() if value is not None]
        if wrong:
            learnt, try_ = {
                "classification": ("classes, which have probabilities", "leave it out"),
                MULTI_LABEL: ("several labels, each with a threshold", "leave it out, or --least-precision 0.9"),
            }.get(kind, ("values, which have intervals", "leave it out, or --level 0.8 for another interval"))
            raise UsageError(
                f"{wrong[0]} does not go with {run}", code="option-not-for-task", why=f"it was trained on {learnt}", try_=try_
            )
        if self.unsure_below is not None and UNSURE in names:
            raise UsageError(
                f"--unsure-below would call photos {UNSURE!r}, which is a class of {run}",
                code="class-name-taken",
                why="the two could not be told apart",
                try_="--probabilities, and a threshold of your own",
            )


@dataclass(frozen=True)
class ThresholdFacts:
    """What a threshold of confidence did to the run's own photos: how many were at least as sure, and how many of these right."""

    threshold: float
    split: str
    num_photos: int
    coverage: Interval
    accuracy: Interval

    def words(self) -> str:
        share = format_metric("accuracy", self.coverage.value or 0.0)
        sure = f"{share} of the run's {self.num_photos:,} {self.split} photos were at least that sure"
        if self.accuracy.value is None or self.accuracy.low is None or self.accuracy.high is None:
            return sure
        limits = f"95 % interval {self.accuracy.low * 100:.1f}–{self.accuracy.high * 100:.1f} %"
        return f"{sure}, and {format_metric('accuracy', self.accuracy.value)} of these were right ({limits})"


def threshold_facts(table: pd.DataFrame, threshold: float) -> ThresholdFacts | None:
    """From a run's `predictions.csv`: of its test split, else of val; None where it judged nothing."""
    for split in ("test", "val"):
        rows = table[table["split"] == split]
        if len(rows):
            sure = rows["confidence"].to_numpy(np.float64) >= threshold
            hits = (rows["truth"] == rows["predicted"]).to_numpy()[sure]
            return ThresholdFacts(threshold, split, len(rows), _share(sure), _share(hits))
    return None


def wanted_thresholds(table: pd.DataFrame, names: Sequence[str], wanted: Wanted) -> tuple[tuple[float, ...], str]:
    """From a run's `predictions.csv`: thresholds by its val photos, and what they give on test."""
    assert wanted is not None
    found = {}
    for split in ("val", "test"):
        rows = table[table["split"] == split]
        chances = rows[[f"p/{name}" for name in names]].to_numpy(np.float64)
        found[split] = chances, label_matrix(rows["truth"].tolist(), names) > 0
    cuts = np.full(len(names), 0.5)
    if len(found["val"][0]):
        safe = np.clip(found["val"][0], 1e-12, 1 - 1e-12)
        cuts = 1 / (1 + np.exp(-choose_cuts(np.log(safe / (1 - safe)), found["val"][1], wanted).astype(np.float64)))
    split = "test" if len(found["test"][0]) else "val"
    chances, truth = found[split]
    called = chances >= cuts
    hits, claims, truths = int((called & truth).sum()), int(called.sum()), int(truth.sum())
    said = f"thresholds for a {wanted[0]} of {wanted[1]:g} of each label by {len(found['val'][0]):,} val photos"
    if claims and truths:
        said += f"; over all labels of {len(chances):,} {split} photos: precision {100 * hits / claims:.1f} %"
        said += f", recall {100 * hits / truths:.1f} %"
    return tuple(cuts.tolist()), said


def _share(hits: NDArray[np.bool_]) -> Interval:
    if len(hits) == 0:
        return Interval(None, None, None)
    low, high = wilson(hits.mean(), len(hits))
    return Interval(float(hits.mean()), float(low), float(high))


def run_intervals(table: pd.DataFrame, names: Sequence[str], level: float | None) -> tuple[ValueIntervalRecord | None, str]:
    """From a run's `predictions.csv`: intervals of its values and what is to be said of them."""
    level = LEVEL if level is None else level
    pairs = {split: _values(table[table["split"] == split], names) for split in ("val", "test")}
    found = value_intervals(names, pairs["val"], pairs["test"], level=level)
    num_val = len(pairs["val"][1])
    if found is None:
        return None, f"none: the run has {num_val:,} val photos, and {level * 100:g} % takes {fewest_samples(level):,}"
    return found, interval_words(found)


def interval_words(found: ValueIntervalRecord) -> str:
    """Where intervals come from, and how often they held."""
    said = f"{found.level * 100:g} % from the errors on {found.num_val:,} val photos"
    shares = [one.value for one in found.coverage.values() if one.value is not None]
    if not shares:
        return said
    return f"{said}; on the run's {found.num_test:,} test photos they held {float(np.mean(shares)) * 100:.1f} % of the values"


def _values(rows: pd.DataFrame, names: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    predicted, truth = (rows[[f"{what}/{name}" for name in names]].to_numpy(np.float64) for what in ("predicted", "truth"))
    return predicted, truth


def class_rows(
    paths: Sequence[str],
    outputs: NDArray[np.float32],
    names: tuple[str, ...],
    temperature: float,
    options: RowOptions,
    strange: NDArray[np.float32] | None = None,
) -> list[dict[str, Any]]:
    """One row for each image; below the threshold, or unlike all training photos, it is "unsure", and the class is a `guess`."""
    columns = class_columns(outputs, names, temperature, top=options.top or 1, every_class=options.probabilities)
    if options.unsure_below is not None:
        sure = columns["confidence"] >= options.unsure_below
        sure = sure if strange is None else sure & (strange <= 1)
        guesses = columns["predicted"]
        columns = {"predicted": np.where(sure, guesses, UNSURE), "confidence": columns.pop("confidence"), "guess": guesses} | {
            name: column for name, column in columns.items() if name != "predicted"
        }
    if strange is not None:
        columns[STRANGENESS] = strange
    return rows_of(paths, columns)


def rows_of(paths: Sequence[str], columns: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """A row for each image, from columns."""
    plain = {name: column.tolist() for name, column in columns.items()}
    return [
        {"path": path, **{name: column[place] for name, column in plain.items()}, ERROR: ""} for place, path in enumerate(paths)
    ]


def value_rows(
    paths: Sequence[str],
    outputs: NDArray[np.float32],
    names: tuple[str, ...],
    widened: ValueIntervalRecord | None,
    *,
    positive: bool = False,
) -> list[dict[str, Any]]:
    """One row for each image: each target, then the ends of its interval where there is one (not below 0 if nothing is)."""
    rows = []
    for path, values in zip(paths, outputs.tolist(), strict=True):
        row: dict[str, Any] = {"path": path, **dict(zip(names, values, strict=True))}
        for name, value in zip(names, values, strict=True) if widened else ():
            low = value - widened.half_widths[name] if widened else value
            high = value + widened.half_widths[name] if widened else value
            row |= {f"{name}/low": max(0.0, low) if positive else low, f"{name}/high": high}
        rows.append({**row, ERROR: ""})
    return rows


def whole_table(paths: Sequence[str], rows: dict[int, dict[str, Any]], failed: dict[str, str]) -> list[dict[str, Any]]:
    """Rows by place, in the order of the images: one that cannot be read has its reason, and nothing else."""
    shape = next(iter(rows.values()), {"path": "", ERROR: ""})
    empty = dict.fromkeys(shape)
    return [rows.get(place) or {**empty, "path": path, ERROR: failed.get(path, "")} for place, path in enumerate(paths)]
