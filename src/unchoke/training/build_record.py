"""Builds the record of a run, of photos or of masks, and enters it in the database.

In: what a run was made from and what came out. Out: `record.json`, `report.html` and rows of `experiments.db`. A run is done
when its row says so, and that is written last.
"""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unchoke import __version__
from unchoke.core.errors import Interrupted
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest_file
from unchoke.core.record import (
    BaselineRecord,
    CalibrationRecord,
    ClassRecord,
    DataRecord,
    EncoderRecord,
    GroupGapRecord,
    Interval,
    MachineRecord,
    MistakeRecord,
    RunRecord,
    ScatterRecord,
    TaskRecord,
    UnscoredRecord,
    ValueIntervalRecord,
)
from unchoke.core.settings import Settings, as_options
from unchoke.core.workspace import out_option
from unchoke.data.copies import UnscoredSample
from unchoke.features.encoders import EncoderSpec
from unchoke.features.extraction import PictureExtraction
from unchoke.features.recipe import TWICE
from unchoke.jobs.records import QuarantineRow
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.runs.diagnosis import diagnose_run
from unchoke.runs.experiment_store import Artefact, ExperimentStore, MemoryRow, MetricRow, RunRow
from unchoke.runs.report.baseline_words import BASELINE
from unchoke.runs.report.html import save_report
from unchoke.runs.report.json import save_record, to_jsonable
from unchoke.runs.run_files import seal_run
from unchoke.runs.session import Session
from unchoke.runs.stretches import sum_stretches
from unchoke.training.data import LearningTask, summarise
from unchoke.training.scoring.judge import Outputs, ScoredOutputs, scatter, worst_mistakes
from unchoke.training.scoring.learning_curve import Refit

_CREDITED = ("torch", "torchvision", "timm", "numpy", "openvino", "segmentation-models-pytorch", "rasterio")
_FILES = ("checkpoints/best_head.pt", "checkpoints/last.pt", "history.json", "predictions.csv", "record.json", "report.html")


@dataclass(frozen=True)
class EncoderUse:
    """Which network a run uses and how its inputs were made; `num_images_run` were extracted by this very command."""

    spec: EncoderSpec
    engine: dict[str, Any]
    fingerprint: str
    num_augmented: int = 0
    num_images_run: int = 0
    cut: str = "end"

    @classmethod
    def of(cls, extracted: PictureExtraction) -> EncoderUse:
        recipe, num_run = extracted.recipe, extracted.num_items_run
        return cls(recipe.encoder, extracted.engine, recipe.fingerprint, recipe.num_augmented, num_run, recipe.cut)


@dataclass(frozen=True)
class RunMaterial:
    """What a run of photos is made from: what is learnt, with which network, and what was found about the data."""

    learnable: LearningTask
    encoder: EncoderUse
    findings: list[Finding]
    quarantined: list[QuarantineRow]
    command: str = "fit"
    group_gap: GroupGapRecord | None = None
    """What the split flatters, where a column looks like a group and none was named."""


@dataclass(frozen=True, eq=False)
class TrainingOutcome:
    """What a training gives the record: outputs for val and test, what it was steered by, its curve, and its configurations.

    `about` holds further facts by name (the memory plan, what steps cost); `save` writes the weights and what prediction needs.
    """

    outputs: Outputs
    metric: str
    history: list[dict[str, float]]
    sweep: list[dict[str, Any]]
    save: Callable[[Path, dict[str, Any]], None]
    about: dict[str, Any] = field(default_factory=dict)
    refit: Refit | None = None
    """Trains on part of the photos, where that takes no time, for a learning curve."""
    stopped: Interrupted | None = None
    """Why it ended early, where what it gave is worth keeping all the same."""


