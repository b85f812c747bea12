"""Training through a network: the loop, top to bottom.

In: a network, a source of inputs (pixels or cached activations), an objective and a `LoopConfig`. Out: a `LoopResult`, with
checkpoints on the way. An epoch is a list of global batches in an order that follows from (seed, epoch, sample id). Each step is
computed by `step.py`, or repeated from a CUDA graph (`cuda_graph.py`); after each epoch the val split is judged, the best
weights are kept, and training stops early where nothing got better for long. Nothing depends on a random state from before the
step, so a killed run that is started again ends with the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.clock import Clock, Loading
from unchoke.core.errors import DataError, Interrupted, MachineError
from unchoke.core.events import Note, Progress
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.core.mixing import hash_ids
from unchoke.core.timeline import TRAINING, Timeline
from unchoke.features.encoders import digest_state
from unchoke.machine.backend import empty_cache, has_own_memory, held_memory_bytes, is_tight
from unchoke.training.checkpoints import Checkpoints, TrainingProgress
from unchoke.training.data import Positions, Problem
from unchoke.training.network.cuda_graph import CudaGraph, choose_graph
from unchoke.training.network.feeding import Batches, HostBatch, MixShares, Prefetch, feed
from unchoke.training.network.gpu_rows import GpuRows, place_rows
from unchoke.training.network.loop_config import USUAL_LR, LoopConfig, LoopContext, LoopResult
from unchoke.training.network.objective import LoopObjective
from unchoke.training.network.sources import InputSource
from unchoke.training.network.step import Stepper, training_mode
from unchoke.training.network.tiled_network import TrainableNetwork
from unchoke.training.scoring.selection import ValScores, as_figure

_TELL_EVERY_S = 0.5
_SAVING_SHARE = 0.1
_EVAL_PARTS = 8
"""Evaluation is read in at least so many parts, so that one is read while another is computed."""


def finetune(
    network: TrainableNetwork,
    source: InputSource,
    problem: Problem,
    objective: LoopObjective,
    config: LoopConfig,
    *,
    metric: str,
    where: LoopContext,
    inputs: NDArray[np.float32] | None = None,
) -> LoopResult:
    """Train `network`; the weights returned are those of the epoch that was best on val (of the last one without a val split)."""
    training = NetworkTraining(network, source, problem, objective, config, metric=metric, where=where, inputs=inputs)
    training.restore()
    resumed_step = training.global_step
    # steps set torch's random state for networks that drop at random
    with torch.random.fork_rng(devices=[]), where.profiler.on(where.device):
        try:
            if not training.standing.finished and has_own_memory(where.device):
                training.use_gpu_memory()
            while not training.standing.finished:
                training.train_epoch()
                scores = training.judge_val()
                training.end_epoch(scores)
        finally:
            if training.begun is not None:  # an epoch whose reading has begun and that will not be run
                training.begun.close()
    return training.result(resumed_step)


class NetworkTraining:
    """Everything that changes while a network trains."""

    def __init__(
        self,
        network: TrainableNetwork,
        source: InputSource,
        problem: Problem,
        objective: LoopObjective,
        config: LoopConfig,
        *,
        metric: str,
        where: LoopContext,
        inputs: NDArray[np.float32] | None,
    ) -> None:
        self.config, self.where, self.metric = config, where, metric
        self.source, self.problem, self.objective = source, problem, objective
        self.train, self.val = problem.positions("train"), problem.positions("val")
        hashes = hash_ids([problem.sample_ids[position] for position in self.train])
        self.batches = Batches(self.train, hashes, config.batch_size, config.mixup, config.seed, where.ranks)
        self.clock = Clock(TRAINING, mark=where.profiler.mark)
        self.loading = Loading()
        self.epoch_seconds: list[dict[str, float]] = []
        self.stepper = Stepper(
            network, objective, config, where, inputs=inputs, steps_per_epoch=self.batches.per_epoch, clock=self.clock
        )
        self.network = self.stepper.network
        self.standing = TrainingProgress()
        # changes with anything the resulting weights depend on, the weights it starts from included
        extra = "" if inputs is None else digest_bytes(inputs.tobytes())
        about = [config.identity(), problem.digest(), metric, objective.identity(), extra]
        self.identity = digest([*about, digest_state(self.network), list(source.sample_shape)])
        folder = where.folder if where.ranks.leads else None
        self.checkpoints = Checkpoints(folder, digest=self.identity, on_event=where.on_event)
        self.saved_s = self.told_s = self.started_s = time.monotonic()
        self.num_run = 0
        self.begun: Prefetch | None = None
        self.unread_losses: list[torch.Tensor] = []
        self.graph: CudaGraph | None = None
        self.beside_bytes = 0

    @property
    def global_step(self) -> int:
        return self.standing.epoch * self.batches.per_epoch + self.standing.step

    def restore(self) -> None:
        """Go on from the checkpoint, if there is one of this training; every process hears the leader's."""
        identities = self.where.ranks.gather(self.identity)
        # gradients are summed over copies of one network: elsewhere, too, it must have begun with the same bytes
        if other := [rank for rank, identity in enumerate(identities) if identity != identities[0]]:
            raise MachineError(
                f"process {other[0]} of {len(identities)} would train another network than process 0",
                code="processes-differ",
                why="the weights it starts from, or its samples, have another digest there",
                try_="the same versions of torch and timm, and the same weights, on every machine",
            )
        self.standing, pieces = self.where.ranks.gather(self.checkpoints.load())[0]
        if pieces is not None:
            self.stepper.load_pieces(pieces)

    def use_gpu_memory(self) -> None:
        """Put rows on the GPU that fit there, and find out how a step is best computed."""
        where, standing = self.where, self.standing
        held_before = held_memory_bytes(where.device) or 0
        training_mode(self.network, self.config)
        self.source = place_rows(self.source, self.problem, self.config, where, self.clock, self.loading)
        with self.clock.stage("record"):
            self.graph = choose_graph(
                self.stepper, self.source, self.batches, where, identity=self.identity, epoch=standing.epoch, first=standing.step
            )
        self.network.zero_grad(set_to_none=True)
        empty_cache(where.device)
        self.beside_bytes = max(0, (held_memory_bytes(where.device) or 0) - held_before)
        self.started_s = time.monotonic()

    # -- one epoch ---------------------------------------------------------------------------------------------------------------

    def train_epoch(self) -> None:
        """The steps of the epoch we stand in that are left, with a checkpoint now and then."""
        epoch, first = self.standing.epoch, self.standing.step
        batches, mixing = self.batches.plan(epoch, first)
        training_mode(self.network, self.config)
        if self.graph is not None and first < self.graph.num_steps:
            self.graph.load(self.graph.table(epoch, first))
        fed_batches = self.clock.each("wait", self.begun or self.feed_epoch(epoch, first))
        self.begun = None
        for batch, kept, fed in zip(batches, mixing, fed_batches, strict=True):
            stopping = self.step(fed, len(batch), kept)
            self.where.profiler.step(self.clock, self.loading)
            self.tell()
            if stopping:
                fed_batches.close()
                self.save()
                saved = "the state is saved" if self.where.folder else "no checkpoint was asked for, so nothing is kept"
                raise Interrupted(
                    f"training stopped in epoch {epoch + 1} of {self.config.epochs}, after step {self.standing.step}",
                    code="interrupted",
                    why=f"stopped on request; {saved}",
                    try_="run the same command again",
                )
            if time.monotonic() - self.saved_s >= self.where.checkpoint_every_s:
                self.save()
        self.refuse_diverged()

    def step(self, fed: HostBatch | None, num_global: int, kept: MixShares | None) -> bool:
        """One optimizer step over a global batch, of which we were fed our share. Whether to stop, as all processes agree."""
        stopping = self.where.stop()
        if self.graph is not None and self.graph.takes(num_global):
            with self.clock.stage("replay"):
                self.graph.step(fed)
            self.stepper.set_lr(self.global_step)
        else:
            assert fed is not None
            told = self.stepper.step(fed, num_global, kept, self.global_step, stopping=stopping)
            self.unread_losses.append(told[0])
        self.standing.num_seen += num_global
        self.standing.step += 1
        self.num_run += num_global
        if self.where.ranks.world == 1:
            return stopping
        self.read_losses()  # the device is waited for anyway, and all processes learn in the same step that training diverged
        return bool(told[1])

    def judge_val(self) -> ValScores | None:
        """How it stands on the val split, with the averaged weights where there are any; the next epoch is read meanwhile."""
        epoch = self.standing.epoch + 1
        if self.where.workers and epoch < self.config.epochs and not isinstance(self.source, GpuRows):
            self.begun = Prefetch(self.feed_epoch(epoch, 0))
        with self.clock.stage("evaluate"):
            if len(self.val) == 0:
                return None
            tally = self.objective.start_val(self.val, self.metric)
            tally.add(self.predict(self.val), self.val)
            scores = tally.finish()
        if not np.isfinite(scores.loss):
            raise self.diverged("the loss on the val split became infinite or not a number")
        return scores

    def end_epoch(self, scores: ValScores | None) -> None:
        """Keep the weights if they are the best so far, write a checkpoint, and stop early where nothing got better for long."""
        standing, config = self.standing, self.config
        # not where epochs are so short that writing takes most of the time
        may_save = self.clock.seconds("checkpoint") <= _SAVING_SHARE * (time.monotonic() - self.started_s)
        lr = float(max(group["lr"] for group in self.stepper.optimizer.param_groups))
        row = {"epoch": standing.epoch + 1, "train_loss": standing.loss_sum / max(1, standing.num_seen), "lr": lr}
        if scores is None or standing.is_better(scores.metric, scores.loss):
            standing.best_epoch = standing.epoch + 1
            if scores is not None:
                standing.best_metric, standing.best_loss = scores.metric, scores.loss
            keep = self.checkpoints.save_best if may_save else self.checkpoints.hold_best
            average = self.stepper.average.state_dict() if self.stepper.average else {}
            with self.clock.stage("checkpoint"):
                keep(standing.best_epoch, {**self.network.state_dict(), **average})
        standing.curve.append(row if scores is None else {**row, **scores.values})
        standing.epoch, standing.step, standing.loss_sum, standing.num_seen = standing.epoch + 1, 0, 0.0, 0
        waited = standing.epoch - standing.best_epoch
        now_s, num_run = time.monotonic(), len(self.epoch_seconds) + 1
        late = now_s + (now_s - self.started_s) / num_run > self.where.ends_s
        standing.finished = late or standing.epoch >= config.epochs or bool(config.patience and waited >= config.patience)
        if late and standing.epoch < config.epochs:
            self.where.on_event(Note(f"time is up after epoch {standing.epoch} of {config.epochs}"))
        if standing.finished or may_save:
            self.save()
        self.epoch_seconds.append({"epoch": standing.epoch, **self.clock.lap()})
        self.tell(now=True, figures=standing.curve[-1])

    def result(self, resumed_step: int) -> LoopResult:
        """Put the best weights in place and show them val and test."""
        standing = self.standing
        state = self.where.ranks.gather(self.checkpoints.load_best(standing.best_epoch) if self.where.ranks.leads else {})[0]
        self.network.load_state_dict(state)
        self.stepper.average = None
        judged = [split for split in ("val", "test") if len(self.problem.positions(split))]
        with self.clock.stage("evaluate"):
            outputs = {split: self.predict(self.problem.positions(split)) for split in judged}
        return LoopResult(
            state=state,
            outputs=outputs,
            best_epoch=standing.best_epoch,
            curve=standing.curve,
            metric=self.metric,
            resumed_step=resumed_step,
            num_steps=self.global_step,
            sub_batch=self.stepper.size.value,
            eval_batch=self.stepper.eval_size.value,
            halvings=self.stepper.size.halvings + self.stepper.eval_size.halvings,
            beside_bytes=self.beside_bytes,
            timeline=Timeline.of(self.clock, self.loading, epochs=self.epoch_seconds),
        )

    # -- batches -----------------------------------------------------------------------------------------------------------------

    def predict(self, positions: Positions) -> NDArray[np.float32]:
        """What is kept of the outputs for `positions`: each process its share, with averaged weights where there are any."""
        device, share = self.where.device, self.where.ranks.share(positions)
        num, size = len(share), min(self.stepper.eval_size.value, most_evaluated(len(share)))
        if isinstance(self.source, GpuRows) and num:
            # these need no reading, and for a last batch of another size the GPU would look for other kernels for seconds
            size = min(self.stepper.eval_size.value, num)
            share = np.append(share, share[: -num % size])
        # The allocator keeps blocks of the sizes of steps, which evaluation cannot use, and the other way round: it lets go of
        # them where memory is short. Elsewhere taking them anew costs more than the evaluation of a small split.
        self.network.eval()
        self.network.zero_grad(set_to_none=True)  # the gradients' memory is free for larger batches
        if is_tight(device, limit_bytes=self.where.limit_bytes):
            empty_cache(device)
        with self.stepper.averaged():
            fed_batches = self.feed([share[start : start + size] for start in range(0, len(share), size)], None)
            found = [self.stepper.predict(fed, self.stepper.eval_size) for fed in fed_batches]
        if is_tight(device, limit_bytes=self.where.limit_bytes):
            empty_cache(device)
        mine = torch.cat(found).cpu().numpy() if found else np.empty((0, self.objective.num_judged), np.float32)
        return np.concatenate(self.where.ranks.gather(mine[:num]))

    def feed_epoch(self, epoch: int, first: int) -> Generator[HostBatch | None, None, None]:
        """The batches of an epoch; None for one whose rows a CUDA graph finds on the GPU."""
        wanted = [self.batches.own(batch, kept) for batch, kept in zip(*self.batches.plan(epoch, first), strict=True)]
        num_recorded = 0 if self.graph is None or self.graph.is_fed else max(0, self.graph.num_steps - first)
        yield from [None] * num_recorded
        yield from self.feed(wanted[num_recorded:], epoch)

    def feed(self, batches: list[Positions], epoch: int | None) -> Generator[HostBatch, None, None]:
        """The batches; what is done with those of evaluation (which have no epoch) counts as evaluation alone."""
        where = self.where
        return feed(
            self.source,
            batches,
            epoch=epoch,
            device=where.device,
            workers=0 if isinstance(self.source, GpuRows) else where.workers,
            pin=where.pin,
            clock=None if epoch is None else self.clock,
            loading=self.loading,
        )

    # -- checkpoints and words ---------------------------------------------------------------------------------------------------

    def save(self) -> None:
        self.refuse_diverged()
        with self.clock.stage("checkpoint"):
            self.checkpoints.save(self.standing, self.stepper.pieces())
        self.saved_s = time.monotonic()

    def read_losses(self) -> None:
        """Add what the last steps lost, in their order; only now is the device waited for."""
        with self.clock.stage("device"):
            if self.graph is not None:
                self.standing.loss_sum += self.graph.take_loss()
            for loss in self.unread_losses:
                self.standing.loss_sum += float(loss)
        self.unread_losses.clear()
        if not np.isfinite(self.standing.loss_sum):
            raise self.diverged("the loss became infinite or not a number")

    def refuse_diverged(self) -> None:
        """Look at the weights as well: a step may break them with a loss that still looks sound."""
        self.read_losses()
        if not torch.isfinite(nn.utils.get_total_norm(parameter.detach() for parameter in self.network.parameters())):
            raise self.diverged("weights became infinite or not a number")

    def diverged(self, why: str) -> DataError:
        return DataError(
            f"training diverged in epoch {self.standing.epoch + 1}, by step {self.standing.step}",
            code="diverged",
            why=why,
            try_=f"--lr {min(self.config.lr / 10, USUAL_LR):g}, or --train-precision f32",
        )

    def tell(self, *, now: bool = False, figures: dict[str, float] | None = None) -> None:
        """Progress in samples, with the loss and the share of time spent waiting for data."""
        seconds = time.monotonic()
        if not self.where.ranks.leads or (seconds - self.told_s < _TELL_EVERY_S and not now):
            return
        self.told_s = seconds
        self.read_losses()
        standing, total = self.standing, self.config.epochs * len(self.train)
        done = total if standing.finished else standing.epoch * len(self.train) + standing.num_seen
        rate = self.num_run / max(seconds - self.started_s, 1e-9)
        extra: dict[str, Any] = {
            "epoch": min(standing.epoch + 1, self.config.epochs),
            "waiting_for_data_share": self.clock.share("wait"),
        }
        if standing.num_seen:
            extra["loss"] = standing.loss_sum / standing.num_seen
        if standing.best_metric is not None:
            extra[f"best_val_{self.metric}"] = as_figure(self.metric, standing.best_metric)
        left_s = (total - done) / rate if rate else None
        self.where.on_event(Progress("train", done, total, self.where.unit, rate, left_s, extra=extra, figures=figures or {}))


def most_evaluated(num: int) -> int:
    """How many of `num` samples evaluation reads at once at most, whatever would fit."""
    return max(1, -(-num // _EVAL_PARTS))
