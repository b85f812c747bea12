"""Training heads: all configurations at once, epoch by epoch, resumable, the best kept.

In: a feature source, a problem, configurations. Out: a `TrainResult`, and `last.pt` on the way. Configurations that share seed
and batch size are a cohort and see the same batches (one read, one standardisation); those of one shape within it are one stack.
Heads that are solved are a cohort of their own, whose epochs are strengths of the penalty. Features are read chunk by chunk and
never held all at once. Progress stands in `last.pt`, tied to exactly what is trained: a file of another problem, other
configurations or other features is put aside with a note. Nothing here depends on the clock except when a checkpoint is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
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
from unchoke.training.heads.heads import HeadConfig, Params, TrainedHead
from unchoke.training.heads.linear_path import LinearPath, TrainingRows
from unchoke.training.heads.stack import Member, Stack
from unchoke.training.sampling import Scaler, batches, epoch_order, epoch_views, hold_features
from unchoke.training.scoring.selection import DeviceTargets, ValScores, as_figure, choose_metric, start_val

PROGRESS_FORMAT = 1
_EVAL_ROWS = 1024
_WARM_DIM = 1280
_KEPT = [field.name for field in fields(Member) if field.name != "config"]
States = dict[int, dict[str, Params]]
"""Parameters and moments by member index, for members not done."""


@dataclass(frozen=True)
class ConfigResult:
    """How one configuration did; `val_metric` and `val_loss` are None without a val split, or when training diverged."""

    config: HeadConfig
    val_metric: float | None
    val_loss: float | None
    best_epoch: int
    num_epochs: int
    curve: list[dict[str, float]]
    diverged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Without the curve: one line of a table."""
        return {**{name: value for name, value in vars(self).items() if name != "curve"}, "config": self.config.to_dict()}


@dataclass(frozen=True, eq=False)
class TrainResult:
    """The best head, every configuration's outcome (in the order given), and what they were compared by."""

    best: TrainedHead
    best_index: int
    all: list[ConfigResult]
    metric: str
    resumed_epoch: int
    timeline: Timeline

    @property
    def history(self) -> list[dict[str, float]]:
        """The learning curve of the best configuration, one entry per epoch."""
        return self.all[self.best_index].curve


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
    _refuse_class_settings(configs, problem)
    metric = choose_metric(problem)
    on_event(Chosen(metric))
    standardiser = fit_standardiser(source, problem.positions("train"))
    key = _training_digest(problem, configs, standardiser, source)
    first, members, states = _load_progress(checkpoint, key, configs, on_event)
    task = DeviceTargets.of(problem, device=device)
    training = HeadTraining(source, problem, task, standardiser, metric.value, members, states, profiler)

    def save(file: Path, epoch: int, states: States) -> None:
        with training.clock.stage("checkpoint"):
            kept = [{name: getattr(member, name) for name in _KEPT} for member in members]
            save_tensors(file, {"format": PROGRESS_FORMAT, "digest": key, "epoch": epoch, "members": kept, "states": states})

    last_saved_s = time.monotonic()
    num_epochs = max(config.epochs for config in configs)
    with profiler.on(device):
        for epoch in range(first, num_epochs):
            if training.finished:
                break
            training.run_epoch(epoch, on_event=on_event)
            on_event(_progress(training, epoch, num_epochs=num_epochs, first=first))
            stopping = stop is not None and stop() and not training.finished
            if checkpoint and not training.finished and (stopping or time.monotonic() - last_saved_s >= checkpoint_every_s):
                save(checkpoint, epoch + 1, training.states())
                last_saved_s = time.monotonic()
            if stopping:
                kept = "the state is saved" if checkpoint else "no checkpoint was asked for, so nothing is kept"
                raise Interrupted(
                    f"training stopped after epoch {epoch + 1} of {num_epochs}",
                    code="interrupted",
                    why=f"stopped on request; {kept}",
                    try_="run the same command again",
                )
    winner = _winner(members)
    if checkpoint and first < num_epochs:
        for member in members:
            member.best_params = member.best_params if member is winner else None
        save(checkpoint, num_epochs, {})
    reached = winner.curve[winner.best_epoch - 1]
    assert winner.best_params is not None
    best = TrainedHead(
        config=winner.config,
        params=winner.best_params,
        standardiser=standardiser,
        kind=problem.kind,
        names=problem.names,
        target_mean=task.scale.mean,
        target_std=task.scale.std,
        best_epoch=winner.best_epoch,
        val={name.removeprefix("val_"): value for name, value in reached.items() if name.startswith("val_")},
    )
    results = [
        ConfigResult(
            config=member.config,
            val_metric=None if member.best_metric is None else as_figure(metric.value, member.best_metric),
            val_loss=member.best_loss,
            best_epoch=member.best_epoch,
            num_epochs=len(member.curve),
            curve=member.curve,
            diverged=member.diverged,
        )
        for member in members
    ]
    return TrainResult(best, winner.index, results, metric.value, first, training.timeline())


