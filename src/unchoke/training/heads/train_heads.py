"""Training heads: every configuration by itself, epoch by epoch, resumable, the best kept.

In: a feature source, a problem, configurations. Out: a `TrainResult`, and `last.pt` on the way. The epochs of a solved head
are strengths of its penalty. Progress stands in `last.pt`, tied to exactly what is trained: a file of another problem, other
configurations or other features is put aside with a note. Nothing here depends on the clock except when a checkpoint is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.clock import NO_PROFILER, Clock, Loading, LoopProfiler
from unchoke.core.errors import DataError, Interrupted, UsageError, list_some
from unchoke.core.events import Chosen, Note, OnEvent, Progress, ignore
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.core.mixing import hash_ids
from unchoke.core.timeline import TRAINING, Timeline
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.machine.backend import device_free_bytes, is_cpu
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import ArraySource, FeatureSource, Problem, check_problem, fit_standardiser
from unchoke.training.heads.heads import HeadConfig, Params, TrainedHead
from unchoke.training.heads.linear_path import LinearPath
from unchoke.training.heads.stepped import SteppedHead
from unchoke.training.sampling import Rows, Scaler
from unchoke.training.scoring.figures import as_pairs, log_losses, scaled_apart
from unchoke.training.scoring.selection import DeviceTargets, ValScores, as_figure, choose_metric, judging_weights, start_val

PROGRESS_FORMAT = 2
_EVAL_ROWS, _WARM_DIM, _GPU_SHARE = 1024, 1280, 8


@dataclass(eq=False)
class Member:
    """One configuration's progress: its curve, its best so far, and where it stands. Epochs count from 1."""

    index: int
    config: HeadConfig
    curve: list[dict[str, float]] = field(default_factory=list)
    best_metric: float | None = None
    best_loss: float | None = None
    best_epoch: int = 0
    best_params: Params | None = None
    done: bool = False
    diverged: bool = False

    def judge(self, epoch: int, loss: float, score: ValScores | None, head: LinearPath | SteppedHead) -> None:
        """Extend the curve, keep the best (a higher metric, or the same at a lower loss), and see whether it is done."""
        config = self.config
        if not math.isfinite(loss) or (score and not math.isfinite(score.loss)):
            self.done = self.diverged = True
            return
        self.curve.append({"epoch": epoch + 1, "train_loss": loss, **head.pace(epoch), **(score.values if score else {})})
        best = None if self.best_metric is None or self.best_loss is None else (self.best_metric, -self.best_loss)
        if score is None or best is None or (score.metric, -score.loss) > best:
            self.best_epoch = epoch + 1
            self.best_metric, self.best_loss = (score.metric, score.loss) if score else (None, None)
            if score or epoch + 1 == config.epochs:
                self.best_params = {name: tensor.detach().cpu().clone() for name, tensor in head.params.items()}
        self.done = epoch + 1 >= config.epochs or 0 < config.patience <= epoch + 1 - self.best_epoch


