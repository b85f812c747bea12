"""Training heads on cached features: which ones, and how they are run.

In: a session and features. Out: a `Trainer`. Which configurations are tried follows from the problem and the settings alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unchoke.core.choices import CONFIGURATION, Choice
from unchoke.core.clock import NO_PROFILER
from unchoke.core.errors import DataError
from unchoke.core.events import Chosen, Event, Note, OnEvent, ignore
from unchoke.core.metrics import LOSSES, metric_label
from unchoke.core.prefetch import Steps
from unchoke.core.settings import HeadKind, Settings
from unchoke.core.units import format_count
from unchoke.features.feature_store import FeatureStore
from unchoke.jobs.signals import stop_requests
from unchoke.machine.backend import head_device, is_cpu, one_thread
from unchoke.machine.detect import usable_cores
from unchoke.machine.policy import CLAIMED
from unchoke.runs.report.summary import describe_config
from unchoke.runs.session import Session
from unchoke.training.build_record import TrainingOutcome
from unchoke.training.data import FeatureSource, FirstColumns, Problem
from unchoke.training.heads.heads import HeadConfig, TrainedHead, save_head
from unchoke.training.heads.linear_path import PATIENCE, STRENGTHS, strength_at
from unchoke.training.heads.novelty import NOVELTY, fit_novelty
from unchoke.training.heads.train_heads import TrainResult, train_heads, warm_heads
from unchoke.training.scoring.judge import JUDGED, run_head
from unchoke.training.scoring.learning_curve import RidgeRefit
from unchoke.training.scoring.selection import automatic_weights

_FEW = 2
_DEFAULT_STRENGTH = STRENGTHS[5]
"""Where no val split can tell which suits."""
_OF_STEPS = ("lr", "label_smoothing", "mixup", "patience", "batch_size")
"""Options that only mean something for a head that is trained step by step."""
_MAX_BATCH, _MIN_BATCH, _STEPS_PER_EPOCH = 256, 32, 20
_RATIO = 1.1673039782614187
_OVERRIDES = ("lr", "weight_decay", "label_smoothing", "mixup", "class_weights", "patience")


class HeadTrainer:
    """One or many heads at once, validation picking the best."""

    weights: tuple[float, ...] | None = None

    def __init__(self, session: Session, problem: Problem, store: FeatureStore, *, end_dim: int) -> None:
        """`end_dim` is how many of the features are those of the network's end: they come first."""
        self._session, self._problem, self._store, self._end_dim = session, problem, store, end_dim
        self._configs = choose_configs(session, problem)
        self.key = [*(config.to_dict() for config in self._configs), {"refit": session.settings.refit is not False}]
        self.detail = f"{format_count(len(self._configs), 'head')}, {format_count(session.settings.epochs, 'epoch')}"

    def train(self, folder: Path) -> TrainingOutcome:
        session, device = self._session, head_device(self._session.policy)
        profiler = session.profiler or NO_PROFILER
        session.chose(
            Choice("head_threads", usable_cores(), "linear heads are solved on all cores, others trained on one", CLAIMED)
        )
        if session.cluster is not None:
            session.on_event(Note("heads train on this machine, in seconds: the cluster is for the features they train on"))
        with (
            one_thread(),
            stop_requests(lambda: session.warn("stopping after this epoch; the same command goes on from there")) as requests,
        ):
            result = train_heads(
                self._store,
                self._problem,
                self._configs,
                device=device,
                checkpoint=folder / "checkpoints" / "last.pt",
                on_event=keeping_choices(session),
                stop=lambda: requests.requested or profiler.wants_stop,
                profiler=profiler,
            )
        session.timelines["train"] = result.timeline
        session.chose(_winner(result))
        best = self._refitted(result.best, device)
        judged = np.concatenate([self._problem.positions(split) for split in JUDGED])
        with one_thread():
            novelty = fit_novelty(self._store, self._problem)
        beside = {} if novelty is None else {NOVELTY: novelty.to_dict()}
        return TrainingOutcome(
            outputs=run_head(best, self._store, self._problem, device=device),
            metric=result.metric,
            history=result.history,
            sweep=[{**row.to_dict(), "picked": index == result.best_index} for index, row in enumerate(result.all)],
            save=lambda path, extra: save_head(best, path, extra=extra | beside),
            refit=RidgeRefit(FirstColumns(self._store, self._end_dim), self._problem, np.sort(judged)),
        )

    def _refitted(self, picked: TrainedHead, device: torch.device) -> TrainedHead:
        """What val picked, trained once more with val, unless the settings say otherwise."""
        session, num_val = self._session, len(self._problem.positions("val"))
        if session.settings.refit is False or not num_val:
            return picked
        try:
            with one_thread():
                again = refit_head(self._store, self._problem, picked, device=device)
        except DataError as error:
            session.warn(f"{error.what} when val was added: the head that was trained without it is kept")
            return picked
        num_train = len(self._problem.positions("train"))
        reason = f"val has picked it, and trains the model that is kept, too: {num_train:,} samples and these {num_val:,}"
        session.chose(Choice("refit", True, f"{reason}; val figures are those of before", {"num_val": num_val}))
        return again