def warm_heads(device: torch.device, configs: Sequence[HeadConfig]) -> None:
    """Train `configs` for an epoch on zeros, so that a GPU has loaded their kernels by the time there are features."""
    rows = 2 * max(config.batch_size for config in configs)
    numbers = np.arange(rows, dtype=np.int64)
    splits = {"train": numbers[: rows - 2], "val": numbers[rows - 2 :]}
    problem = Problem("classification", ("a", "b"), numbers % 2, splits, [str(number) for number in numbers])
    source = ArraySource(np.zeros((rows, _WARM_DIM), np.float16))
    train_heads(source, problem, [replace(config, epochs=1) for config in configs], device=device, on_event=ignore)


def _refuse_class_settings(configs: Sequence[HeadConfig], problem: Problem) -> None:
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


def _progress(training: HeadTraining, epoch: int, *, num_epochs: int, first: int) -> Progress:
    clock, members = training.clock, training.members
    rate = (epoch + 1 - first) / max(clock.wall_s, 1e-9)
    best = max((member.best_metric for member in members if member.best_metric is not None), default=None)
    extra = {
        "configs_active": sum(not member.done for member in members),
        "waiting_for_data_share": clock.share("wait"),
        f"best_val_{training.metric}": None if best is None else as_figure(training.metric, best),
    }
    done = num_epochs if training.finished else epoch + 1
    return Progress("train", done, num_epochs, "epochs", rate, (num_epochs - done) / rate, extra=extra)


def _training_digest(problem: Problem, configs: Sequence[HeadConfig], standardiser: Standardiser, source: FeatureSource) -> str:
    """Changes with the problem, the configurations and (through their mean and deviation) the features."""
    feats = [digest_bytes(standardiser.mean.tobytes()), digest_bytes(standardiser.std.tobytes()), source.num_views]
    return digest([PROGRESS_FORMAT, problem.digest(), [config.to_dict() for config in configs], feats])


def _load_progress(
    path: Path | None, key: str, configs: Sequence[HeadConfig], on_event: OnEvent
) -> tuple[int, list[Member], States]:
    """How many epochs are done, and their state: those in `path` if it belongs to this training, else none."""
    fresh: tuple[int, list[Member], States] = 0, [Member(index, config) for index, config in enumerate(configs)], {}
    if path is None or not path.exists():
        return fresh
    try:
        content = load_checkpoint(path)
    except DataError as error:
        on_event(Note(f"{path.name} cannot be read ({error.why}): starting again", "warning"))
        return fresh
    if content.get("digest") != key:
        on_event(Note(f"{path.name} belongs to another training (other data, splits or settings): starting again"))
        return fresh
    members = [Member(config=configs[kept["index"]], **kept) for kept in content["members"]]
    return content["epoch"], members, content["states"]


@dataclass(eq=False)
class Cohort:
    """Heads that see the same batches: one seed, one batch size, one view or all; or, `solved`, all rows at once."""

    seed: int
    batch_size: int
    all_views: bool
    parts: list[Stack | LinearPath]
    solved: bool = False


