"""One training in several processes: started by us (`--devices 2`), or by a launcher such as torchrun around the whole command.

In: a training as a value (`training_job.py`). The processes we start run it together, their leader tells what happens through a
file of JSON lines, and when they are done the job's folder holds the result; the caller then finds the training finished. Under
a launcher, every process runs the whole command, on one machine or on several that share the workspace: the leader prepares
everything alone and hands the job to the others, who do nothing else and write nothing.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unchoke.core import atomic
from unchoke.core.clock import NO_PROFILER, LoopProfiler
from unchoke.core.errors import DataError, Interrupted, MachineError, UnchokeError, UsageError, list_some
from unchoke.core.events import OnEvent, ignore
from unchoke.core.input_file import parse_json
from unchoke.core.temporary_folders import scratch_folder
from unchoke.core.timeline import Timeline
from unchoke.core.units import format_count
from unchoke.jobs.cluster.file_transfer import SharedFolder, marked
from unchoke.jobs.signals import stop_requests
from unchoke.machine.backend import device_count, numbered_device, torch_device
from unchoke.machine.detect import usable_cores
from unchoke.machine.memory.oom import out_of_memory
from unchoke.runs.report.json import dump_event, parse_event
from unchoke.training.network.loop_config import LoopResult
from unchoke.training.network.parallel import ALONE, Ranks, joined, num_neighbours
from unchoke.training.network.training_job import TrainingJob, run_job

_RESTARTS = 3
_LOOK_EVERY_S = 0.2
_ENDED = "ended.json"
"""How the processes ended: where the leader's time went, or an error of ours."""
_READ = 8
"""Samples that are read on trial, spread over all of them."""


def run_on_devices(job: TrainingJob, num: int, *, on_event: OnEvent) -> Timeline:
    """Run `job` in `num` processes, until its training is finished in its folder; return where the leader's time went."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    folder, there = job.folder, device_count(job.device)
    assert folder is not None, "processes that train together meet in a folder"
    if there is not None and num > there:
        raise MachineError(
            f"--devices {num} asks for more than this machine has",
            code="too-many-devices",
            why=f"torch sees {format_count(there, 'device')} of the kind {job.device}",
            try_="leave --devices out, or --device cpu",
        )
    refuse_more_than_batch(num, job)
    lines, before = folder / "events.jsonl", tempfile.tempdir
    folder.mkdir(parents=True, exist_ok=True)
    lines.write_text("", encoding="utf-8")
    (folder / _ENDED).unlink(missing_ok=True)
    try:
        # the launcher leaves folders for logs among the temporary files, and what a process failed with
        with _following(lines, on_event), scratch_folder("ranks") as scratch:
            tempfile.tempdir = str(scratch)
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=num,
                run_id="unchoke",
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",
                max_restarts=_RESTARTS,
                monitor_interval=_LOOK_EVERY_S,
                start_method="spawn",
            )
            elastic_launch(config, take_part)(job, str(lines))
    except SignalException:
        raise stopped() from None
    except ChildFailedError as error:
        _take_end(folder)
        rank, failure = error.get_first_failure()
        found = out_of_memory(failure.exitcode) or out_of_memory(str(failure.message))
        if found is None:
            said = f"process {rank} of {num} failed with exit code {failure.exitcode}: {failure.message}"
            raise RuntimeError(said) from error
        raise MachineError(
            f"process {rank} of {num} ran out of memory and was killed {_RESTARTS + 1} times",
            code="out-of-memory",
            why=found.message,
            try_="--memory with a smaller limit, --devices 1, or --grad-ckpt",
        ) from error
    finally:
        tempfile.tempdir = before
    timeline = _take_end(folder)
    assert timeline is not None, "the leader wrote it last"
    return timeline


def refuse_more_than_batch(num: int, job: TrainingJob) -> None:
    if num > job.loop.batch_size:
        raise UsageError(
            f"--devices {num} is more than the {job.loop.batch_size} samples of a batch",
            code="too-many-devices",
            why="each process needs a share of every batch",
            try_=f"--batch-size {num}",
        )


def stopped() -> Interrupted:
    return Interrupted(
        "training stopped", code="interrupted", why="stopped on request; the state is saved", try_="run the same command again"
    )


def take_part(job: TrainingJob, lines: str) -> None:
    """What each process we started runs. Only the leader tells what happens.

    An error of ours would come again after a restart: it is left in a file for the process that waits, and not tried again.
    """
    ended = Path(lines).parent / _ENDED
    if ended.exists():
        return
    with joined() as ranks, stop_requests(lambda: None) as requests, Path(lines).open("a", encoding="utf-8") as file:

        def tell(event: Any) -> None:
            file.write(dump_event(event) + "\n")
            file.flush()

        try:
            done = run_job(_own_part(job), on_event=tell if ranks.leads else ignore, stop=lambda: requests.requested, ranks=ranks)
            if ranks.leads:
                atomic.write_json(ended, {"timeline": done.timeline.to_dict()})
        except UnchokeError as error:
            told = {"what": error.what, "code": error.code, "why": error.why, "try_": error.try_}
            atomic.write_json(ended, {"kind": type(error).__name__, "error": told})
            if not isinstance(error, Interrupted):
                raise


def _take_end(folder: Path) -> Timeline | None:
    """Where the leader's time went, or the error of ours that ended the processes; None where they were ended from outside."""
    file = folder / _ENDED
    if not file.exists():
        return None
    found = parse_json(file.read_text(encoding="utf-8"))
    file.unlink()
    if "error" in found:
        kinds: dict[str, type[UnchokeError]] = {one.__name__: one for one in (DataError, MachineError, UsageError, Interrupted)}
        raise kinds[found["kind"]](found["error"].pop("what"), **found["error"])
    return Timeline.from_dict(found["timeline"])