def _winner(result: TrainResult) -> Choice:
    """Which configuration was picked, described by what differs, and why."""
    configs, picked = [row.config.to_dict() for row in result.all], result.all[result.best_index]
    reason = f"the best of {len(configs):,} by validation {metric_label(result.metric)}" if len(configs) > 1 else "the only one"
    scores = [row.val_metric for row in result.all if row.val_metric is not None]
    better = min if result.metric in LOSSES else max
    if len(scores) > 1 and picked.val_metric != better(scores):
        reason = f"no other of {len(configs):,} is better by more than chance on validation, and it is the simplest"
    evidence = {**picked.config.to_dict(), "best_epoch": picked.best_epoch}
    return Choice(CONFIGURATION, describe_config(picked.config.to_dict(), configs), reason, evidence)


def warm_up_heads(session: Session) -> Steps[None]:
    """For a `Prefetch` beside extraction: on a GPU, the kernels that training heads will need; nothing on a CPU."""
    device = head_device(session.policy)
    if not is_cpu(device):
        warm_heads(device, [HeadConfig("linear"), HeadConfig("mlp", mixup=0.2, class_weights="gentle")])
    yield "heads"


def keeping_choices(session: Session) -> OnEvent:
    """Pass events on to the session's listener, and keep choices for the record."""

    def listen(event: Event) -> None:
        if isinstance(event, Chosen):
            session.chose(event.choice)
        else:
            session.on_event(event)

    return listen


def choose_configs(session: Session, problem: Problem) -> list[HeadConfig]:
    """The heads to train: a sweep, one of the kind asked for, or a few for validation to pick from."""
    settings, given = session.settings, session.settings.given()
    batch_size = settings.batch_size
    if batch_size is None:
        choice = choose_batch_size(len(problem.positions("train")))
        session.chose(choice)
        batch_size = int(choice.value)
    num = settings.sweep or (_FEW if settings.head is None else 1)
    stepwise = any(given.get(name) is not None for name in _OF_STEPS) or settings.epochs != Settings().epochs
    configs = default_sweep(
        problem, num=num, seed=settings.seed, epochs=settings.epochs, batch_size=batch_size, stepwise=stepwise
    )
    if settings.head is not None:
        plain: dict[str, Any] = {"solver": "adamw", "epochs": settings.epochs, "patience": 0}
        configs = [config if config.kind == settings.head else replace(config, kind=settings.head, **plain) for config in configs]
    overrides = {name: getattr(settings, name) for name in _OVERRIDES if getattr(settings, name) is not None}
    solved = {**overrides, "epochs": 1} if "weight_decay" in overrides else overrides  # a given penalty needs no path of them
    return list(dict.fromkeys(replace(one, **(solved if one.solver == "lbfgs" else overrides)) for one in configs))


