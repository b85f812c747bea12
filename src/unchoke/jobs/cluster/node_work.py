"""Work on nodes: the frame that every kind of work on a cluster shares.

On a node a `NodeWork` is set up once in each host: which of the files it needs it sees, whether the workspace is a folder it
shares, and whether it computes what the driver computes. Then it runs tasks, each with the files that were sent along; what a
task writes is uploaded. On the driver a `Courier` packs tasks and puts in place what comes back. Which nodes were used becomes a
`Choice` for the record.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UnchokeError
from unchoke.core.events import Note, OnEvent
from unchoke.core.units import format_count
from unchoke.jobs.attempts import TaskFailed, WorkerDied
from unchoke.jobs.cluster.connection import Cluster, ClusterNode
from unchoke.jobs.cluster.file_transfer import (
    FileSet,
    FileStore,
    SentFile,
    SentSet,
    SharedFolder,
    put_in_place,
    too_much,
    with_paths,
    writing_for,
)
from unchoke.jobs.cluster.hosts import HostPlan, NodeRefused, one_for_each_core, versions
from unchoke.jobs.cluster.ray_engine import RayEngine

SAME_BITS = "same bits"
_ATTEMPTS = 3
_NEAR = 0.01
"""How far answers may lie from the driver's, as a share of the largest of them: what other kernels of the same network give."""
_REMEDY = "a folder that all machines share, or files behind a URL"
T = TypeVar("T")


