"""Training through a network as a `Trainer`: settle how, plan its memory, run it here or in several processes.

In: a session, what is learnt, the network and where its inputs come from. Out: what a run's record needs. What was chosen is
written to `loop.json` in the run's folder when training begins and stands from then on, so that a run continued on a busier
machine, or with another memory limit, computes the same numbers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UsageError
from unchoke.core.fingerprint import digest
from unchoke.core.settings import OPTIONS, Settings, settings_where
from unchoke.core.units import format_count
from unchoke.features.cut import count_blocks
from unchoke.features.encoders import Encoder, digest_tensors
from unchoke.machine.backend import keep_freed_memory
from unchoke.photos.pixels.tile_grid import plan_tiles
from unchoke.photos.targets import TargetPlan, plan_targets
from unchoke.runs.session import Session
from unchoke.training.network.loop_choices import TrainedPart, choose_feeding, choose_loop
from unchoke.training.network.loop_config import Finetuned, LoopConfig
from unchoke.training.network.memory_trial import Trial
from unchoke.training.network.plan_memory import FILE as MEMORY_FILE
from unchoke.training.network.plan_memory import Planned, plan_memory, remember_memory
from unchoke.training.network.running import run_training_job
from unchoke.training.network.tiled_network import NetworkConfig
from unchoke.training.network.trained_network import TrainedNetwork, save_network
from unchoke.training.network.training_job import NetworkSpec, SourceSpec, TrainingJob
from unchoke.training.problem import Learnable
from unchoke.training.record import Trained
from unchoke.training.scoring.selection import choose_metric

LOOP_FILE = "loop.json"


class NetworkTrainer:
    """One network, its suffix, fusion and head trained together."""

    def __init__(self, session: Session, learnable: Learnable, encoder: Encoder, source: SourceSpec) -> None:
        settings = session.settings
        refuse_head_options(session)
        self._session, self._learnable, self._source = session, learnable, source
        self._encoder = encoder.spec
        self._num_blocks = count_blocks(encoder.module)
        self._part = TrainedPart.of(encoder, settings.cut)
        self._spec = network_spec(settings, encoder)
        self._targets = targets_of(session, learnable)
        self.weights = self._targets.weights if self._targets else None
        wanted = {name: value for name, value in settings.given().items() if OPTIONS[name].tells_runs_apart}
        self.key = digest(["network", wanted, encoder.spec.weights_sha256])
        self.detail = f"{self._spec.encoder}, --cut {settings.cut}, {format_count(settings.epochs, 'epoch')}"

    def train(self, folder: Path) -> Trained:
        session, problem = self._session, self._learnable.problem
        metric = choose_metric(problem, self._targets)
        session.chose(metric)
        loop = self._settle(folder / LOOP_FILE)
        session.chose(keep_freed_memory(loop.keep_freed))
        workers, pin = choose_feeding(session)
        job = TrainingJob(
            network=self._spec,
            source=self._source,
            problem=problem,
            targets=self._targets,
            inputs=self._learnable.inputs,
            loop=loop,
            metric=str(metric.value),
            device=session.policy.device,
            folder=folder / "checkpoints",
            workers=workers,
            pin=pin,
            checkpoint_every_s=session.settings.checkpoint_every,
        )
        planned, job = self._plan(job, folder)
        done = run_training_job(session, job)
        return self._trained(job, done, planned, remember_memory(session, planned, job))

    def _plan(self, job: TrainingJob, folder: Path) -> tuple[Planned | None, TrainingJob]:
        """The job with sizes that fit. Where not even one sample fits, an average of the weights nobody asked for is given up."""
        session = self._session
        try:
            planned = plan_memory(session, job, folder / MEMORY_FILE, trial=Trial.of(job))
        except MachineError as error:
            begun = (folder / "checkpoints" / "last.pt").exists()
            if begun or not job.loop.ema_decay or session.settings.ema is not None:
                raise
            session.chose(Choice("ema", 0.0, f"weights are not averaged after all: {error.why}"))
            job = replace(job, loop=replace(job.loop, ema_decay=0.0))
            planned = plan_memory(session, job, folder / MEMORY_FILE, trial=Trial.of(job))
            atomic.write_json(folder / LOOP_FILE, job.loop.to_dict())
        return planned, planned.applied_to(job) if planned else job

    def _settle(self, file: Path) -> LoopConfig:
        """The loop this run began with, or the one chosen now, which is then written down."""
        if file.exists():
            kept = LoopConfig(**json.loads(file.read_text(encoding="utf-8")))
            self._session.chose(Choice("loop", "as begun", f"this run's choices are kept in {file.name}", kept.to_dict()))
            return kept
        loop = choose_loop(self._session, self._learnable.problem, self._part)
        atomic.write_json(file, loop.to_dict())
        return loop

    def _trained(self, job: TrainingJob, done: Finetuned, planned: Planned | None, memory: dict[str, Any]) -> Trained:
        problem = self._learnable.problem
        network = TrainedNetwork(
            spec=replace(self._spec, weights=None),
            config=self._network_config(job),
            state=done.state,
            kind=problem.kind,
            names=problem.names,
            targets=self._targets,
            input_names=self._learnable.input_names,
            best_epoch=done.best_epoch,
            val=done.val,
        )
        reached = done.val.get(done.metric)
        config = {**job.loop.to_dict(), "kind": "network", "cut": self._spec.cut, "fusion": self._spec.fusion}
        row = {
            "config": config,
            "val_metric": reached,
            "val_loss": done.val.get("loss"),
            "best_epoch": done.best_epoch,
            "num_epochs": len(done.curve),
            "diverged": False,
            "picked": True,
        }
        return Trained(
            outputs=done.outputs,
            metric=done.metric,
            history=done.curve,
            sweep=[row],
            save=lambda path, extra: save_network(network, path, extra=extra),
            about={"training": self._about(job, done, planned), **memory},
        )

    def _network_config(self, job: TrainingJob) -> NetworkConfig:
        plan, problem = self._targets, self._learnable.problem
        return NetworkConfig(
            tiles=self._spec.tiles,
            dim=self._encoder.dim,
            fusion=self._spec.fusion,
            num_inputs=len(self._learnable.input_names),
            kind=problem.kind,
            num_outputs=len(plan.learned) if plan else problem.num_outputs,
            positive=plan.positive if plan else False,
            num_derived=len(plan.sums) if plan else 0,
        )

    def _about(self, job: TrainingJob, done: Finetuned, planned: Planned | None) -> dict[str, Any]:
        """What a reader of the record may want to know of the training itself."""
        return {
            "cut": self._spec.cut,
            "num_blocks": self._num_blocks,
            "tiles": self._spec.tiles.text,
            "fusion": self._spec.fusion,
            "loop": job.loop.to_dict(),
            "num_steps": done.num_steps,
            "resumed_step": done.resumed_step,
            "seconds": {**done.seconds, **({"planning memory": planned.seconds} if planned else {})},
            "out_of_memory_halvings": done.halvings,
            "sub_batch_at_the_end": done.sub_batch,
            "weights_sha256": digest_tensors(done.state),
            "targets": self._targets.to_dict() if self._targets else None,
        }


def network_spec(settings: Settings, encoder: Encoder) -> NetworkSpec:
    """The network that trains, as a plain value."""
    return NetworkSpec(
        encoder=settings.encoder,
        cut=settings.cut,
        weights=settings.weights,
        weights_sha256=encoder.spec.weights_sha256,
        input_px=settings.input_px,
        tiles=plan_tiles(streams=settings.streams, tiles=settings.tiles),
        fusion=settings.fusion,
    )


def targets_of(session: Session, learnable: Learnable) -> TargetPlan | None:
    """What was declared about the targets (`training/problem.py` has checked it); None for classes."""
    settings, problem = session.settings, learnable.problem
    if problem.kind == "classification":
        return None
    return plan_targets(problem.names, sums=settings.sums, weights=settings.target_weights, positive=settings.positive)


def refuse_head_options(session: Session) -> None:
    """Options that only concern heads on pooled features are refused here, not ignored."""
    given = [f"--{name}" for name in settings_where(lambda option: option.heads_only) if getattr(session.settings, name)]
    if given:
        raise UsageError(
            f"{' and '.join(given)} cannot be combined with training through a network",
            why="its own head is trained with it: kinds of heads and sweeps are for --cut end of whole photos, nothing declared",
            try_="leave it out",
        )