def choose_batch_size(num_train: int) -> Choice:
    """A power of two that gives about 20 steps an epoch, between 32 and 256."""
    size = _MIN_BATCH
    while size < _MAX_BATCH and num_train / (size * 2) >= _STEPS_PER_EPOCH:
        size *= 2
    reason = f"{num_train:,} training samples: about {max(1, round(num_train / size))} steps an epoch"
    return Choice("batch_size", size, reason, {"num_train": num_train})


def default_sweep(
    problem: Problem, *, num: int, seed: int, epochs: int, batch_size: int, stepwise: bool = False
) -> list[HeadConfig]:
    """`num` configurations, the most promising first, each set the beginning of the next larger one.

    The first linear head is solved, or (`stepwise`) trained like the others. Of the rest three quarters are linear heads and a
    quarter small MLPs; learning rate, decay, smoothing and mix-up are spread evenly (a low-discrepancy sequence), so every prefix
    covers the ranges. Uneven classes get gentle weights.
    """
    common: dict[str, Any] = {"seed": seed, "epochs": epochs, "batch_size": batch_size}
    classes = problem.kind == "classification"
    if classes:
        common["class_weights"] = automatic_weights(problem.targets[problem.positions("train")])
    first = [
        HeadConfig("linear", **common) if stepwise else solved_head(problem, common),
        HeadConfig("mlp", mixup=0.2 if classes else 0.0, **common),
    ]
    spread = [_spread_config(number, common, classes=classes) for number in range(max(0, num - len(first)))]
    return [*first, *spread][: max(1, num)]


def _spread_config(number: int, common: dict[str, Any], *, classes: bool) -> HeadConfig:
    """The `number`-th point of an additive sequence with the ratios of the generalised golden section in four dimensions."""
    rate, decay, smooth, mixed = ((0.5 + (number + 1) * _RATIO**-power) % 1 for power in (1, 2, 3, 4))
    kind: HeadKind = "mlp" if number % 4 == 3 else "linear"
    return HeadConfig(
        kind,
        lr=10 ** (-4.0 + 2.0 * rate),
        weight_decay=10 ** (-2.0 + 2.5 * decay),
        dropout=0.1 if number % 8 == 3 else 0.3,
        label_smoothing=[0.0, 0.05, 0.1][int(smooth * 3)] if classes else 0.0,
        mixup=[0.0, 0.2][int(mixed * 2)],
        **common,
    )


def solved_head(problem: Problem, common: dict[str, Any]) -> HeadConfig:
    """A linear head that is solved along all strengths, or for a middle one where no val split tells which suits."""
    if len(problem.positions("val")):
        return HeadConfig("linear", solver="lbfgs", **{**common, "epochs": len(STRENGTHS), "patience": PATIENCE})
    return HeadConfig("linear", solver="lbfgs", weight_decay=_DEFAULT_STRENGTH, **{**common, "epochs": 1})


def refit_head(source: FeatureSource, problem: Problem, head: TrainedHead, *, device: torch.device) -> TrainedHead:
    """`head` trained on train and val together: at the strength, or for the epochs, that suited without val."""
    both = np.sort(np.concatenate([problem.positions("train"), problem.positions("val")]))
    config = replace(head.config, epochs=head.best_epoch, patience=0)
    if head.config.solver == "lbfgs":
        config = replace(config, epochs=1, weight_decay=strength_at(head.config, head.best_epoch - 1))
    whole = replace(problem, splits={"train": both})
    again = train_heads(source, whole, [config], device=device, on_event=ignore, begin=head.params).best
    return replace(again, config=head.config, best_epoch=head.best_epoch, val=head.val, without_val=head)


def solve_head(source: FeatureSource, problem: Problem, *, seed: int, strength: float | None = None) -> TrainedHead:
    """The best linear head on these features, or the one of a given strength, within a second or so; nothing is written."""
    common: dict[str, Any] = {"seed": seed}
    if problem.kind == "classification":
        common["class_weights"] = automatic_weights(problem.targets[problem.positions("train")])
    config = solved_head(problem, common)
    if strength is not None:
        config = replace(config, epochs=1, weight_decay=strength)
    with one_thread():
        return train_heads(source, problem, [config], device=torch.device("cpu"), on_event=ignore).best
