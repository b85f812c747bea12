"""Training a network as a `Trainer`: settle how, plan its memory, run it here or in several processes.

In: a session and, in one subclass for photos (`photo_trainer.py`) and one for masks (`masks/mask_trainer.py`), what is trained.
Out: what a run's record needs. What was chosen is written to `loop.json` in the run's folder when training begins and stands
from then on, so that a run continued on a busier machine, or with another memory limit, computes the same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.clock import NO_PROFILER
from unchoke.core.events import ignore
from unchoke.features.encoders import digest_tensors
from unchoke.jobs.signals import stop_requests
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.runs.session import Session
from unchoke.training.build_record import TrainingOutcome
from unchoke.training.data import Problem
from unchoke.training.heads.head_trainer import keeping_choices
from unchoke.training.network.distributed import Participant, run_on_devices
from unchoke.training.network.loop_choices import choose_feeding
from unchoke.training.network.loop_config import LoopResult, TrainingPlan
from unchoke.training.network.node_training import NodeTraining
from unchoke.training.network.plan_memory import FILE as MEMORY_FILE
from unchoke.training.network.plan_memory import ProcessPlan, plan_memory, remember_memory
from unchoke.training.network.training_job import TrainingJob

LOOP_FILE = "loop.json"


class NetworkTrainer(ABC):
    """One network, all its parts trained together. `key` tells its result from any other's."""

    key: Any
    detail: str
    problem: Problem
    weights: tuple[float, ...] | None = None
    plan_kind: type[TrainingPlan] = TrainingPlan

    def __init__(self, session: Session) -> None:
        self._session = session

    @abstractmethod
    def settle(self, kept: Any) -> tuple[Any, str]:
        """How to train (a `plan_kind`: as the run began, or chosen now) and the metric that picks the best epoch. Both are
        told.
        """

    @abstractmethod
    def job(self, plan: Any, **how: Any) -> TrainingJob:
        """The training as a value; `how` are the fields that all trainings have."""

    @abstractmethod
    def trained(self, plan: Any, done: LoopResult) -> Any:
        """Trained weights with all that is needed to run them; `save` writes them."""

    @abstractmethod
    def config(self, plan: Any) -> dict[str, Any]:
        """What reports list of the configuration, beside the loop."""

    @abstractmethod
    def about(self, plan: Any) -> dict[str, Any]:
        """What a reader of the record may want to know of it."""

    def train(self, folder: Path) -> TrainingOutcome:
        session = self._session
        kept = self._kept(folder / LOOP_FILE)
        plan, metric = self.settle(kept)
        if kept is None:
            checksums.save_checked_json(folder / LOOP_FILE, plan.to_dict())
        workers, pin = choose_feeding(session)
        job = self.job(
            plan,
            problem=self.problem,
            loop=plan.loop,
            metric=metric,
            device=session.policy.device,
            folder=folder / "checkpoints",
            workers=workers,
            pin=pin,
            checkpoint_every_s=session.settings.checkpoint_every,
            ends_s=session.ends_s,
        )
        planned = plan_memory(session, job, folder / MEMORY_FILE)
        job = planned.applied_to(job) if planned else job
        done = run_training_job(session, job)
        return self._outcome(replace(plan, loop=job.loop), job, done, planned)

    def _kept(self, file: Path) -> TrainingPlan | None:
        """How this run began, from `loop.json`; None for a new run."""
        if not file.exists():
            return None
        begun = f"put a copy of it in its place; or delete {file.parent}, and the run is trained anew"
        with checksums.making_sense(file, try_=begun):
            kept = self.plan_kind.from_dict(checksums.load_checked_json(file, try_=begun))
        self._session.chose(Choice("loop", "as begun", f"this run's choices are kept in {file.name}", kept.to_dict()))
        return kept

    def _outcome(self, plan: TrainingPlan, job: TrainingJob, done: LoopResult, planned: ProcessPlan | None) -> TrainingOutcome:
        loop = plan.loop.to_dict()
        row = {
            "config": {**loop, **self.config(plan)},
            "val_metric": done.val.get(done.metric),
            "val_loss": done.val.get("loss"),
            "best_epoch": done.best_epoch,
            "num_epochs": len(done.curve),
            "diverged": False,
            "picked": True,
        }
        about = {
            **self.about(plan),
            "loop": loop,
            "num_steps": done.num_steps,
            "resumed_step": done.resumed_step,
            "seconds": {**done.seconds, **({"planning memory": planned.seconds} if planned else {})},
            "out_of_memory_halvings": done.halvings,
            "sub_batch_at_the_end": done.sub_batch,
            "weights_sha256": digest_tensors(done.state),
        }
        part = self.trained(plan, done)
        return TrainingOutcome(
            outputs=done.outputs,
            metric=done.metric,
            history=done.curve,
            sweep=[row],
            save=lambda path, extra: part.save(path, extra=extra),
            about={"training": about, **remember_memory(self._session, planned, job, beside_bytes=done.beside_bytes)},
        )


def run_training_job(session: Session, job: TrainingJob) -> LoopResult:
    """Train, or go on with, what `job` describes, until it ends or someone asks to stop. Its timeline is kept in the session.

    What several processes or nodes trained is found finished and judged here; the clock is then the leader's.
    """
    tell, profiler, timeline = keeping_choices(session), session.profiler or NO_PROFILER, None
    part = session.part if isinstance(session.part, Participant) else Participant()
    if session.num_started > 1 and not session.trains_on_nodes:
        timeline = run_on_devices(job, session.num_started, on_event=tell)
    with stop_requests(lambda: session.warn("stopping after this step; the same command goes on from there")) as requests:
        if session.trains_on_nodes:
            cluster, settings = session.cluster, session.settings
            assert cluster is not None, "it trains on nodes"
            wants_cpu = settings.device is not None and is_cpu(torch_device(settings.device))
            gpus = any(node.gpus for node in cluster.nodes()) and not wants_cpu
            timeline = NodeTraining(job, cluster, settings.devices, gpus, tell, lambda: requests.requested).run()
            if timeline is None:
                session.warn(
                    f"training runs on this machine alone: no node of {cluster.address} can take part. "
                    "Nodes train where --out is a folder that they share with this machine"
                )
        if timeline is None:
            done = part.run(job, on_event=tell, stop=lambda: requests.requested or profiler.wants_stop, profiler=profiler)
    if timeline is not None:
        done = replace(Participant().run(job, on_event=ignore), resumed_step=0, timeline=timeline)
    session.timelines["train"] = done.timeline
    return done