_KEPT = [one.name for one in fields(Member) if one.name != "config"]


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
    begin: Params | None = None,
) -> TrainResult:
    """Train every configuration and pick the best by the val split.

    Run again with the same arguments after a kill, it goes on from `checkpoint` and ends with the same bytes. `stop` is
    asked after each epoch; when it says yes, the state is saved and `Interrupted` raised. Selection: the log loss of calibrated
    probabilities, rare classes counting more where classes are uneven, or mean R²; ties go to the earlier configuration, and a
    solved head is given up only for one that is better by more than chance.
    Solved heads start from `begin` where it is given.
    """
    check_problem(problem, source)
    if problem.kind != "classification":
        _refuse_class_settings(configs)
    metric = choose_metric(problem)
    on_event(Chosen(metric))
    train, val = np.sort(problem.positions("train")), problem.positions("val")
    standardiser = fit_standardiser(source, train)
    feats_digest = [digest_bytes(standardiser.mean.tobytes()), digest_bytes(standardiser.std.tobytes()), source.num_views]
    key = digest([PROGRESS_FORMAT, problem.digest(), [config.to_dict() for config in configs], feats_digest])
    first, members, states = _load_progress(checkpoint, key, configs, on_event)
    task, clock, loading = DeviceTargets.of(problem, device=device), Clock(TRAINING, mark=profiler.mark), Loading()
    scaler = Scaler.on(device, standardiser)
    rows, val_rows = Rows(source, train, scaler), Rows(source, val, scaler)
    if not is_cpu(device):
        for one in (rows, val_rows):
            one.hold(device_free_bytes(device) / _GPU_SHARE)
    hashes = hash_ids([problem.sample_ids[position] for position in train])

    def opened(member: Member) -> LinearPath | SteppedHead:
        state = states.get(member.index)
        if member.config.solver == "lbfgs":
            return LinearPath(rows, task, member.config, begin=state["params"] if state else begin)
        watched: dict[str, Any] = {"clock": clock, "loading": loading, "profiler": profiler}
        return SteppedHead(rows, task, member.config, hashes, saved=state, **watched)

    def scored(head: LinearPath | SteppedHead, config: HeadConfig) -> ValScores:
        tally = start_val(task, val, metric=metric.value)
        views = None if config.kind == "attention" else 0
        for feats, where in val_rows.batches(np.arange(len(val)), views=views, batch_size=_EVAL_ROWS):
            tally.add(head.outputs(feats), task.targets[where])
        return tally.finish()

    def save(epoch: int, heads: dict[int, LinearPath | SteppedHead]) -> None:
        if checkpoint is None:
            return
        with clock.stage("checkpoint"):
            kept = [{name: getattr(member, name) for name in _KEPT} for member in members]
            states = {index: head.state() for index, head in heads.items()}
            save_tensors(
                checkpoint, {"format": PROGRESS_FORMAT, "digest": key, "epoch": epoch, "members": kept, "states": states}
            )

    heads = {member.index: opened(member) for member in members if not member.done}
    num_epochs, last_saved_s = max(config.epochs for config in configs), time.monotonic()
    epoch_seconds: list[dict[str, float]] = []
    with profiler.on(device), loading.here():
        for epoch in range(first, num_epochs if heads else first):
            for member in [one for one in members if not one.done]:
                head = heads[member.index]
                if isinstance(head, LinearPath):
                    with clock.stage("optimizer"):
                        loss = head.run_epoch(epoch)
                    profiler.step(clock, loading)
                else:
                    loss = head.run_epoch(epoch)
                with clock.stage("evaluate"), torch.no_grad():
                    member.judge(epoch, loss, None if metric.value == "none" else scored(head, member.config), head)
                if member.diverged:
                    text = f"configuration {member.index + 1} diverged in epoch {epoch + 1} at lr {member.config.lr:g}"
                    on_event(Note(text, "warning"))
                if member.done:
                    del heads[member.index]
            epoch_seconds.append({"epoch": epoch + 1, **clock.lap()})
            done = epoch + 1 if heads else num_epochs
            rate = (epoch + 1 - first) / max(clock.wall_s, 1e-9)
            best = max((member.best_metric for member in members if member.best_metric is not None), default=None)
            extra = {
                "configs_active": len(heads),
                "waiting_for_data_share": clock.share("wait"),
                f"best_val_{metric.value}": None if best is None else as_figure(metric.value, best),
            }
            on_event(Progress("train", done, num_epochs, "epochs", rate, (num_epochs - done) / rate, extra=extra))
            if not heads:
                break
            stopping = stop is not None and stop()
            if stopping or time.monotonic() - last_saved_s >= checkpoint_every_s:
                save(epoch + 1, heads)
                last_saved_s = time.monotonic()
            if stopping:
                kept = "the state is saved" if checkpoint else "no checkpoint was asked for, so nothing is kept"
                raise Interrupted(
                    f"training stopped after epoch {epoch + 1} of {num_epochs}",
                    code="interrupted",
                    why=f"stopped on request; {kept}",
                    try_="run the same command again",
                )

    def built(member: Member) -> TrainedHead:
        assert member.best_params is not None, "it has finished"
        reached = member.curve[member.best_epoch - 1]
        return TrainedHead(
            config=member.config,
            params=member.best_params,
            standardiser=standardiser,
            kind=problem.kind,
            names=problem.names,
            target_mean=task.scale.mean,
            target_std=task.scale.std,
            best_epoch=member.best_epoch,
            val={name.removeprefix("val_"): value for name, value in reached.items() if name.startswith("val_")},
        )

    def losses(member: Member) -> NDArray[np.float64]:
        outputs, targets = built(member).predict(source, val, device=device), problem.targets[val]
        if problem.kind == "regression":
            return np.asarray((((outputs - targets) / task.scale.std) ** 2).mean(axis=1), np.float64)
        if problem.kind == MULTI_LABEL:
            pairs, marks = as_pairs(outputs), targets.reshape(-1).astype(np.int64)
            each = log_losses(scaled_apart(pairs, marks), marks).reshape(targets.shape)
            return np.asarray(each.mean(axis=1), np.float64)
        counted: NDArray[np.float64] = judging_weights(task).double().numpy()[targets]
        return log_losses(scaled_apart(outputs, targets), targets) * counted

    winner = _winner(members, losses)
    if first < num_epochs:
        for member in members:
            member.best_params = member.best_params if member is winner else None
        save(num_epochs, {})
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
    timeline = Timeline.of(clock, loading, epochs=epoch_seconds)
    return TrainResult(built(winner), winner.index, results, metric.value, first, timeline)


