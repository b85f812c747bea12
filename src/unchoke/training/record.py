"""The record of a run: everything a report, a comparison or another machine needs to know of it, as plain values.

In: what a run was made from and what came out. Out: `record.json`, `report.html` and rows of `experiments.db`. A run is done
when its row says so, and that is written last.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unchoke import __version__
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest_file
from unchoke.core.settings import Settings, as_options
from unchoke.core.workspace import out_option
from unchoke.features.encoders import EncoderSpec
from unchoke.features.extraction import PictureExtraction
from unchoke.jobs.quarantine import Quarantined
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.reports.html import save_report
from unchoke.reports.json import save_record
from unchoke.runs.experiment_store import ExperimentStore
from unchoke.runs.own_chokes import diagnose_run
from unchoke.runs.run_rows import Artefact, MemoryRow, MetricRow, RunRow
from unchoke.runs.session import Session
from unchoke.training.problem import Learnable, summarise
from unchoke.training.scoring.judge import Judged, Outputs, metrics_dict, scatter, worst_mistakes

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

    @classmethod
    def of(cls, extracted: PictureExtraction) -> EncoderUse:
        recipe = extracted.recipe
        return cls(recipe.encoder, extracted.engine, recipe.fingerprint, recipe.num_augmented, extracted.num_items_run)


@dataclass(frozen=True)
class Material:
    """What a run is made from."""

    learnable: Learnable
    encoder: EncoderUse
    findings: list[Finding]
    quarantined: list[Quarantined]
    command: str = "fit"


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training gives the record: outputs for val and test, what it was steered by, its curve, and its configurations.

    `about` holds further facts by name (the memory plan, what steps cost); `save` writes the weights and what prediction needs.
    """

    outputs: Outputs
    metric: str
    history: list[dict[str, float]]
    sweep: list[dict[str, Any]]
    save: Callable[[Path, dict[str, Any]], None]
    about: dict[str, Any] = field(default_factory=dict)


def build_record(
    session: Session, material: Material, run: RunRow, trained: Trained, judged: Judged, planned_bytes: int
) -> dict[str, Any]:
    """The run as plain values: what the report shows and other commands read. Timings are filled in when all is written."""
    problem, encoder = material.learnable.problem, material.encoder
    quarantined = material.quarantined
    test = judged.scores.get("test")
    calibration = judged.calibration
    return {
        "schema": 1,
        "run": run.name,
        "title": Path(session.settings.data).name or session.settings.data,
        "created_at": run.created_at,
        "command": run.command,
        "versions": versions(),
        "task": {"kind": problem.kind, "names": list(problem.names)},
        "data": summarise(material.learnable, source=session.settings.data, num_quarantined=len(quarantined)),
        "encoder": {
            **encoder.spec.to_dict(),
            **encoder.engine,
            "fingerprint": encoder.fingerprint,
            "num_augmented": encoder.num_augmented,
            "image_px": encoder.spec.preprocess.size_px,
        },
        "choices": [choice.to_dict() for choice in session.choices],
        "findings": [finding.to_dict() for finding in material.findings],
        "quarantine": [entry.to_dict() for entry in quarantined],
        "timings": dict(session.timers.seconds),
        "images_per_s": _images_per_s(session, encoder),
        "memory": {"planned_bytes": planned_bytes, "measured_bytes": None},
        "selection_metric": trained.metric,
        "metrics": metrics_dict(judged.scores),
        "per_class": {"test": test.per_class} if test and test.per_class else {},
        "confusion": {"test": test.confusion} if test and test.confusion else {},
        "calibration": {**calibration.to_dict(), "bins": calibration.bins_after} if calibration else None,
        "history": trained.history,
        "sweep": trained.sweep,
        "mistakes": worst_mistakes(judged, problem, material.learnable.frame),
        "scatter": scatter(judged, problem),
        "notes": [note for scores in judged.scores.values() for note in scores.notes],
        **trained.about,
    }


def _images_per_s(session: Session, encoder: EncoderUse) -> float | None:
    seconds = session.timers.seconds.get("extract", 0.0)
    return encoder.num_images_run / seconds if encoder.num_images_run and seconds else None


def enter_run(experiments: ExperimentStore, run: RunRow, record: dict[str, Any], session: Session, folder: Path) -> None:
    """Write the record, the report and the rows of the experiments database; only then is the run done."""
    record["timings"] = dict(session.timers.seconds)
    record["timeline"] = {name: one.to_dict() for name, one in session.timelines.items()}
    record["machine"] = machine_facts(session)
    record["chokes"] = [found.to_dict() for found in diagnose_run(record, out=out_option(session.workspace.root))]
    memory = record["memory"]
    memory["process_bytes"] = session.memory.peak_bytes  # of all stages; a training may have measured itself, and its device
    memory["measured_bytes"] = memory["process_bytes"] if memory["measured_bytes"] is None else memory["measured_bytes"]
    save_record(folder / "record.json", record)
    save_report(folder)
    experiments.record_metrics(run, [*_final_metrics(record), *_step_metrics(record)])
    experiments.record_timings(run, {**record["timings"], **_inner_seconds(session)})
    experiments.record_memory(run, [MemoryRow("process", record["memory"]["planned_bytes"], record["memory"]["measured_bytes"])])
    experiments.record_choices(run, session.choices)
    experiments.record_artefacts(run, [_artefact(folder, name) for name in _FILES if (folder / name).exists()])
    experiments.finish_run(run, "done")


def machine_facts(session: Session) -> dict[str, Any]:
    """What a run was given of this machine; `workers` are the threads that read."""
    tuned = next((choice.value for choice in reversed(session.choices) if choice.name == "workers"), None)
    workers = int(session.policy.workers if tuned is None else tuned)
    device = session.policy.device
    return {"cores": session.machine.cores, "device": device, "on_cpu": is_cpu(torch_device(device)), "workers": workers}


def _inner_seconds(session: Session) -> dict[str, float]:
    """The seconds inside a stage as `train/forward`, and those of its readers as `train/loading/decode`."""
    found: dict[str, float] = {}
    for name, one in session.timelines.items():
        found |= {f"{name}/{row.stage}": row.seconds for row in one.stages}
        found |= {f"{name}/loading/{row.stage}": row.seconds for row in one.loading}
    return found


def _final_metrics(record: dict[str, Any]) -> Iterator[MetricRow]:
    for split, found in record["metrics"].items():
        for name, interval in found.items():
            if interval["value"] is not None:
                yield MetricRow(split, name, interval["value"], low=interval["low"], high=interval["high"])


def _step_metrics(record: dict[str, Any]) -> Iterator[MetricRow]:
    for row in record["history"]:
        yield from (MetricRow("history", name, value, step=int(row["epoch"])) for name, value in row.items() if name != "epoch")


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
