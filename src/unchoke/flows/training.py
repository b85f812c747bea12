"""From cached features to a recorded run: choose the heads, train, judge, write everything down.

In: a session and what was extracted. Out: the run's record. The run's key is a digest of data, features and training settings:
the same key goes on with the same run, or finds it done.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unchoke import __version__, atomic
from unchoke.choices import Choice
from unchoke.device.backend import torch_device
from unchoke.errors import Interrupted
from unchoke.events import Chosen, Event
from unchoke.experiments.store import ExperimentStore
from unchoke.fingerprint import digest
from unchoke.flows.record import Material, as_typed, build_record, enter_run
from unchoke.flows.scoring import Judged, judge, one_thread, predictions_table, run_head
from unchoke.flows.session import Session
from unchoke.jobs.signals import stop_requests
from unchoke.report.json import load_record
from unchoke.train.checkpoints import save_head
from unchoke.train.heads import HeadConfig
from unchoke.train.loop import train_heads
from unchoke.train.sweep import choose_batch_size, default_sweep
from unchoke.train.trained import TrainResult
from unchoke.units import format_count

_FEW = 3
_CLAIMED = {"measured": "measured: see docs/claims.md"}
_OVERRIDES = ("lr", "weight_decay", "label_smoothing", "mixup", "class_weights", "patience")


def run_training(session: Session, material: Material, *, planned_bytes: int) -> tuple[dict[str, Any], bool]:
    """Train, judge and record; return the record, and whether it was there already."""
    settings, problem = session.settings, material.learnable.problem
    configs = choose_configs(session, material)
    key = digest([material.learnable.key, material.extracted.recipe.fingerprint, [config.to_dict() for config in configs]])
    with ExperimentStore.open(session.workspace.experiments_file) as experiments:
        data = {"source": settings.data, "num_samples": len(material.learnable.frame)}
        encoder = settings.encoder
        run = experiments.start_run(
            key=key,
            command=as_typed(material.command, settings),
            settings=settings.given(),
            data=data,
            encoder=encoder,
            fingerprint=material.extracted.recipe.fingerprint,
        )
        folder = session.workspace.run_folder(run.name)
        if run.status == "done" and (folder / "record.json").exists():
            return load_record(folder / "record.json"), True
        for place in (folder, folder / "checkpoints"):
            atomic.sweep_temporaries(place)
        try:
            with session.stage("train", f"{format_count(len(configs), 'head')}, {format_count(settings.epochs, 'epoch')}"):
                trained = _train(session, material, configs, folder)
            with session.stage("evaluate"):
                outputs = run_head(trained.best, material.extracted.store, problem, device=_device(session))
                judged = judge(outputs, problem, seed=settings.seed)
            save_head(trained.best, folder / "checkpoints" / "best_head.pt", extra=_head_extra(material, judged))
            with session.stage("report"):
                record = build_record(session, material, run, trained, judged, planned_bytes)
                _save_files(folder, material, trained, judged)
        except Interrupted:
            experiments.finish_run(run, "interrupted")
            raise
        enter_run(experiments, run, record, session, folder)
        return record, False


def choose_configs(session: Session, material: Material) -> list[HeadConfig]:
    """The heads to train: a sweep, one of the kind asked for, or a few for validation to pick from."""
    settings, problem = session.settings, material.learnable.problem
    batch_size = settings.batch_size
    if batch_size is None:
        choice = choose_batch_size(len(problem.positions("train")))
        session.chose(choice)
        batch_size = int(choice.value)
    common: dict[str, Any] = {"seed": settings.seed, "epochs": settings.epochs, "batch_size": batch_size}
    num = settings.sweep or (_FEW if settings.head is None else 1)
    configs = default_sweep(problem, num=num, **common)
    if settings.head is not None:
        configs = [replace(config, kind=settings.head) for config in configs]
    given = {name: getattr(settings, name) for name in _OVERRIDES if getattr(settings, name) is not None}
    return list(dict.fromkeys(replace(config, **given) for config in configs))


def _train(session: Session, material: Material, configs: list[HeadConfig], folder: Path) -> TrainResult:
    def listen(event: Event) -> None:
        if isinstance(event, Chosen):
            session.chose(event.choice)
        else:
            session.on_event(event)

    session.chose(
        Choice("head_threads", 1, "heads are small: threads that wait for one another cost more than they gain", _CLAIMED)
    )
    with (
        one_thread(),
        stop_requests(lambda: session.warn("stopping after this epoch; the same command goes on from there")) as requests,
    ):
        return train_heads(
            material.extracted.store,
            material.learnable.problem,
            configs,
            device=_device(session),
            checkpoint=folder / "checkpoints" / "last.pt",
            on_event=listen,
            stop=lambda: requests.requested,
        )


def _device(session: Session) -> torch.device:
    return torch_device(session.policy)


def _head_extra(material: Material, judged: Judged) -> dict[str, Any]:
    """What prediction needs beside the head: how to make its features, and its calibration."""
    recipe = material.extracted.recipe
    return {
        "encoder": recipe.encoder.to_dict(),
        "engine": recipe.engine,
        "precision": recipe.precision,
        "num_augmented": recipe.num_augmented,
        "fingerprint": recipe.fingerprint,
        "temperature": judged.temperature,
        "unchoke": __version__,
    }


def _save_files(folder: Path, material: Material, trained: TrainResult, judged: Judged) -> None:
    """Everything but `record.json`, which is written last."""
    table = predictions_table(judged, material.learnable.problem, material.learnable.frame)
    text = table.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # a bare "\r" would end a row
    atomic.write_text(folder / "predictions.csv", text)
    atomic.write_json(folder / "history.json", trained.history)
