"""`--minutes`: a first model as soon as without it, then whatever brings most for the time that is left, then a blend of all.

In: a session, what is learnt, and the first stage, whose inputs are ready. Out: what any training gives a record. A stage (a
`Rung`) is chosen by the time that the ones before took; the choice stands in `ladder.json` of the run before it begins, so that
one that was interrupted goes on as it would have. Models are chosen on the val split; the test split is scored once, at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.clock import StageTimers
from unchoke.core.errors import Interrupted, MachineError, UsageError
from unchoke.core.events import Note, ignore
from unchoke.core.fingerprint import digest
from unchoke.core.metrics import format_metric, metric_label
from unchoke.core.units import format_seconds
from unchoke.core.workspace import out_option
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.features.choose_encoder import other_encoders
from unchoke.features.cut import cut_network
from unchoke.features.encoders import bare_encoder
from unchoke.features.prepare_engine import Picture
from unchoke.machine.backend import torch_device
from unchoke.machine.detect import load_per_core
from unchoke.runs.session import Session
from unchoke.training.build_record import EncoderUse, TrainingOutcome, prediction_extra
from unchoke.training.data import FirstColumns, LearningTask
from unchoke.training.heads.head_trainer import HeadTrainer, solve_head
from unchoke.training.inputs import Inputs, prepare_inputs
from unchoke.training.ladder.blend import Share, ValLoss, blend, choose_shares, save_blend
from unchoke.training.ladder.rungs import (
    FOLDER,
    KeptRung,
    Overrides,
    Pace,
    Rung,
    first_rung,
    keep_rung,
    next_rung,
    recall_rung,
    what_is_left,
)
from unchoke.training.network.loop_choices import TrainedPart, choose_loop
from unchoke.training.network.memory_trial import rehearse
from unchoke.training.network.photo_job import LinearStart, PhotoJob
from unchoke.training.network.photo_trainer import network_spec, noise_source, targets_of
from unchoke.training.scoring.judge import JUDGED
from unchoke.training.scoring.learning_curve import RidgeRefit

LADDER_FILE = "ladder.json"
STRONG = 1.0
"""The penalty of the linear head that blocks begin behind."""
_BUSY = 2.0
_END_S = 6.0
"""Set aside for judging and the report, on a machine that does nothing else."""


def rung_session(session: Session, rung: Rung, ends_s: float = math.inf) -> Session:
    """The same workspace with a stage's settings, and clocks and choices of its own; the workspace remembers what was typed."""
    own: dict[str, Any] = {
        "settings": replace(session.settings, minutes=None, **rung.overrides),
        "remembering": False,
        "trains_here": True,
    }
    if rung.expected_s is not None:
        own |= {"ends_s": ends_s, "timers": StageTimers(), "timelines": {}, "choices": [], "prefetch": None, "profiler": None}
    return replace(session, **own)


def begin_ladder(session: Session) -> Session:
    """The session of the first stage; refused where an option cannot be combined with given minutes."""
    settings = session.settings
    reasons = {
        "--devices": (settings.devices or 1) > 1,
        "several processes": session.part is not None,
        "--profile": bool(settings.profile),
    }
    if wrong := [name for name, given in reasons.items() if given]:
        raise UsageError(
            f"--minutes cannot be combined with {' and '.join(wrong)}",
            code="options-conflict",
            why="it trains several models one after the other, in one process, and blends them",
            try_="leave one of them out",
        )
    session.remember_settings()
    return rung_session(session, first_rung(settings))