class HeadTraining:
    """Everything that lives while heads are trained: one epoch of all heads at a time, judged on val, and thinned out."""

    def __init__(
        self,
        source: FeatureSource,
        problem: Problem,
        task: DeviceTargets,
        standardiser: Standardiser,
        metric: str,
        members: list[Member],
        states: States,
        profiler: LoopProfiler,
    ) -> None:
        self.metric, self.members = metric, members
        self._source, self._task, self._profiler = source, task, profiler
        self.clock, self._loading = Clock(TRAINING, mark=profiler.mark), Loading()
        self._epoch_seconds: list[dict[str, float]] = []
        scaler, held = Scaler.on(task.device, standardiser), hold_features(source, task.device)
        self._reading: dict[str, Any] = {"scaler": scaler, "held": held}
        self._train, self._val = problem.positions("train"), problem.positions("val")
        self._hashes = hash_ids([problem.sample_ids[position] for position in self._train])
        self._cohorts = self._form_cohorts(states)

    def _form_cohorts(self, states: States) -> list[Cohort]:
        rows = TrainingRows(self._source, self._train, **self._reading)
        solved: list[Stack | LinearPath] = []
        grouped: dict[tuple[int, int, bool], dict[tuple[str, int], list[Member]]] = {}
        for member in self.members:
            config = member.config
            if member.done:
                continue
            if config.solver == "lbfgs":
                saved = states[member.index]["params"] if member.index in states else None
                solved.append(LinearPath(member, rows, task=self._task, saved=saved, clock=self.clock))
            else:
                shape = (config.kind, 0 if config.kind == "linear" else config.hidden)
                shapes = grouped.setdefault((config.seed, config.batch_size, config.kind == "attention"), {})
                shapes.setdefault(shape, []).append(member)
        # a profiler wants to see the parts of a step
        recordable = can_record(self._task.device) and self._profiler is NO_PROFILER
        record = partial(record_work, device=self._task.device) if recordable else None

        def stack(group: list[Member]) -> Stack:
            return Stack(group, task=self._task, dim=self._source.dim, saved=states, clock=self.clock, record=record)

        trained = [Cohort(*key, [stack(group) for group in shapes.values()]) for key, shapes in grouped.items()]
        return [*([Cohort(0, len(self._train), False, solved, solved=True)] if solved else []), *trained]

    @property
    def finished(self) -> bool:
        return all(member.done for member in self.members)

    def timeline(self) -> Timeline:
        """Where the time went so far, in this process."""
        return Timeline.of(self.clock, self._loading, epochs=self._epoch_seconds)

    def states(self) -> States:
        """What a checkpoint needs of the heads still in training, by index."""
        return {index: state for cohort in self._cohorts for part in cohort.parts for index, state in part.member_state().items()}

    def run_epoch(self, epoch: int, *, on_event: OnEvent) -> None:
        """Train every head still in training for one epoch, judge it, and let go of those that are done."""
        with self._loading.here():
            for cohort in self._cohorts:
                num_batches = math.ceil(len(self._train) / cohort.batch_size)
                self._train_epoch(cohort, epoch, num_batches)
                with self.clock.stage("evaluate"):
                    for part, scores in zip(cohort.parts, self._validate(cohort), strict=True):
                        self._judge(part, scores, epoch=epoch, num_batches=num_batches, on_event=on_event)
                        part.shrink()
                cohort.parts = [part for part in cohort.parts if part.members]
        self._cohorts = [cohort for cohort in self._cohorts if cohort.parts]
        self._epoch_seconds.append({"epoch": epoch + 1, **self.clock.lap()})

    def _train_epoch(self, cohort: Cohort, epoch: int, num_batches: int) -> None:
        stacks = []
        for part in cohort.parts:
            if isinstance(part, LinearPath):
                part.advance(epoch)
                self._profiler.step(self.clock, self._loading)
            else:
                part.begin_epoch(epoch=epoch, num_batches=num_batches)
                stacks.append(part)
        if cohort.solved:
            return
        order, views = epoch_order(self._hashes, seed=cohort.seed, epoch=epoch), None
        if not cohort.all_views:
            views = epoch_views(self._hashes, seed=cohort.seed, epoch=epoch, num_views=self._source.num_views)[order]
        stream = batches(self._source, self._train[order], views=views, batch_size=cohort.batch_size, **self._reading)
        for number, batch in enumerate(self.clock.each("wait", stream)):
            for stack in stacks:
                stack.train_batch(batch.feats, batch.where, epoch=epoch, batch=number, num_batches=num_batches)
            self._profiler.step(self.clock, self._loading)

    def _validate(self, cohort: Cohort) -> list[list[ValScores]] | list[None]:
        if self.metric == "none":
            return [None] * len(cohort.parts)
        tallies = [start_val(self._task, self._val, num_heads=len(part.members), metric=self.metric) for part in cohort.parts]
        views = None if cohort.all_views else 0
        for batch in batches(self._source, self._val, views=views, batch_size=_EVAL_ROWS, **self._reading):
            targets = self._task.targets[batch.where]
            for part, tally in zip(cohort.parts, tallies, strict=True):
                tally.add(part.outputs(batch.feats), targets)
        return [tally.finish() for tally in tallies]

    def _judge(
        self, part: Stack | LinearPath, scores: list[ValScores] | None, *, epoch: int, num_batches: int, on_event: OnEvent
    ) -> None:
        """Extend the curves, keep what is best so far, and mark the members that are done."""
        losses = part.epoch_losses(len(self._train))
        for place, (member, loss) in enumerate(zip(part.members, losses, strict=True)):
            config, score = member.config, scores[place] if scores else None
            if not math.isfinite(loss) or (score and not math.isfinite(score.loss)):
                member.done = member.diverged = True
                on_event(Note(f"configuration {member.index + 1} diverged in epoch {epoch + 1} at lr {config.lr:g}", "warning"))
                continue
            entry = {"epoch": epoch + 1, "train_loss": loss, **part.pace(member, epoch=epoch, num_batches=num_batches)}
            member.curve.append({**entry, **(score.values if score else {})})
            if score is None or member.improves(score):
                member.best_epoch = epoch + 1
                member.best_metric, member.best_loss = (score.metric, score.loss) if score else (None, None)
                member.best_params = part.member_params(place) if score or epoch + 1 == config.epochs else None
            stale = config.patience > 0 and epoch + 1 - member.best_epoch >= config.patience
            member.done = stale or epoch + 1 >= config.epochs
