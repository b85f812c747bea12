"""One epoch of all heads: every stack trained on the same batches, judged on val, and thinned out.

In: members (fresh or resumed). Out: the same members, an epoch further. Configurations that share seed and batch size
are a cohort and see the same batches: one read, one standardisation. Those of one shape within it are one stack. Heads that are
solved are a cohort of their own, whose epochs are strengths of the penalty. It does not save, pick or stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from unchoke.core.clock import NO_PROFILER, Clock, Loading, LoopProfiler
from unchoke.core.events import Note, OnEvent
from unchoke.core.mixing import hash_ids
from unchoke.core.timeline import TRAINING, Timeline
from unchoke.machine.backend import can_record, record_work
from unchoke.training.data import FeatureSource, Problem, Standardiser
from unchoke.training.device_targets import DeviceTargets
from unchoke.training.heads.heads import Params
from unchoke.training.heads.linear_path import LinearPath, TrainingRows
from unchoke.training.heads.stack import Member, Stack
from unchoke.training.sampling import Scaler, batches, epoch_order, epoch_views, hold_features
from unchoke.training.scoring.selection import ValScores, start_val

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
