"""From data that is ready to a recorded run: train, judge, save and record.

In: a session, what the run is made from, and a `Trainer` (heads on cached features, or a network). Out: the run's record. The
run's key is a digest of data, features and training settings: the same key goes on with the same run, or finds it done.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

from unchoke.core import atomic
from unchoke.core.errors import Interrupted, MachineError
from unchoke.core.fingerprint import digest
from unchoke.core.record import RunRecord
from unchoke.runs.experiment_store import ExperimentStore, RunRow
from unchoke.runs.run_files import recall_record, unseal_run
from unchoke.runs.session import Session, tell_if_done
from unchoke.runs.stretches import FILE as STRETCHES_FILE
from unchoke.runs.stretches import StretchLog, training_key
from unchoke.training.build_record import (
    RunMaterial,
    TrainingOutcome,
    as_typed,
    build_record,
    enter_run,
    photo_parts,
    prediction_extra,
)
from unchoke.training.data import digest_judged
from unchoke.training.scoring.judge import compare_before, judge, predictions_table
from unchoke.training.scoring.learning_curve import measure_curve
from unchoke.training.scoring.predictions import GROUP
from unchoke.training.step_profiler import profiled_if_asked


class Trainer(Protocol):
    """A way of training. `key` tells its result from any other's, `detail` is shown when it begins."""

    key: Any
    detail: str
    weights: tuple[float, ...] | None
    """Of the targets, where some were declared: the score is weighted by them."""

    def train(self, folder: Path) -> TrainingOutcome:
        """Train (or go on with) the run in `folder`."""
        ...


def run_training(
    session: Session, material: RunMaterial, trainer: Trainer, *, planned_bytes: int | None
) -> tuple[RunRecord, bool]:
    """Train, judge and record; return the record, and whether it was there already."""
    problem = material.learnable.problem

    def make(run: RunRow, folder: Path) -> tuple[RunRecord, Interrupted | None]:
        with profiled_if_asked(session, run.name) as profiled, session.stage("train", trainer.detail):
            trained = trainer.train(folder)
        with session.stage("evaluate"):
            groups = material.learnable.frame[GROUP].tolist()
            judged = judge(trained.outputs, problem, seed=session.settings.seed, weights=trainer.weights, groups=groups)
        curve: dict[str, Any] = {}
        if trained.refit is not None:  # training on part of the photos takes no time
            with session.stage("curve"):
                curve["learning_curve"] = measure_curve(trained.refit, problem, groups, seed=session.settings.seed)
        trained.save(folder / "checkpoints" / "best_head.pt", prediction_extra(material.encoder, temperature=judged.temperature))
        with session.stage("report"):
            parts = photo_parts(session, material, judged) | profiled | curve
            if material.group_gap:
                parts["group_gap"] = material.group_gap
            if (corrected := compare_before(session, run, problem, judged)) is not None:
                parts["corrections"] = corrected
            num_run = material.encoder.num_images_run
            record = build_record(session, run, trained, num_images_run=num_run, planned_bytes=planned_bytes, **parts)
            # everything but record.json, which is written last
            table = predictions_table(judged, problem, material.learnable.frame)
            text = table.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # a bare "\r" would end a row
            atomic.write_text(folder / "predictions.csv", text)
            atomic.write_json(folder / "history.json", trained.history)
        return record, trained.stopped

    return record_run(
        session,
        make,
        key=digest([material.learnable.key, material.encoder.fingerprint, trainer.key]),
        command=as_typed(material.command, session.settings),
        num_samples=len(material.learnable.frame),
        fingerprint=material.encoder.fingerprint,
        judged=digest_judged(material.learnable),
    )


@contextmanager
def keeping_stretches(session: Session) -> Iterator[None]:
    """While a training is prepared and run: if it ends early, by whatever, the next stretch finds what this one took."""
    file = session.workspace.experiments / STRETCHES_FILE
    atomic.sweep_temporaries(file.parent)
    log = session.stretches = StretchLog(file, training_key(session.settings), session.timers)
    listener, session.on_event = session.on_event, log.listening(session.on_event)
    try:
        yield
    except BaseException:
        with suppress(MachineError, OSError):  # what ended the stretch is what a person must hear of
            log.save()
        raise
    else:
        log.forget()
    finally:
        session.on_event, session.stretches = listener, None


def record_run(
    session: Session,
    make: Callable[[RunRow, Path], tuple[RunRecord, Interrupted | None]],
    *,
    key: str,
    command: str,
    num_samples: int,
    fingerprint: str,
    judged: dict[str, dict[str, str]] | None = None,
) -> tuple[RunRecord, bool]:
    """The record of the run with this key, and whether it was there already; if not, `make` gives it, in the run's folder.

    One that was interrupted goes on in its own folder, and is done when its record is entered. Where someone asked to stop and
    there is a result all the same, `make` says so: it is recorded, and the same command goes on.
    """
    settings = session.settings
    with ExperimentStore.open(session.workspace.experiments_file) as experiments:
        run = experiments.start_run(
            key=key,
            command=command,
            settings={**settings.given(), "cut": settings.cut},
            data={"source": settings.data, "num_samples": num_samples, **(judged or {"split_digests": {}})},
            encoder=settings.encoder,
            fingerprint=fingerprint,
        )
        folder = session.workspace.run_folder(run.name)
        if run.status == "done" and (record := recall_record(folder, session.warn)) is not None:
            tell_if_done(session, run.name)
            if session.tracking is not None:
                session.tracking.send_finished(experiments, run)
            return record, True
        if session.stretches is not None:
            session.stretches.begin_run(run.name)
        unseal_run(folder)
        for place in (folder, folder / "checkpoints"):
            atomic.sweep_temporaries(place)
        tracked: AbstractContextManager[None] = nullcontext()
        if session.tracking is not None:  # what a ladder tells on the way is of its stages
            tracked = session.tracking.run(experiments, run, is_live=settings.minutes is None)
        with tracked:
            try:
                record, stopped = make(run, folder)
            except Interrupted:
                experiments.finish_run(run, "interrupted")
                raise
            enter_run(experiments, run, record, session, folder)
            if stopped is not None:
                experiments.finish_run(run, "interrupted")
                raise stopped
        return record, False