def prediction_extra(encoder: EncoderUse, *, temperature: float) -> dict[str, Any]:
    """What prediction needs beside the weights: how to make their input, and their calibration."""
    return {
        "encoder": encoder.spec.to_dict(),
        "engine": encoder.engine["engine"],
        "precision": encoder.engine["precision"],
        "num_augmented": encoder.num_augmented,
        "decode_scale": encoder.engine.get("decode_scale", TWICE),
        "fingerprint": encoder.fingerprint,
        "cut": encoder.cut,
        "temperature": temperature,
        "unchoke": __version__,
    }


@dataclass(frozen=True)
class RunOrigin:
    """What a record says its run was made from, be it photos or patches of scenes; `num_run` of them were encoded just now."""

    task: TaskRecord
    data: DataRecord
    encoder: EncoderRecord
    findings: list[Finding]
    quarantined: list[QuarantineRow]
    num_run: int = 0
    unscored: list[UnscoredRecord] = field(default_factory=list)
    """Samples of val and test that the scores leave out."""

    @classmethod
    def of_photos(cls, material: RunMaterial, *, source: str) -> RunOrigin:
        problem, use = material.learnable.problem, material.encoder
        encoder = {
            **use.spec.to_dict(),
            **use.engine,
            "fingerprint": use.fingerprint,
            "num_augmented": use.num_augmented,
            "image_px": use.spec.preprocess.size_px,
        }
        return cls(
            TaskRecord(kind=problem.kind, names=list(problem.names)),
            summarise(material.learnable, source=source, num_quarantined=len(material.quarantined)),
            EncoderRecord(**encoder),
            material.findings,
            material.quarantined,
            use.num_images_run,
            [_unscored(one) for one in material.learnable.unscored],
        )


def _unscored(one: UnscoredSample) -> UnscoredRecord:
    return UnscoredRecord(sample_id=one.sample_id, path=one.path, split=one.split, code=one.code, reason=one.reason)


