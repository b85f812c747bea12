"""A training job run as its session says: here, in several processes, under a profiler, until it ends or someone asks to stop.

In: a session and a job. Out: what the loop gives; where its time went is kept in the session, for the record. What is trained,
and what becomes of it, is decided by the trainers.
"""

from __future__ import annotations

from dataclasses import replace

from unchoke.core.events import ignore
from unchoke.jobs.signals import stop_requests
from unchoke.runs.session import Session
from unchoke.training.heads.head_trainer import keeping_choices
from unchoke.training.network.distributed import Part, run_on_devices, take_timeline
from unchoke.training.network.loop_config import Finetuned
from unchoke.training.network.training_job import Job
from unchoke.training.step_profiler import UNPROFILED


def run_training_job(session: Session, job: Job) -> Finetuned:
    """Train, or go on with, what `job` describes."""
    done = _run_on_devices(session, job) if session.settings.devices > 1 else _run_here(session, job)
    session.timelines["train"] = done.timeline
    return done


def _run_here(session: Session, job: Job) -> Finetuned:
    part, profiler = session.part or Part(), session.profiler or UNPROFILED
    with stop_requests(lambda: session.warn("stopping after this step; the same command goes on from there")) as requests:
        return part.run(
            job,
            on_event=keeping_choices(session),
            stop=lambda: requests.requested or profiler.wants_stop,
            profiler=profiler,
        )


def _run_on_devices(session: Session, job: Job) -> Finetuned:
    """Train in several processes, then judge here: this process finds the training finished. The clock is the leader's."""
    job = run_on_devices(job, session.settings.devices, on_event=keeping_choices(session))
    timeline = take_timeline(job)
    return replace(Part().run(job, on_event=ignore), resumed_step=0, timeline=timeline)
