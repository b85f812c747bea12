"""Training heads: all configurations at once, epoch by epoch, resumable, the best kept.

In: a feature source, a problem, configurations. Out: a `TrainResult`, and `last.pt` on the way. Configurations that share seed
and batch size see the same batches (one read, one standardisation), and those of one shape are one stack. It reads features chunk
by chunk and never holds them all. How far it is stands in `last.pt`, tied to exactly what is trained: a file of another problem,
other configurations or other features is put aside with a note, never mixed in. Nothing here depends on the clock except when a
checkpoint is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unchoke.core.clock import NO_PROFILER, Clock, Loading, LoopProfiler
from unchoke.core.errors import DataError, Interrupted, UsageError, list_some
from unchoke.core.events import Chosen, Note, OnEvent, Progress, ignore
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.core.mixing import hash_ids
from unchoke.core.timeline import TRAINING, Timeline
from unchoke.machine.backend import can_record, record_work
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import ArraySource, FeatureSource, Problem, Standardiser, check_problem, fit_standardiser
from unchoke.training.heads.heads import ConfigResult, HeadConfig, Params, TrainedHead, TrainResult
from unchoke.training.heads.linear_path import LinearPath, TrainingRows
from unchoke.training.heads.stack import Member, Stack
from unchoke.training.sampling import Scaler, batches, epoch_order, epoch_views, hold_features
from unchoke.training.scoring.selection import DeviceTargets, ValScores, as_figure, choose_metric, start_val

_WARM_DIM = 1280


def train_heads(
    source: FeatureSource,
    problem: Problem,
    configs: Sequence[HeadConfig],
    *,
    device: torch.device,
    checkpoint: Path | None = None,
    checkpoint_every_s: float = 10.0,
    on_event: OnEvent,
    stop: Callable[[], bool] | None = None,
    profiler: LoopProfiler = NO_PROFILER,
) -> TrainResult:
    """Train every configuration and pick the best by the val split.

    Run again with the same arguments after a kill, it goes on from `checkpoint` and ends with the same bytes. `stop` is
    asked after each epoch; when it says yes, the state is saved and `Interrupted` raised. Selection: the log loss of calibrated
    probabilities, rare classes counting more where classes are uneven, or mean R²; ties go to the earlier configuration.
    """
    check_problem(problem, source)
    _check_configs(configs, problem)
    metric = choose_metric(problem)
    on_event(Chosen(metric))
    standardiser = fit_standardiser(source, problem.positions("train"))
    digest = training_digest(problem, configs, standardiser, source)
    saved = load_progress(checkpoint, digest=digest, configs=configs, on_event=on_event)
    task = DeviceTargets.of(problem, device=device)
    training = HeadTraining(
        source,
        problem,
        task,
        standardiser,
        metric=metric.value,
        members=saved.members,
        states=saved.states,
        profiler=profiler,
    )

    def save(file: Path, epoch: int, states: dict[int, dict[str, Params]]) -> None:
        with training.clock.stage("checkpoint"):
            save_progress(file, digest=digest, epoch=epoch, members=training.members, states=states)

    last_saved_s = time.monotonic()
    num_epochs = max(config.epochs for config in configs)
    with profiler.on(device):
        for epoch in range(saved.epoch, num_epochs):
            if training.finished:
                break
            training.run_epoch(epoch, on_event=on_event)
            on_event(_progress(training, epoch, num_epochs=num_epochs, first=saved.epoch))
            stopping = stop is not None and stop() and not training.finished
            if checkpoint and not training.finished and (stopping or time.monotonic() - last_saved_s >= checkpoint_every_s):
                save(checkpoint, epoch + 1, training.states())
                last_saved_s = time.monotonic()
            if stopping:
                raise _interrupted(epoch + 1, num_epochs, kept=checkpoint is not None)
    winner = _winner(training.members)
    if checkpoint and saved.epoch < num_epochs:
        _forget_losers(training.members, winner)
        save(checkpoint, num_epochs, {})
    return TrainResult(
        best=_best_head(winner, problem, standardiser, task.scale),
        best_index=winner.index,
        all=[_outcome(member, metric.value) for member in training.members],
        metric=metric.value,
        resumed_epoch=saved.epoch,
        timeline=training.timeline(),
    )


def warm_heads(device: torch.device, configs: Sequence[HeadConfig]) -> None:
    """Train `configs` for an epoch on nothing, so that a card has loaded their kernels by the time there is something."""
    rows = 2 * max(config.batch_size for config in configs)
    numbers = np.arange(rows, dtype=np.int64)
    splits = {"train": numbers[: rows - 2], "val": numbers[rows - 2 :]}
    problem = Problem("classification", ("a", "b"), numbers % 2, splits, [str(number) for number in numbers])
    source = ArraySource(np.zeros((rows, _WARM_DIM), np.float16))
    train_heads(source, problem, [replace(config, epochs=1) for config in configs], device=device, on_event=ignore)


def _check_configs(configs: Sequence[HeadConfig], problem: Problem) -> None:
    if not configs:
        raise UsageError(
            "there is no configuration to train", code="no-configuration", why="the list is empty", try_="use default_sweep"
        )
    wrong = [
        f"configuration {number}"
        for number, config in enumerate(configs, start=1)
        if problem.kind == "regression" and (config.label_smoothing or config.class_weights != "none")
    ]
    if wrong:
        raise UsageError(
            f"label smoothing or class weights asked for in a regression: {list_some(wrong)}",
            code="option-not-for-values",
            why="both concern classes, and a regression has none",
            try_="leave both out",
        )


def _winner(members: list[Member]) -> Member:
    """The best finished member; without a val split the first one that did not diverge."""
    usable = [member for member in members if member.best_params is not None]
    if not usable:
        raise DataError(
            f"training diverged in all {len(members)} configurations",
            code="diverged",
            why="the loss became infinite or not a number in each",
            try_="lower the learning rate, or run `unchoke check` on the data",
        )
    scored = [member for member in usable if member.best_metric is not None and member.best_loss is not None]
    if not scored:
        return usable[0]
    return max(scored, key=lambda member: (member.best_metric, -(member.best_loss or 0.0), -member.index))


def _forget_losers(members: list[Member], winner: Member) -> None:
    for member in members:
        if member is not winner:
            member.best_params = None


def _progress(training: HeadTraining, epoch: int, *, num_epochs: int, first: int) -> Progress:
    clock = training.clock
    rate = (epoch + 1 - first) / max(clock.wall_s, 1e-9)
    active = sum(not member.done for member in training.members)
    best = max((member.best_metric for member in training.members if member.best_metric is not None), default=None)
    extra = {
        "configs_active": active,
        "waiting_for_data_share": clock.share("wait"),
        f"best_val_{training.metric}": None if best is None else as_figure(training.metric, best),
    }
    done = num_epochs if training.finished else epoch + 1
    return Progress("train", done, num_epochs, "epochs", rate, (num_epochs - done) / rate, extra=extra)


def _interrupted(epoch: int, num_epochs: int, *, kept: bool) -> Interrupted:
    fate = "the state is saved" if kept else "no checkpoint was asked for, so nothing is kept"
    return Interrupted(
        f"training stopped after epoch {epoch} of {num_epochs}",
        code="interrupted",
        why=f"stopped on request; {fate}",
        try_="run the same command again",
    )


def _best_head(winner: Member, problem: Problem, standardiser: Standardiser, scale: Standardiser) -> TrainedHead:
    assert winner.best_params is not None
    reached = winner.curve[winner.best_epoch - 1]
    return TrainedHead(
        config=winner.config,
        params=winner.best_params,
        standardiser=standardiser,
        kind=problem.kind,
        names=problem.names,
        target_mean=scale.mean,
        target_std=scale.std,
        best_epoch=winner.best_epoch,
        val={name.removeprefix("val_"): value for name, value in reached.items() if name.startswith("val_")},
    )


def _outcome(member: Member, metric: str) -> ConfigResult:
    return ConfigResult(
        config=member.config,
        val_metric=None if member.best_metric is None else as_figure(metric, member.best_metric),
        val_loss=member.best_loss,
        best_epoch=member.best_epoch,
        num_epochs=len(member.curve),
        curve=member.curve,
        diverged=member.diverged,
    )


PROGRESS_FORMAT = 1
_KEPT = [field.name for field in fields(Member) if field.name != "config"]


@dataclass(frozen=True)
class SavedProgress:
    """`epoch` epochs are behind us; `states` holds parameters and moments by member index, for members not done."""

    epoch: int
    members: list[Member]
    states: dict[int, dict[str, Params]]


def training_digest(problem: Problem, configs: Sequence[HeadConfig], standardiser: Standardiser, source: FeatureSource) -> str:
    """Changes with the problem, the configurations and (through their mean and deviation) the features."""
    feats = [digest_bytes(standardiser.mean.tobytes()), digest_bytes(standardiser.std.tobytes()), source.num_views]
    return digest([PROGRESS_FORMAT, problem.digest(), [config.to_dict() for config in configs], feats])


def save_progress(path: Path, *, digest: str, epoch: int, members: list[Member], states: dict[int, dict[str, Params]]) -> None:
    """Write the state after `epoch` epochs, atomically."""
    kept = [{name: getattr(member, name) for name in _KEPT} for member in members]
    save_tensors(path, {"format": PROGRESS_FORMAT, "digest": digest, "epoch": epoch, "members": kept, "states": states})


def load_progress(path: Path | None, *, digest: str, configs: Sequence[HeadConfig], on_event: OnEvent) -> SavedProgress:
    """The state in `path` if it belongs to this training, else a fresh one."""
    fresh = SavedProgress(0, [Member(index, config) for index, config in enumerate(configs)], {})
    if path is None or not path.exists():
        return fresh
    content = _read(path, on_event=on_event)
    if content is None:
        return fresh
    if content.get("digest") != digest:
        on_event(Note(f"{path.name} belongs to another training (other data, splits or settings): starting anew"))
        return fresh
    members = [Member(config=configs[kept["index"]], **kept) for kept in content["members"]]
    return SavedProgress(content["epoch"], members, content["states"])


def _read(path: Path, *, on_event: OnEvent) -> dict[str, Any] | None:
    try:
        return load_checkpoint(path)
    except DataError as error:
        on_event(Note(f"{path.name} cannot be read ({error.why}): starting anew", "warning"))
        return None


EVAL_ROWS = 1024


@dataclass(eq=False)
class Cohort:
    """Stacks that see the same batches: one seed, one batch size, one view or all; or paths, which look at all rows at once."""

    seed: int
    batch_size: int
    all_views: bool
    stacks: list[Stack]
    paths: list[LinearPath] = field(default_factory=list)

    @property
    def parts(self) -> list[Stack | LinearPath]:
        return [*self.paths, *self.stacks]

    def drop_finished(self) -> None:
        self.stacks = [stack for stack in self.stacks if stack.members]
        self.paths = [path for path in self.paths if path.members]


class HeadTraining:
    """Everything that lives while heads are trained."""

    def __init__(
        self,
        source: FeatureSource,
        problem: Problem,
        task: DeviceTargets,
        standardiser: Standardiser,
        *,
        metric: str,
        members: list[Member],
        states: dict[int, dict[str, Params]],
        profiler: LoopProfiler = NO_PROFILER,
    ) -> None:
        self.source, self.metric, self.members = source, metric, members
        self._profiler = profiler
        self.clock, self._loading = Clock(TRAINING, mark=profiler.mark), Loading()
        self._epoch_seconds: list[dict[str, float]] = []
        self._task = task
        recordable = can_record(task.device) and profiler is NO_PROFILER  # a profiler wants to see the parts of a step
        self._record = partial(record_work, device=task.device) if recordable else None
        scaler, held = Scaler.on(task.device, standardiser), hold_features(source, task.device)
        self._reading: dict[str, Any] = {"scaler": scaler, "held": held}
        self._train, self._val = problem.positions("train"), problem.positions("val")
        self._hashes = hash_ids([problem.sample_ids[position] for position in self._train])
        self._cohorts = self._form_cohorts(states)

    def _form_cohorts(self, states: dict[int, dict[str, Params]]) -> list[Cohort]:
        grouped: dict[tuple[int, int, bool], dict[tuple[str, int], list[Member]]] = {}
        for member in self.members:
            if not member.done and member.config.solver == "adamw":
                config = member.config
                shape = (config.kind, 0 if config.kind == "linear" else config.hidden)
                shapes = grouped.setdefault((config.seed, config.batch_size, config.kind == "attention"), {})
                shapes.setdefault(shape, []).append(member)

        def stack(group: list[Member]) -> Stack:
            return Stack(group, task=self._task, dim=self.source.dim, saved=states, clock=self.clock, record=self._record)

        trained = [Cohort(*key, [stack(group) for group in shapes.values()]) for key, shapes in grouped.items()]
        return [*self._solved_cohort(states), *trained]

    def _solved_cohort(self, states: dict[int, dict[str, Params]]) -> list[Cohort]:
        members = [member for member in self.members if not member.done and member.config.solver == "lbfgs"]
        rows = TrainingRows(self.source, self._train, **self._reading)
        saved = {index: state["params"] for index, state in states.items()}
        paths = [LinearPath(one, rows, task=self._task, saved=saved.get(one.index), clock=self.clock) for one in members]
        return [Cohort(0, len(self._train), False, [], paths)] if paths else []

    @property
    def finished(self) -> bool:
        return all(member.done for member in self.members)

    def timeline(self) -> Timeline:
        """Where the time went so far, in this process."""
        return Timeline.of(self.clock, self._loading, epochs=self._epoch_seconds)

    def states(self) -> dict[int, dict[str, Params]]:
        """What a checkpoint needs of the heads still in training, by index."""
        states: dict[int, dict[str, Params]] = {}
        for cohort in self._cohorts:
            for stack in cohort.parts:
                states |= stack.member_state()
        return states

    def run_epoch(self, epoch: int, *, on_event: OnEvent) -> None:
        """Train every head still in training for one epoch, judge it, and let go of those that are done."""
        with self._loading.here():
            for cohort in self._cohorts:
                num_batches = self._train_epoch(cohort, epoch)
                with self.clock.stage("evaluate"):
                    self._judge(cohort, epoch=epoch, num_batches=num_batches, on_event=on_event)
                cohort.drop_finished()
        self._cohorts = [cohort for cohort in self._cohorts if cohort.parts]
        self._epoch_seconds.append({"epoch": epoch + 1, **self.clock.lap()})

    def _train_epoch(self, cohort: Cohort, epoch: int) -> int:
        for path in cohort.paths:
            path.advance(epoch)
            self._profiler.step(self.clock, self._loading)
        return self._train_stacks(cohort, epoch) if cohort.stacks else 1

    def _train_stacks(self, cohort: Cohort, epoch: int) -> int:
        num_batches = math.ceil(len(self._train) / cohort.batch_size)
        for stack in cohort.stacks:
            stack.begin_epoch(epoch=epoch, num_batches=num_batches)
        order = epoch_order(self._hashes, seed=cohort.seed, epoch=epoch)
        views = None
        if not cohort.all_views:
            views = epoch_views(self._hashes, seed=cohort.seed, epoch=epoch, num_views=self.source.num_views)[order]
        stream = batches(self.source, self._train[order], views=views, batch_size=cohort.batch_size, **self._reading)
        for number, batch in enumerate(self.clock.each("wait", stream)):
            for stack in cohort.stacks:
                stack.train_batch(batch.feats, batch.where, epoch=epoch, batch=number, num_batches=num_batches)
            self._profiler.step(self.clock, self._loading)
        return num_batches

    def _judge(self, cohort: Cohort, *, epoch: int, num_batches: int, on_event: OnEvent) -> None:
        for stack, scores in zip(cohort.parts, self._validate(cohort), strict=True):
            self._take_stock(stack, scores, epoch=epoch, num_batches=num_batches, on_event=on_event)
            stack.shrink()

    def _validate(self, cohort: Cohort) -> list[list[ValScores]] | list[None]:
        if self.metric == "none":
            return [None] * len(cohort.parts)
        tallies = [start_val(self._task, self._val, num_heads=len(stack.members), metric=self.metric) for stack in cohort.parts]
        views = None if cohort.all_views else 0
        stream = batches(self.source, self._val, views=views, batch_size=EVAL_ROWS, **self._reading)
        for batch in stream:
            targets = self._task.targets[batch.where]
            for stack, tally in zip(cohort.parts, tallies, strict=True):
                tally.add(stack.outputs(batch.feats), targets)
        return [tally.finish() for tally in tallies]

    def _take_stock(
        self, stack: Stack | LinearPath, scores: list[ValScores] | None, *, epoch: int, num_batches: int, on_event: OnEvent
    ) -> None:
        """Extend the curves, keep what is best so far, and mark the members that are done."""
        losses = stack.epoch_losses(len(self._train))
        for place, (member, loss) in enumerate(zip(stack.members, losses, strict=True)):
            config, score = member.config, scores[place] if scores else None
            if not math.isfinite(loss) or (score and not math.isfinite(score.loss)):
                member.done = member.diverged = True
                on_event(Note(f"configuration {member.index + 1} diverged in epoch {epoch + 1} at lr {config.lr:g}", "warning"))
                continue
            entry = {"epoch": epoch + 1, "train_loss": loss, **stack.pace(member, epoch=epoch, num_batches=num_batches)}
            member.curve.append({**entry, **(score.values if score else {})})
            if score is None or member.improves(score):
                member.best_epoch = epoch + 1
                member.best_metric, member.best_loss = (score.metric, score.loss) if score else (None, None)
                member.best_params = stack.member_params(place) if score or epoch + 1 == config.epochs else None
            stale = config.patience > 0 and epoch + 1 - member.best_epoch >= config.patience
            member.done = stale or epoch + 1 >= config.epochs