@dataclass(frozen=True)
class Judgement:
    """What judging gives a record. Only classes of photos have a calibration and mistakes, only values a scatter; a baseline of
    masks comes with the run.
    """

    metrics: dict[str, dict[str, Interval]]
    per_class: dict[str, list[ClassRecord]]
    confusion: dict[str, list[list[int]]]
    calibration: CalibrationRecord | None = None
    mistakes: list[MistakeRecord] = field(default_factory=list)
    scatter: list[ScatterRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    baseline: BaselineRecord | None = None
    value_intervals: ValueIntervalRecord | None = None

    @classmethod
    def of_photos(cls, judged: ScoredOutputs, material: RunMaterial) -> Judgement:
        problem, test = material.learnable.problem, judged.scores.get("test")
        return cls(
            {split: scores.values for split, scores in judged.scores.items()},
            {"test": test.per_class} if test and test.per_class else {},
            {"test": test.confusion} if test and test.confusion else {},
            judged.calibration,
            worst_mistakes(judged, problem, material.learnable.frame),
            scatter(judged, problem),
            [f"{split}: {note}" for split, scores in judged.scores.items() for note in scores.notes],
            judged.baseline,
            judged.value_intervals,
        )


def build_record(
    session: Session,
    run: RunRow,
    origin: RunOrigin,
    trained: TrainingOutcome,
    judgement: Judgement,
    *,
    planned_bytes: int | None = None,
    **more: Any,
) -> RunRecord:
    """The run as the report shows it and other commands read it. Timings are filled in when all is written.

    `more` are further parts of the record, such as a profile.
    """
    extract_s = session.timers.seconds.get("extract", 0.0)
    parts = {
        "run": run.name,
        "title": Path(session.settings.data).name or session.settings.data,
        "created_at": run.created_at,
        "command": run.command,
        "versions": versions(),
        "task": origin.task,
        "data": origin.data,
        "encoder": origin.encoder,
        "choices": session.choices,
        "findings": origin.findings,
        "quarantine": origin.quarantined,
        "unscored": origin.unscored,
        "timings": session.timers.seconds,
        "images_per_s": origin.num_run / extract_s if origin.num_run and extract_s else None,
        "memory": {"planned_bytes": planned_bytes, "measured_bytes": None},
        "selection_metric": trained.metric,
        "history": trained.history,
        "sweep": trained.sweep,
        **{one.name: getattr(judgement, one.name) for one in fields(judgement)},
        **trained.about,
        **more,
    }
    return RunRecord.model_validate(to_jsonable(parts))


def enter_run(experiments: ExperimentStore, run: RunRow, record: RunRecord, session: Session, folder: Path) -> None:
    """Write the record, the report and the rows of the experiments database; only then is the run done."""
    record.timings = dict(session.timers.seconds)
    record.timeline = dict(session.timelines)
    record.machine = machine_facts(session)
    record.chokes = diagnose_run(record, out=out_option(session.workspace.root))
    _add_stretches(record, session)
    memory = record.memory
    memory.process_bytes = session.memory.peak_bytes  # of all stages; a training may have measured itself, and its device
    memory.measured_bytes = memory.process_bytes if memory.measured_bytes is None else memory.measured_bytes
    save_record(folder / "record.json", record)
    save_report(folder)
    experiments.record_metrics(run, [*_final_metrics(record), *_step_metrics(record)])
    experiments.record_timings(run, {**record.timings, **_inner_seconds(session)})
    experiments.record_memory(run, [MemoryRow("process", memory.planned_bytes, memory.measured_bytes)])
    experiments.record_choices(run, session.choices)
    seal_run(folder)
    experiments.record_artefacts(run, [_artefact(folder, name) for name in _FILES if (folder / name).exists()])
    experiments.finish_run(run, "done")


def _add_stretches(record: RunRecord, session: Session) -> None:
    """The time of a run that was stopped on the way is that of all its stretches."""
    if session.stretches is not None and (earlier := session.stretches.earlier):
        record.stretches = [*earlier, record.timings]
        record.timings = sum_stretches(record.stretches)


def machine_facts(session: Session) -> MachineRecord:
    """What a run was given of this machine; `workers` are the threads that read."""
    tuned = next((choice.value for choice in reversed(session.choices) if choice.name == "workers"), None)
    workers = int(session.policy.workers if tuned is None else tuned)
    device = session.policy.device
    return MachineRecord(cores=session.machine.cores, device=device, on_cpu=is_cpu(torch_device(device)), workers=workers)


def _inner_seconds(session: Session) -> dict[str, float]:
    """The seconds inside a stage as `train/forward`, and those of its readers as `train/loading/decode`."""
    found: dict[str, float] = {}
    for name, one in session.timelines.items():
        found |= {f"{name}/{row.stage}": row.seconds for row in one.stages}
        found |= {f"{name}/loading/{row.stage}": row.seconds for row in one.loading}
    return found


def _final_metrics(record: RunRecord) -> Iterator[MetricRow]:
    for split, found in record.metrics.items():
        for name, one in found.items():
            if one.value is not None:
                yield MetricRow(split, name, one.value, low=one.low, high=one.high)
    for split, found in (record.baseline.metrics if record.baseline else {}).items():
        yield from (MetricRow(f"{BASELINE}{split}", name, one.value) for name, one in found.items() if one.value is not None)


def _step_metrics(record: RunRecord) -> Iterator[MetricRow]:
    for row in record.history:
        step = int(row.get("epoch") or 0)
        rest = {name: math.nan if value is None else value for name, value in row.items() if name != "epoch"}
        yield from (MetricRow("history", name, value, step=step) for name, value in rest.items())


def _artefact(folder: Path, name: str) -> Artefact:
    file = folder / name
    return Artefact(name, digest_file(file), file.stat().st_size)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "unchoke": __version__}
    for name in _CREDITED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def as_typed(command: str, settings: Settings, *, without: Collection[str] = ()) -> str:
    """The command line that gives these settings; those in `without` are of other commands, and only remembered."""
    unset = {name: getattr(Settings(), name) for name in without}
    return shlex.join(["unchoke", *command.split(), settings.data, *as_options(replace(settings, **unset))])
