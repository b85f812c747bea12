"""Builds the record of a run, of photos or of masks, and enters it in the database.

In: what a run was made from and what came out. Out: `record.json`, `report.html` and rows of `experiments.db`. A run is done
when its row says so, and that is written last.
"""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unchoke import __version__
from unchoke.core.errors import Interrupted
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest_file
from unchoke.core.record import (
    EncoderRecord,
    GroupGapRecord,
    MachineRecord,
    RunRecord,
    TaskRecord,
    UnscoredRecord,
)
from unchoke.core.settings import Settings, as_options
from unchoke.core.workspace import out_option
from unchoke.features.encoders import EncoderSpec
from unchoke.features.extraction import PictureExtraction
from unchoke.features.recipe import TWICE
from unchoke.jobs.records import QuarantineRow
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.runs.diagnosis import diagnose_run
from unchoke.runs.experiment_store import ExperimentStore, MetricRow, RunRow
from unchoke.runs.report.html import save_report
from unchoke.runs.report.json import save_record, to_jsonable
from unchoke.runs.report.summary import BASELINE
from unchoke.runs.run_files import seal_run
from unchoke.runs.session import Session
from unchoke.runs.stretches import sum_stretches
from unchoke.training.data import LearningTask, summarise
from unchoke.training.scoring.judge import Outputs, ScoredOutputs, scatter, worst_mistakes
from unchoke.training.scoring.learning_curve import RidgeRefit

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
    """How much the split leaks, where a column looks like a group and none was named."""


@dataclass(frozen=True, eq=False)
class TrainingOutcome:
    """The result of a training: outputs for val and test, the metric that picked them, its curve, and its configurations.

    `about` holds further facts by name (the memory plan, what steps cost); `save` writes the weights and what prediction needs.
    """

    outputs: Outputs
    metric: str
    history: list[dict[str, float]]
    sweep: list[dict[str, Any]]
    save: Callable[[Path, dict[str, Any]], None]
    about: dict[str, Any] = field(default_factory=dict)
    refit: RidgeRefit | None = None
    """For a learning curve, where training on part of the photos takes no time."""
    stopped: Interrupted | None = None
    """Why it ended early, where its model is worth keeping all the same."""


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


def photo_parts(session: Session, material: RunMaterial, judged: ScoredOutputs) -> dict[str, Any]:
    """What the record of a run of photos says of its data, its encoder and its scores."""
    learnable, use, test = material.learnable, material.encoder, judged.scores.get("test")
    problem = learnable.problem
    encoder = {
        **use.spec.to_dict(),
        **use.engine,
        "fingerprint": use.fingerprint,
        "num_augmented": use.num_augmented,
        "image_px": use.spec.preprocess.size_px,
    }
    return {
        "task": TaskRecord(kind=problem.kind, names=list(problem.names)),
        "data": summarise(learnable, source=session.settings.data, num_quarantined=len(material.quarantined)),
        "encoder": EncoderRecord(**encoder),
        "findings": material.findings,
        "quarantine": material.quarantined,
        "unscored": [
            UnscoredRecord(sample_id=one.sample_id, path=one.path, split=one.split, code=one.code, reason=one.reason)
            for one in learnable.unscored
        ],
        "metrics": {split: scores.values for split, scores in judged.scores.items()},
        "per_class": {"test": test.per_class} if test and test.per_class else {},
        "confusion": {"test": test.confusion} if test and test.confusion else {},
        "calibration": judged.calibration,
        "mistakes": worst_mistakes(judged, problem, learnable.frame),
        "scatter": scatter(judged, problem),
        "notes": [f"{split}: {note}" for split, scores in judged.scores.items() for note in scores.notes],
        "baseline": judged.baseline,
        "value_intervals": judged.value_intervals,
        **(
            {} if judged.thresholds is None else {"thresholds": dict(zip(problem.names, judged.thresholds.tolist(), strict=True))}
        ),
    }


def build_record(
    session: Session,
    run: RunRow,
    trained: TrainingOutcome,
    *,
    num_images_run: int,
    planned_bytes: int | None = None,
    **parts: Any,
) -> RunRecord:
    """The run as the report shows it and other commands read it. Timings are filled in when all is written.

    `parts` are what it was made from and how it was scored, of photos (`photo_parts`) or of masks.
    """
    extract_s = session.timers.seconds.get("extract", 0.0)
    known = {
        "run": run.name,
        "title": Path(session.settings.data).name or session.settings.data,
        "created_at": run.created_at,
        "command": run.command,
        "versions": versions(),
        "choices": session.choices,
        "timings": session.timers.seconds,
        "images_per_s": num_images_run / extract_s if num_images_run and extract_s else None,
        "memory": {"planned_bytes": planned_bytes, "measured_bytes": None},
        "selection_metric": trained.metric,
        "history": trained.history,
        "sweep": trained.sweep,
    }
    return RunRecord.model_validate(to_jsonable(known | trained.about | parts))


def enter_run(experiments: ExperimentStore, run: RunRow, record: RunRecord, session: Session, folder: Path) -> None:
    """Write the record, the report and the rows of the experiments database; only then is the run done."""
    record.timings = dict(session.timers.seconds)
    record.timeline = dict(session.timelines)
    record.machine = machine_facts(session)
    record.chokes = diagnose_run(record, out=out_option(session.workspace.root))
    if session.stretches is not None and (earlier := session.stretches.earlier):  # it was stopped on the way
        record.stretches = [*earlier, record.timings]
        record.timings = sum_stretches(record.stretches)
    memory = record.memory
    memory.process_bytes = session.memory.peak_bytes  # of all stages; a training may have measured itself, and its device
    memory.measured_bytes = memory.process_bytes if memory.measured_bytes is None else memory.measured_bytes
    save_record(folder / "record.json", record)
    save_report(folder)
    seconds = dict(record.timings)
    for name, one in session.timelines.items():  # those inside a stage, and those of its loader workers
        seconds |= {f"{name}/{row.stage}": row.seconds for row in one.stages}
        seconds |= {f"{name}/loading/{row.stage}": row.seconds for row in one.loading}
    seal_run(folder)
    files = {name: folder / name for name in _FILES if (folder / name).exists()}
    experiments.record(
        run,
        metrics=[*_final_metrics(record), *_step_metrics(record)],
        timings=seconds,
        memory=[("process", memory.planned_bytes, memory.measured_bytes)],
        artefacts=[(name, digest_file(file), file.stat().st_size) for name, file in files.items()],
        choices=session.choices,
    )
    experiments.finish_run(run, "done")


def machine_facts(session: Session) -> MachineRecord:
    """What a run was given of this machine; `workers` are the threads that load."""
    tuned = next((choice.value for choice in reversed(session.choices) if choice.name == "workers"), None)
    workers = int(session.policy.workers if tuned is None else tuned)
    device = session.policy.device
    return MachineRecord(cores=session.machine.cores, device=device, on_cpu=is_cpu(torch_device(device)), workers=workers)


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