@dataclass(frozen=True)
class NodeReady:
    """What a host says of its node when it is set up."""

    node: str
    host: str
    """Names this very process: what was sent to another one is not there."""
    reads: bool = True
    """Whether it sees all that it needs."""
    writes: bool = False
    """Whether the workspace is a folder that it shares."""
    agreement: str = ""
    """How exactly it computes what the driver computes; "" where nothing is computed that could differ."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    unseen: frozenset[str] = frozenset()
    """The sets of files that must be sent to it."""


@dataclass(frozen=True)
class NodeErrand(Generic[T]):
    """A task as it travels: which sets of files it needs, and those of them that are sent along."""

    task: T
    needs: tuple[str, ...] = ()
    sent: tuple[SentSet, ...] = ()


class NodeWork(ABC):
    """Work for nodes; pickled on the driver, set up and called on a node. `home` is where what it writes belongs, if it does.

    `files` are what tasks may need. A node that can be sent none of them, because they are too large, is not used.
    """

    def __init__(self, *, home: SharedFolder | None = None, files: Sequence[FileSet] = ()) -> None:
        self._home, self._files = home, {one.key: one for one in files}
        self._store: FileStore | None = None
        self._ready: NodeReady | None = None

    @property
    def ready(self) -> NodeReady:
        """What this host said of itself."""
        assert self._ready is not None, "set_up ran before"
        return self._ready

    def set_up(self) -> NodeReady:
        """Find out what this machine can do by itself, and build what tasks need."""
        unseen = [one for one in self._files.values() if not one.is_here()]
        if why := too_much(unseen, free_bytes=shutil.disk_usage(tempfile.gettempdir()).free):
            raise NodeRefused(
                f"{socket.gethostname()} cannot read what it needs",
                code="node-cannot-read",
                why=f"{why}; {_REMEDY}",
                try_=_REMEDY,
            )
        self._store = FileStore()
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        writes = self._home is not None and self._home.is_here()
        keys = frozenset(one.key for one in unseen)
        self._ready = NodeReady(socket.gethostname(), name, not unseen, writes, versions=versions(), unseen=keys)
        self._ready = self.prepare(self._ready)
        return self._ready

    def prepare(self, ready: NodeReady) -> NodeReady:
        """Build what tasks need; `ready` with what is to be said of it. `NodeRefused` where this node had better not be used."""
        return ready

    @abstractmethod
    def run(self, task: Any, folder: Path) -> Any:
        """One task, whose files are where it says; what it writes goes below `folder`."""

    def restore_names(self, text: str) -> str:
        """`text` about files, with the names that the driver has for them."""
        text = text if self._store is None else self._store.restore_names(text)
        for file in (file for one in self._files.values() for file in one.files if file.path != file.name):
            text = text.replace(file.path, file.name)
        return text

    def __call__(self, errand: NodeErrand[Any]) -> tuple[Any, dict[str, SentFile]]:
        """What `run` gives, and the files that must travel."""
        assert self._store is not None, "set_up ran before"
        for sent in errand.sent:
            self._store.take_in(sent)
        places: dict[str, str] = {}
        for key in errand.needs:
            places.update(self._store.places(key) if key in self.ready.unseen else self._files[key].places())
        task = with_paths(errand.task, places)
        if self._home is None:
            return self.run(task, Path()), {}
        with writing_for(self._home, shares=self.ready.writes) as (folder, files):
            value = self.run(task, folder)
        return value, files


class Courier:
    """The driver's side: sends each host the files it does not see, once, and puts what comes home in place.

    `needs` says which sets a task needs, `into` the folder that a task's files belong to, and the one that is written last.
    """

    def __init__(
        self,
        files: Sequence[FileSet] = (),
        *,
        needs: Callable[[Any], Sequence[str]] = lambda _: (),
        into: Callable[[Any], tuple[Path, str]] | None = None,
    ) -> None:
        self._files = {one.key: one for one in files}
        self._needs, self._into = needs, into
        self._sent: dict[str, set[str]] = {}

    def pack(self, task: Any, ready: NodeReady) -> NodeErrand[Any]:
        """The task as this host needs it."""
        needs = tuple(self._needs(task))
        there = self._sent.setdefault(ready.host, set())
        missing = [key for key in needs if key in ready.unseen and key not in there]
        sent = tuple(self._files[key].read() for key in missing)
        there.update(missing)
        return NodeErrand(task, needs, sent)

    def unpack(self, task: Any, came: tuple[Any, Mapping[str, SentFile]]) -> Any:
        """Put the files of a task in their place, as they left the node."""
        value, files = came
        if files and self._into is not None:
            folder, artefact = self._into(task)
            put_in_place(folder, files, artefact=artefact)
        return value


def run_tasks(
    cluster: Cluster,
    work: NodeWork,
    courier: Courier,
    tasks: Iterable[T],
    *,
    plan: Callable[[ClusterNode], Sequence[HostPlan]],
    on_event: OnEvent,
    facts: dict[str, NodeReady],
) -> Iterator[tuple[T, Any]]:
    """Each task with its answer, as they come; `facts` is filled with what the nodes say of themselves.

    A task that fails is tried again, a few times, and then the run ends with its error. Our own errors are raised at once:
    another try would give the same.
    """
    engine = RayEngine(
        cluster,
        plan=plan,
        pack=lambda attempt, ready: courier.pack(attempt[0], ready),
        unpack=lambda attempt, came: courier.unpack(attempt[0], came),
        on_event=on_event,
    )
    engine.facts = facts
    attempts: Iterable[tuple[T, int]] = ((task, 1) for task in tasks)
    while True:
        again: list[tuple[T, int]] = []
        with closing(engine.map_unordered(work, attempts, setup=work.set_up)) as outcomes:
            for outcome in outcomes:
                (task, tried), error = outcome.task, outcome.error
                if error is None:
                    yield task, outcome.value
                elif isinstance(error, UnchokeError):
                    raise error
                elif tried < _ATTEMPTS:
                    text = f"a task failed and will be tried again: {type(error).__name__}: {error}"
                    on_event(Note(text, level="warning"))
                    again.append((task, tried + 1))
                else:
                    error.add_note(f"on a node:\n{outcome.traceback_text}")
                    if not isinstance(error, WorkerDied | TaskFailed):
                        raise error
                    raise MachineError(
                        f"a task was given up after {format_count(_ATTEMPTS, 'attempt')}",
                        code="node-task-given-up",
                        why=f"{error}",
                        try_="nodes with more memory, or the same command without --on; what is finished is kept",
                    )
        if not again:
            return
        attempts = again


def agreement(expected: NDArray[Any], found: NDArray[Any]) -> str:
    """How exactly this node answers what the driver answered; `NodeRefused` where the answers differ too much."""
    if expected.shape == found.shape and expected.tobytes() == found.tobytes():
        return SAME_BITS
    if expected.shape == found.shape and np.isfinite(found).all():
        largest = max(float(np.abs(expected).max()), 1e-12)
        apart = float(np.abs(expected.astype(np.float64) - found).max()) / largest
        if apart <= _NEAR:
            return f"within {apart:.1g} of the largest answer"
        why = f"its answers to a sample lie up to {apart:.1g} of the largest away, {_NEAR:g} is allowed"
    else:
        why = f"it gives {found.shape} where {expected.shape} is right, or no numbers"
    raise NodeRefused(
        f"{socket.gethostname()} computes something else than the driver",
        code="node-disagrees",
        why=why,
        try_="the same versions of torch and OpenVINO there as here",
    )


def nodes_choice(address: str, ready: Iterable[NodeReady], refused: Mapping[str, str], *, gives: str, files: str) -> Choice:
    """Which nodes were used and why, for the record: they give what this machine gives, and `files` are read or sent."""
    used = {one.node: one for one in ready}
    computed = [one for one in used.values() if one.agreement]
    same = sum(one.agreement == SAME_BITS for one in computed)
    others = [f"{one.node}: {one.agreement}" for one in computed if one.agreement != SAME_BITS]
    read = all(one.reads for one in used.values())
    facts = [f"the nodes of {address} that {gives}"]
    facts += [f"{format_count(same, 'node')} to the last bit", *others] if computed else []
    facts.append(f"{files} are read by the nodes" if read else f"{files} are sent from here where a node cannot read them")
    facts += [f"not used: {reason}" for reason in refused.values()]
    evidence = {node: {**asdict(one), "unseen": sorted(one.unseen)} for node, one in used.items()}
    return Choice("nodes", len(used), "; ".join(facts), evidence)


def hosts_with(threads: int, *, slots: int = 2) -> Callable[[ClusterNode], list[HostPlan]]:
    """Hosts that compute with `threads` each, as the driver does, for the last bits depend on that; or one on each GPU."""

    def plan(node: ClusterNode) -> list[HostPlan]:
        if node.gpus:
            return [replace(host, slots=slots) for host in one_for_each_core(node)]
        cores = min(node.cpus, max(1, threads))
        return [HostPlan(cores, 0.0, slots)] * (node.cpus // cores) if cores else []

    return plan
