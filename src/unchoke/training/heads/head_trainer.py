"""Training heads on cached features: which ones, and how they are run. In: a session and features. Out: a `Trainer`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, Event, OnEvent
from unchoke.core.units import format_count
from unchoke.features.feature_store import FeatureStore
from unchoke.jobs.signals import stop_requests
from unchoke.machine.backend import torch_device
from unchoke.runs.session import Session
from unchoke.training.checkpoints import save_head
from unchoke.training.data import Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.sweep import choose_batch_size, default_sweep
from unchoke.training.heads.train_heads import train_heads
from unchoke.training.record import Trained
from unchoke.training.scoring.judge import one_thread, run_head
from unchoke.training.step_profiler import UNPROFILED

_FEW = 3
_CLAIMED = {"measured": "measured: see docs/claims.md"}
_OVERRIDES = ("lr", "weight_decay", "label_smoothing", "mixup", "class_weights", "patience")


class HeadTrainer:
    """One or many heads at once, validation picking the best."""

    weights: tuple[float, ...] | None = None

    def __init__(self, session: Session, problem: Problem, store: FeatureStore) -> None:
        self._session, self._problem, self._store = session, problem, store
        self._configs = choose_configs(session, problem)
        self.key = [config.to_dict() for config in self._configs]
        self.detail = f"{format_count(len(self._configs), 'head')}, {format_count(session.settings.epochs, 'epoch')}"

    def train(self, folder: Path) -> Trained:
        session, device = self._session, torch_device(self._session.policy)
        profiler = session.profiler or UNPROFILED
        session.chose(
            Choice("head_threads", 1, "heads are small: threads that wait for one another cost more than they gain", _CLAIMED)
        )
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
        return Trained(
            outputs=run_head(result.best, self._store, self._problem, device=device),
            metric=result.metric,
            history=result.history,
            sweep=[{**row.to_dict(), "picked": index == result.best_index} for index, row in enumerate(result.all)],
            save=lambda path, extra: save_head(result.best, path, extra=extra),
        )


def keeping_choices(session: Session) -> OnEvent:
    """Tell the session's listener, and keep choices for the record."""

    def listen(event: Event) -> None:
        if isinstance(event, Chosen):
            session.chose(event.choice)
        else:
            session.on_event(event)

    return listen


def choose_configs(session: Session, problem: Problem) -> list[HeadConfig]:
    """The heads to train: a sweep, one of the kind asked for, or a few for validation to pick from."""
    settings = session.settings
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