class LadderTrainer:
    """A `Trainer` that trains several candidate models and blends them."""

    def __init__(self, session: Session, learnable: LearningTask, pictures: Sequence[Picture], inputs: Inputs) -> None:
        self._session, self._learnable, self._pictures = session, learnable, pictures
        self._problem = learnable.problem
        self._first, self._first_use, self._first_features = inputs.trainer(learnable), inputs.encoder, inputs.features
        self._minutes = float(session.settings.minutes or 0)
        self.weights = self._first.weights
        self.key = ["ladder", self._minutes, self._first.key]
        self.detail = f"the best model that {format_seconds(60 * self._minutes)} allow"
        self._loss = ValLoss.of(self._problem, self.weights)
        self._metric = "loss" if self._problem.kind == "regression" else "log_loss"
        self._earlier_s = 0.0
        """What stages took that were trained before this process came."""

    def train(self, folder: Path) -> TrainingOutcome:
        session, settings, file = self._session, self._session.settings, folder / LADDER_FILE
        first = self._climb_first()
        self._tell([first])
        if (load := load_per_core()) >= _BUSY:
            session.on_event(
                Note(f"the machine is busy (load {load:.1f} for each core): more of the time is set aside for the end")
            )
        earlier: Any = checksums.load_checked_json(file) if file.exists() else []
        planned = [Rung(one["name"], one["overrides"], one["expected_s"]) for one in earlier]
        climbed, tried = [first], [first.rung]
        # A pass over all photos takes what the first stage took for it, or about 20 ms a photo.
        pass_s, num_run = max(first.extract_s, 0.02 * len(self._pictures)), self._first_use.num_images_run
        if num_run:
            pass_s = max(0.1, first.extract_s * len(self._pictures) / num_run)
        ends_s = self._ends_s()
        pace = Pace(pass_s, self._epoch_s, other_encoders(session) if ends_s - time.monotonic() > 2 * pass_s else [])
        stopped: Interrupted | None = None
        while stopped is None:
            left_s = self._ends_s() - time.monotonic()
            if len(tried) > len(planned):
                rung = next_rung(settings, tried, pace, left_s, self._kept)
                if rung is None:
                    spent = format_seconds(self._earlier_s + time.monotonic() - session.began_s)
                    session.on_event(Note(f"after {spent}: {what_is_left(settings, tried, pace, left_s)}"))
                    break
                planned.append(rung)
                checksums.save_checked_json(file, [one.to_dict() for one in planned])
            rung = planned[len(tried) - 1]
            tried.append(rung)
            try:
                kept = self._climb(rung)
            except (Interrupted, KeyboardInterrupt) as error:
                where = f"{error.what}; " if isinstance(error, Interrupted) else ""
                out = out_option(session.workspace.root)
                stopped = Interrupted(
                    f"stopped on request in {rung.name}",
                    code="interrupted",
                    why=f"{where}the models trained before that are blended, and the report has their scores",
                    try_=f"unchoke predict latest PHOTOS{out}; or the same command, which goes on",
                )
            except (UsageError, MachineError) as error:
                session.warn(f"{rung.name} is left out: {error.what} ({error.why})")
            else:
                if kept is not None:
                    pace.learn(kept.rung, kept.train_s)
                    climbed.append(kept)
                    self._tell(climbed)
        return self._outcome(climbed, stopped)

    def _ends_s(self) -> float:
        """When training ends, by the clock of `began_s`: judging and the report come after it, slower on a busy machine."""
        return self._session.began_s + 60 * self._minutes - self._earlier_s - _END_S * max(1.0, load_per_core())

    def _climb_first(self) -> KeptRung:
        """The stage whose inputs are ready; its time counts from when the command began."""
        session, rung = self._session, first_rung(self._session.settings)
        if (found := self._recall(rung)) is not None:
            return found
        folder, began = self._folder(rung), time.monotonic()
        outcome = self._first.train(folder)
        train_s, seconds = time.monotonic() - began, time.monotonic() - session.began_s
        extract_s = session.timers.seconds.get("extract", 0.0)
        extra = _extra(self._first_use, outcome)
        return keep_rung(rung, folder, outcome, extra, seconds=seconds, extract_s=extract_s, train_s=train_s)

    def _recall(self, rung: Rung) -> KeptRung | None:
        """The stage if it was trained before, its time counting as spent."""
        found = recall_rung(rung, self._folder(rung), self._session.warn)
        self._earlier_s += 0.0 if found is None else found.seconds
        return found

    def _epoch_s(self, overrides: Overrides) -> float:
        """What an epoch with these settings takes; 0 where they cannot be trained at all, which training will say."""
        try:
            return measure_epoch_s(rung_session(self._session, Rung("", overrides, 0.0)), self._learnable)
        except (UsageError, MachineError):
            return 0.0

    def _kept(self, rung: Rung) -> Rung | None:
        """The stage with what it took, if a run before this one trained it."""
        found = recall_rung(rung, self._folder(rung), self._session.warn)
        return None if found is None else replace(rung, expected_s=found.seconds)

    def _climb(self, rung: Rung) -> KeptRung | None:
        """One stage, from wherever it stands; None for one that cannot be trained, with a warning."""
        session, folder = rung_session(self._session, rung, self._ends_s()), self._folder(rung)
        if (found := self._recall(rung)) is not None:
            return found
        expected = "" if rung.expected_s is None else f", about {format_seconds(rung.expected_s)}"
        session.on_event(Note(f"next: {rung.name}{expected}"))
        began = time.monotonic()
        inputs = prepare_inputs(session, self._pictures, start=self._start(rung))
        if not inputs.present.all():
            session.warn(f"{rung.name} is left out: {int((~inputs.present).sum())} photos cannot be read for it")
            return None
        extract_s = time.monotonic() - began
        outcome = inputs.trainer(self._learnable).train(folder)
        seconds = time.monotonic() - began
        extra = _extra(inputs.encoder, outcome)
        return keep_rung(rung, folder, outcome, extra, seconds=seconds, extract_s=extract_s, train_s=seconds - extract_s)

    def _start(self, rung: Rung) -> LinearStart | None:
        """Blocks are first trained behind a linear head on their cached features: a strongly penalised one. The best one overfits
        the training photos, and leaves the blocks nothing to learn.
        """
        feats = self._first_features
        if rung.overrides.get("encoder") or feats is None or self._problem.kind != "classification":
            return None
        source, seed = FirstColumns(feats, self._first_use.spec.dim), self._session.settings.seed
        return LinearStart.of(solve_head(source, self._problem, seed=seed, strength=STRONG))

    def _folder(self, rung: Rung) -> Path:
        """Named by what the model depends on, and not by how many minutes were given."""
        wanted = replace(self._session.settings, minutes=None, data="", **rung.overrides).given()
        return self._session.workspace.experiments / FOLDER / digest([self._learnable.key, wanted])[:16]

    def _tell(self, climbed: list[KeptRung]) -> None:
        """What the last one took, and its score: by itself, and together with those before it."""

        def figures(some: list[KeptRung]) -> str:
            outputs = self._blended(some)
            loss = self._loss(outputs)
            if self._problem.kind == MULTI_LABEL:
                return f"{metric_label(self._metric)} {loss:.3g}"
            if self._problem.kind != "classification":
                return f"R² {1 - loss:.3f}"
            right = (outputs.argmax(axis=1) == self._problem.targets[self._problem.positions("val")]).mean()
            return f"{metric_label(self._metric)} {loss:.3g} and {format_metric('accuracy', float(right))} right"

        last = climbed[-1]
        together = f", together with those before {figures(climbed)}" if len(climbed) > 1 else ""
        self._session.on_event(Note(f"{last.rung.name}: {format_seconds(last.seconds)}, on val {figures([last])}{together}"))

    def _blended(self, climbed: list[KeptRung]) -> NDArray[np.float32]:
        """Outputs of some models for the val split, as one."""
        return blend([one.outputs["val"] for one in climbed], self._shares(climbed), self._problem.kind)

    def _shares(self, climbed: list[KeptRung]) -> list[Share]:
        return choose_shares([one.outputs["val"] for one in climbed], self._loss, [one.kind == "network" for one in climbed])

    def _outcome(self, climbed: list[KeptRung], stopped: Interrupted | None) -> TrainingOutcome:
        problem, settings = self._problem, self._session.settings
        shares = self._shares(climbed)
        pairs = list(zip(climbed, shares, strict=True))
        outputs = {split: blend([one.outputs[split] for one in climbed], shares, problem.kind) for split in climbed[0].outputs}
        words = " + ".join(f"{share.weight:.0%} {one.rung.name}" for one, share in pairs if share.weight > 0)
        num_val = len(problem.positions("val"))
        reason = f"models whose scores are alike, the better ones with more weight as far as {num_val:,} val samples can tell"
        self._session.chose(Choice("blend", words, reason))
        sweep: list[dict[str, Any]] = []
        history: list[dict[str, float]] = []
        ladder: list[dict[str, Any]] = []
        for number, (one, share) in enumerate(pairs, start=1):
            loss = self._loss(blend([one.outputs["val"]], [replace(share, weight=1.0)], problem.kind))
            named: dict[str, Any] = {"kind": one.rung.name, "seed": settings.seed, **one.rung.overrides}
            config = {**named, "seconds": round(one.seconds, 1), "share": round(share.weight, 3)}
            sweep.append({"config": config, "val_metric": loss, "val_loss": loss, "picked": share.weight > 0})
            history.append({"epoch": number, "seconds": one.seconds, "val_loss": loss})
            together = self._loss(self._blended(climbed[:number]))
            row = {"name": one.rung.name, "seconds": one.seconds, "val_loss": loss, "together": together}
            ladder.append({**row, "share": share.weight})

        def save(path: Path, extra: dict[str, Any]) -> None:
            weights = None if self.weights is None else list(self.weights)
            save_blend(path, pairs, outputs, kind=problem.kind, names=problem.names, extra={**extra, "target_weights": weights})

        refit = None
        if self._first_features is not None and isinstance(self._first, HeadTrainer):
            judged = np.concatenate([problem.positions(split) for split in JUDGED])
            end = FirstColumns(self._first_features, self._first_use.spec.dim)
            refit = RidgeRefit(end, problem, np.sort(judged))
        about = {"ladder": ladder}
        return TrainingOutcome(outputs, self._metric, history, sweep, save, about, stopped=stopped, refit=refit)