def _own_part(job: TrainingJob) -> TrainingJob:
    """The job on this process's own device, with its share of the cores this machine has."""
    threads = max(1, min(job.loop.threads, usable_cores()) // num_neighbours())
    device = numbered_device(job.device, int(os.environ.get("LOCAL_RANK", "0")))
    return replace(job, device=device, loop=replace(job.loop, threads=threads))


@contextmanager
def _following(lines: Path, on_event: OnEvent) -> Iterator[None]:
    """Tell `on_event` what the leader writes, as it writes it."""
    ended = threading.Event()

    def follow() -> None:
        with lines.open(encoding="utf-8") as file:
            while True:
                last = ended.is_set()
                for line in file.readlines():
                    if (event := parse_event(parse_json(line))) is not None:
                        on_event(event)
                if last:
                    return
                ended.wait(_LOOK_EVERY_S)

    thread = threading.Thread(target=follow, name="unchoke-follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        lines.unlink(missing_ok=True)


@dataclass(frozen=True)
class MeetingPlace:
    """Where the process stands that prepared a training: the folder of its checkpoints, and the one that its paths count from."""

    shared: SharedFolder
    directory: Path


@contextmanager
def meeting_place(job: TrainingJob) -> Iterator[MeetingPlace]:
    """What other machines compare themselves with, for as long as they may."""
    assert job.folder is not None, "processes that train together meet in a folder"
    with marked(job.folder) as shared:
        yield MeetingPlace(shared, Path.cwd())


def why_unfit(job: TrainingJob, place: MeetingPlace, *, writes: bool = False) -> str:
    """Why this machine cannot take part in the training, "" where it can. Stands in the same directory from then on.

    Each process that takes part `writes` checkpoints if it leads.
    """
    if place.directory.is_dir():
        os.chdir(place.directory)
    name, folder = socket.gethostname(), place.shared.folder
    if not place.shared.is_seen():
        return f"{name} does not see the folder {folder}"
    if writes and not place.shared.is_here():
        return f"{name} may not write to {folder}"
    try:
        with torch.random.fork_rng(devices=[]):
            _, source, _ = job.build(torch_device("cpu"))
        source.read(np.unique(np.linspace(0, len(job.problem.sample_ids) - 1, _READ).astype(np.int64)), None)
    except UnchokeError as error:
        return f"{name} cannot train it: {error.what}: {error.why}"
    except OSError as error:
        return f"{name} cannot train it: {error}"
    return ""


@dataclass(frozen=True)
class Errand:
    """What the leader hands to everyone: a job, with what other machines compare themselves with. Without a job there is no more
    to train: the command is over, or ended with an error.
    """

    job: TrainingJob | None = None
    place: MeetingPlace | None = None
    error: UnchokeError | None = None


@dataclass
class Participant:
    """This process's part in a command that a launcher started several times."""

    ranks: Ranks = ALONE
    line: Any = None
    """What errands are handed over by; it waits longer than an exchange of gradients does."""
    is_training: bool = False
    """Whether everyone is in the middle of a training, and nobody waits for an errand."""

    @property
    def follows(self) -> bool:
        return not self.ranks.leads

    @property
    def world(self) -> int:
        return self.ranks.world

    @property
    def neighbours(self) -> int:
        return num_neighbours() if self.ranks.world > 1 else 1

    def run(
        self,
        job: TrainingJob,
        *,
        on_event: OnEvent,
        stop: Callable[[], bool] = lambda: False,
        profiler: LoopProfiler = NO_PROFILER,
    ) -> LoopResult:
        """The leader's call: hand the job to everyone and train together. Only the leader is profiled."""
        if self.ranks.world == 1:
            return run_job(job, on_event=on_event, stop=stop, profiler=profiler)
        with nullcontext() if self.ranks.world == self.neighbours else meeting_place(job) as place:
            self.ranks.gather(Errand(job, place), self.line)
            unfit = list(filter(None, self.ranks.gather("")))
        if unfit:
            raise MachineError(
                f"{len(unfit)} of {self.ranks.world} processes cannot take part: {list_some(unfit, limit=3)}",
                code="process-cannot-join",
                why="machines that train together share the workspace folder, and the photos where no cache holds their pixels",
                try_="--out with a folder that all of them see under the same path, or start it on this machine alone",
            )
        # an end that all agree on leaves the others waiting for the next errand, any other leaves nobody
        self.is_training = True
        try:
            done = run_job(_own_part(job), on_event=on_event, stop=stop, ranks=self.ranks, profiler=profiler)
        except Interrupted:
            self.is_training = False
            raise
        self.is_training = False
        return done

    def follow(self) -> int:
        """The others' call: take part in whatever the leader trains, until it says that there is no more."""
        while (job := (errand := self._hear()).job) is not None:
            place = errand.place
            if any(self.ranks.gather("" if place is None else why_unfit(job, place))):
                continue  # the leader says so, for all
            with suppress(Interrupted), stop_requests(lambda: None) as requests:  # that, too, the leader says
                run_job(_own_part(job), on_event=ignore, stop=lambda: requests.requested, ranks=self.ranks)
        if errand.error is not None:
            raise errand.error
        return self.ranks.rank

    def _hear(self) -> Errand:
        return self.ranks.gather(Errand(), self.line)[0]

    def release(self, error: BaseException | None = None) -> None:
        """The leader's last call: there is no more to train. In the middle of a training there is nobody to hear it."""
        if self.is_training:
            return
        if error is not None and not isinstance(error, UnchokeError):
            why, try_ = f"{type(error).__name__}: {error}", "what it printed says more"
            error = MachineError("the leading process failed", code="leader-failed", why=why, try_=try_)
        self.ranks.gather(Errand(error=error), self.line)


@contextmanager
def taking_part() -> Iterator[Participant]:
    """Join the processes a launcher started beside this one; alone, nothing happens."""
    with joined() as ranks:
        part = Participant(ranks, ranks.patient_line())
        try:
            yield part
        except BaseException as error:
            if ranks.leads:
                part.release(error)
            raise
        if ranks.leads:
            part.release()