def warm_heads(device: torch.device, configs: Sequence[HeadConfig]) -> None:
    """Train `configs` for an epoch on zeros, so that a GPU has loaded their kernels by the time there are features."""
    rows = 2 * max(config.batch_size for config in configs)
    numbers = np.arange(rows, dtype=np.int64)
    splits = {"train": numbers[: rows - 2], "val": numbers[rows - 2 :]}
    problem = Problem("classification", ("a", "b"), numbers % 2, splits, [str(number) for number in numbers])
    source = ArraySource(np.zeros((rows, _WARM_DIM), np.float16))
    train_heads(source, problem, [replace(config, epochs=1) for config in configs], device=device, on_event=ignore)


def _refuse_class_settings(configs: Sequence[HeadConfig]) -> None:
    wrong = [
        f"configuration {number}"
        for number, config in enumerate(configs, start=1)
        if config.label_smoothing or config.class_weights != "none"
    ]
    if wrong:
        raise UsageError(
            f"label smoothing or class weights asked for, and no classes are learnt: {list_some(wrong)}",
            code="option-not-for-values",
            why="both concern classes of which a photo has one",
            try_="leave both out",
        )


def _winner(members: list[Member], losses: Callable[[Member], NDArray[np.float64]]) -> Member:
    """The best finished member; without a val split the first one that did not diverge.

    A solved linear head gives way only to one whose losses on val are lower by more than their standard error: it answers
    better on photos that no one has seen (docs/claims.md).
    """
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
    ranked = sorted(scored, key=lambda member: (member.best_metric, -(member.best_loss or 0.0), -member.index), reverse=True)
    solved = next((member for member in ranked if member.config.solver == "lbfgs"), None)
    if solved is None or ranked[0] is solved:
        return ranked[0]
    gained = losses(solved) - losses(ranked[0])
    return ranked[0] if gained.mean() > gained.std() / math.sqrt(len(gained)) else solved


def _load_progress(
    path: Path | None, key: str, configs: Sequence[HeadConfig], on_event: OnEvent
) -> tuple[int, list[Member], dict[int, dict[str, Any]]]:
    """How many epochs are done, and their state: those in `path` if it belongs to this training, else none."""
    fresh = 0, [Member(index, config) for index, config in enumerate(configs)], dict[int, dict[str, Any]]()
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