def _extra(use: EncoderUse, outcome: TrainingOutcome) -> dict[str, Any]:
    """What prediction needs of one model, and how a network was trained: the record of this run has no place for that."""
    loop = {"loop": outcome.about["training"]["loop"]} if "training" in outcome.about else {}
    return {**prediction_extra(use, temperature=1.0), **loop}


_STEPS, _LONG_ENOUGH_S = 6, 3.0


def measure_epoch_s(session: Session, learnable: LearningTask) -> float:
    """Seconds of one epoch with the settings of `session`; nothing is told, kept or chosen."""
    settings, problem = session.settings, learnable.problem
    encoder = bare_encoder(settings.encoder, input_px=settings.input_px)
    cut = cut_network(encoder, settings.cut, verify=False)
    loop = choose_loop(replace(session, on_event=ignore, choices=[]), problem, TrainedPart.of(encoder, settings.cut))
    batch = min(loop.batch_size, len(problem.positions("train")))
    loop = replace(loop, batch_size=batch, sub_batch=min(loop.sub_batch, batch), eval_batch=batch)
    job = PhotoJob(
        network=network_spec(settings, encoder),
        source=noise_source(settings, encoder, cut),
        targets=targets_of(settings, learnable),
        inputs=learnable.inputs,
        problem=problem,
        loop=loop,
        metric="loss",
        device=str(torch_device(session.policy)),
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(loop.threads)
    try:
        with torch.random.fork_rng(devices=[]):
            rehearsal = rehearse(job, loop)
            step_s = rehearsal.train_steps(_STEPS, longest_s=_LONG_ENOUGH_S)
            judge_s = rehearsal.evaluate(batch, 2)
    finally:
        torch.set_num_threads(threads)
    num_train, num_val = (len(problem.positions(split)) for split in ("train", "val"))
    return step_s * math.ceil(num_train / batch) + judge_s * math.ceil(num_val / batch)
