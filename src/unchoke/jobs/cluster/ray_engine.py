"""The contract of `jobs/job_engines.py` over a Ray cluster: hosts on nodes, tasks as there is room, one outcome each.

In: a cluster, what each node may hold, and how a task is packed for a node and its answer unpacked again. Hosts are replaced when
they die. A worker process that dies under a task is that task's outcome (`WorkerDied`), as on one machine; the tasks of a *node*
that is lost are given to others. Ray's own restarts and retries are off: they cannot tell the two apart, so a task that kills its
worker would be tried for ever. A node is lost when the cluster's list says so: calls to a machine that fell silent may never
return.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from unchoke.core.errors import MachineError
from unchoke.core.events import Note, OnEvent, ignore
from unchoke.core.units import format_count
from unchoke.jobs.attempts import Outcome, TaskFailed, WorkerDied
from unchoke.jobs.cluster.connection import Cluster, ClusterNode, explained
from unchoke.jobs.cluster.hosts import (
    HostPlan,
    NodeRefused,
    end_host,
    first_line,
    node_is_away,
    one_for_each_core,
    raise_set_up_error,
    start_host,
)

T = TypeVar("T")
Pack = Callable[[Any, Any], Any]
"""A task as it travels to a host; the second argument is what `setup` handed back there."""
Unpack = Callable[[Any, Any], Any]
"""What a body returned for a task, brought home."""

_LOOK_EVERY_S = 1.0
_NOBODY_LEFT_S = 60.0
"""How long a cluster without a usable node is waited for."""
_FREE_RETURNS = 5
"""How often a task is given to another host because its own was lost, before that counts against the task."""
_STILLBORN_LIMIT = 3
_START_WITHIN_S = 600.0
_TELL_WAITING_S = 45.0


class RayEngine:
    """Runs bodies on the nodes of a cluster. The body, `setup` and what `pack` returns must be picklable."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        plan: Callable[[ClusterNode], Sequence[HostPlan]] = one_for_each_core,
        pack: Pack = lambda task, _facts: task,
        unpack: Unpack = lambda _task, value: value,
        on_event: OnEvent = ignore,
    ) -> None:
        self.cluster, self._plan, self._pack, self._unpack, self._on_event = cluster, plan, pack, unpack, on_event
        self._stopped = False
        self.facts: dict[str, Any] = {}
        """What `setup` handed back, by the name of the node."""

    def map_unordered(
        self,
        body: Callable[[Any], Any],
        tasks: Iterable[T],
        *,
        setup: Callable[..., Any] | None = None,
        setup_args: tuple[Any, ...] = (),
    ) -> Generator[Outcome[T, Any], None, None]:
        self._stopped = False
        return self._run(iter(tasks), pickle.dumps((body, setup, setup_args)))

    def stop(self, *, now: bool = False) -> None:
        self._stopped = True  # closing the outcomes waits for nobody anyway

    def _run(self, waiting: Iterator[T], parcel: bytes) -> Generator[Outcome[T, Any], None, None]:
        first = next(waiting, None) if not self._stopped else None
        if first is None:
            return  # nothing to do starts nothing
        crew: _Crew[T] = _Crew(self.cluster, self._plan, parcel, self._on_event, self.facts)
        again: deque[_Given[T]] = deque([_Given(first)])
        more = True
        try:
            while True:
                while (again or (more and not self._stopped)) and (host := crew.free(alone=bool(again) and again[0].alone)):
                    try:
                        errand = again.popleft() if again else _Given(next(waiting))
                    except StopIteration:
                        more = False
                        break
                    failure: Outcome[T, Any] | None = self._give(crew, host, errand)
                    if failure is not None:
                        yield failure
                if not crew.num_in_flight and not again and (self._stopped or not more):
                    return
                for errand, answer in crew.collect():
                    if isinstance(answer, _Lost) and errand.times < _FREE_RETURNS:
                        again.append(_Given(errand.task, errand.times + 1, errand.alone or answer.suspect))
                    else:
                        yield self._outcome(errand.task, answer)
        finally:
            crew.dismiss()

    def _give(self, crew: _Crew[T], host: _Hosted[T], errand: _Given[T]) -> Outcome[T, Any] | None:
        """Send the task; an outcome where that is impossible."""
        try:
            message = pickle.dumps(self._pack(errand.task, host.facts))
        except MachineError as error:  # of this machine, or of a store that answers nobody
            return Outcome(errand.task, error=error)
        except Exception as error:
            failure = TaskFailed(f"the task cannot be sent to a node: {type(error).__name__}: {error}")
            return Outcome(errand.task, error=failure, traceback_text=traceback.format_exc())
        crew.give(host, errand, message)
        return None

    def _outcome(self, task: T, answer: bytes | BaseException | _Lost) -> Outcome[T, Any]:
        if isinstance(answer, _Lost):
            return Outcome(task, error=WorkerDied(answer.reason))
        if isinstance(answer, BaseException):
            return Outcome(task, error=answer)
        try:
            found: Outcome[Any, Any] = pickle.loads(answer)
            value = self._unpack(task, found.value) if found.error is None else None
        except MachineError as error:
            return Outcome(task, error=error)
        except Exception as error:
            failure = TaskFailed(f"the result cannot be brought home: {type(error).__name__}: {error}")
            return Outcome(task, error=failure, traceback_text=traceback.format_exc())
        return Outcome(task, value, found.error, found.traceback_text, found.seconds)


@dataclass(frozen=True)
class _Lost:
    """The host vanished under the task: with its node, or by the doing of one of the tasks it ran, each of them `suspect`."""

    reason: str
    suspect: bool = False


Answer = bytes | BaseException | _Lost


@dataclass(frozen=True, eq=False)
class _Given(Generic[T]):
    """A task, how often it came back undone, and whether it must be run alone: one that may have killed its host."""

    task: T
    times: int = 0
    alone: bool = False


@dataclass(eq=False)
class _Hosted(Generic[T]):
    """A host as the driver sees it."""

    node: ClusterNode
    plan: HostPlan
    actor: Any
    ready_ref: Any
    started_s: float
    facts: Any = None
    is_ready: bool = False
    in_flight: dict[Any, _Given[T]] = field(default_factory=dict)

    @property
    def room(self) -> int:
        busy_alone = any(errand.alone for errand in self.in_flight.values())
        return self.plan.slots - len(self.in_flight) if self.is_ready and not busy_alone else 0


class _Crew(Generic[T]):
    """The hosts of one run: started on every node that may have some, watched, replaced, and ended with the run."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Callable[[ClusterNode], Sequence[HostPlan]],
        parcel: bytes,
        on_event: OnEvent,
        facts: dict[str, Any],
    ) -> None:
        self._cluster, self._ray, self._plan, self._on_event, self._facts = cluster, cluster.ray, plan, on_event, facts
        with explained(cluster.address):
            self._parcel = self._ray.put(parcel)
        self._hosts: list[_Hosted[T]] = []
        self._answers: list[tuple[_Given[T], Answer]] = []
        self._stillborn: Counter[str] = Counter()
        self._told_lost: set[str] = set()
        self._looked_at = float("-inf")
        self._alone_since: float | None = None
        self._began_s, self._told_waiting = time.monotonic(), False

    @property
    def num_in_flight(self) -> int:
        return sum(len(host.in_flight) for host in self._hosts) + len(self._answers)

    def free(self, *, alone: bool) -> _Hosted[T] | None:
        """A host with room, the idlest first, or one that does nothing; answers that wait are read before more is given."""
        self._look()
        free = [host for host in self._hosts if host.room > 0 and not (alone and host.in_flight)]
        return max(free, key=lambda host: host.room) if free and not self._answers else None

    def give(self, host: _Hosted[T], errand: _Given[T], message: bytes) -> None:
        with explained(self._cluster.address):
            host.in_flight[host.actor.run.remote(message)] = errand

    def collect(self) -> list[tuple[_Given[T], Answer]]:
        """What came back within about a second; nothing where nothing did."""
        self._look()
        refs = [ref for host in self._hosts for ref in host.in_flight]
        refs += [host.ready_ref for host in self._hosts if not host.is_ready]
        if refs and not self._answers:
            with explained(self._cluster.address):
                ready, more = self._ray.wait(refs, num_returns=1, timeout=_LOOK_EVERY_S, fetch_local=False)
                ready += self._ray.wait(more, num_returns=len(more), timeout=0, fetch_local=False)[0] if more else []
            for host in list(self._hosts):
                self._hear(host, set(ready))
        elif not self._answers:
            time.sleep(_LOOK_EVERY_S / 4)
        answers, self._answers = self._answers, []
        return answers

    def dismiss(self) -> None:
        """End every host at once: whatever it still does nobody waits for."""
        for host in self._hosts:
            end_host(self._cluster, host.actor)
        self._hosts.clear()

    def _hear(self, host: _Hosted[T], ready: set[Any]) -> None:
        if not host.is_ready:
            if host.ready_ref in ready:
                self._begin(host)
            elif time.monotonic() - host.started_s > _START_WITHIN_S:
                self._bury(host, f"{host.node} did not get ready within {_START_WITHIN_S:g} s")
            return
        for ref in [ref for ref in host.in_flight if ref in ready]:
            if ref not in host.in_flight:
                continue  # it was lost with the others of its host
            try:
                answer = self._ray.get(ref, timeout=60)
            except Exception as error:
                self._fell(host, ref, error)
                continue
            self._answers.append((host.in_flight.pop(ref), answer))

    def _begin(self, host: _Hosted[T]) -> None:
        """The host's set-up is over, one way or the other."""
        try:
            outcome: Outcome[Any, Any] = pickle.loads(self._ray.get(host.ready_ref, timeout=60))
        except Exception as error:
            if self._is_lost(host, error):
                self._bury(host, f"{host.node} was lost")
                return
            self._drop(host)
            self._stillborn[host.node.node_id] += 1
            if (died := self._stillborn[host.node.node_id]) >= _STILLBORN_LIMIT:
                reason = f"{format_count(died, 'host')} in a row died before they were ready: {first_line(error)}"
                self._refuse(host.node, reason)
            return
        raise_set_up_error(host.node, outcome)
        if isinstance(outcome.error, NodeRefused):
            self._refuse(host.node, f"{outcome.error.what}: {outcome.error.why}")
        else:
            host.is_ready, host.facts = True, outcome.value
            self._facts[host.node.name] = outcome.value
            self._stillborn.pop(host.node.node_id, 0)

    def _fell(self, host: _Hosted[T], ref: Any, error: Exception) -> None:
        """A call failed: the cluster is gone, the node, the process that answered, or only what it answered."""
        if isinstance(error, ConnectionError):
            with explained(self._cluster.address):
                raise error
        if isinstance(error, self._ray.exceptions.GetTimeoutError | self._ray.exceptions.ObjectLostError):
            self._answers.append((host.in_flight.pop(ref), _Lost(first_line(error))))
            return
        if not isinstance(error, self._ray.exceptions.RayActorError | self._ray.exceptions.OutOfMemoryError):
            failure = TaskFailed(f"{type(error).__name__}: {first_line(error)}")
            self._answers.append((host.in_flight.pop(ref), failure))
            return
        if self._is_lost(host, error):
            self._bury(host, f"{host.node} was lost")
            return
        died = f"the worker process on {host.node} died: {_how_it_died(error)}"
        alone = len(host.in_flight) == 1
        self._answers += [
            (errand, WorkerDied(died) if alone else _Lost(died, suspect=True)) for errand in host.in_flight.values()
        ]
        self._drop(host)

    def _is_lost(self, host: _Hosted[T], error: Exception) -> bool:
        """Whether the whole node is gone, and not only the process on it."""
        return node_is_away(self._cluster, error) or host.node.node_id not in {node.node_id for node in self._cluster.nodes()}

    def _bury(self, host: _Hosted[T], reason: str) -> None:
        """The host is gone, or as good as gone: its tasks go to others."""
        going_on = "; what it was doing goes to other nodes" if host.in_flight else ""
        if going_on or host.node.node_id not in self._told_lost:  # it may be listed a little longer, and be tried again
            self._on_event(Note(f"{reason}{going_on}", level="warning"))
        self._told_lost.add(host.node.node_id)
        self._answers += [(errand, _Lost(reason)) for errand in host.in_flight.values()]
        self._drop(host)

    def _drop(self, host: _Hosted[T]) -> None:
        host.in_flight.clear()
        self._hosts.remove(host)
        end_host(self._cluster, host.actor)

    def _refuse(self, node: ClusterNode, reason: str) -> None:
        self._cluster.refused[node.node_id] = reason
        self._on_event(Note(f"{node} is not used: {reason}", level="warning"))
        for host in [host for host in self._hosts if host.node.node_id == node.node_id]:
            self._answers += [(errand, _Lost(reason)) for errand in host.in_flight.values()]
            self._drop(host)

    def _look(self) -> None:
        """Once in a while compare the hosts with the nodes there are: bury those of lost nodes, start what is missing."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        nodes = {node.node_id: node for node in self._cluster.nodes()}
        for host in list(self._hosts):
            if host.node.node_id not in nodes:
                self._bury(host, f"{host.node} was lost")
        usable = [node for node in nodes.values() if node.node_id not in self._cluster.refused]
        for node in usable:
            here = [host.plan for host in self._hosts if host.node.node_id == node.node_id]
            for plan in self._plan(node)[len(here) :]:
                actor, ready = start_host(self._cluster, node, plan, self._parcel)
                self._hosts.append(_Hosted(node, plan, actor, ready, now))
        if not self._told_waiting and now - self._began_s >= _TELL_WAITING_S and not any(host.is_ready for host in self._hosts):
            self._told_waiting = True
            waits = "the nodes are still starting, or others use their cores: `ray status` on the head says which"
            self._on_event(Note(f"no node is ready after {_TELL_WAITING_S:g} s: {waits}", level="warning"))
        self._refuse_to_wait_for_ever(now, list(nodes.values()))

    def _refuse_to_wait_for_ever(self, now: float, nodes: list[ClusterNode]) -> None:
        if self._hosts:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or now
        refused = [f"{node}: {reason}" for node in nodes if (reason := self._cluster.refused.get(node.node_id))]
        wanted = [node for node in nodes if self._plan(node)]
        all_refused = bool(wanted) and all(node.node_id in self._cluster.refused for node in wanted)
        if not all_refused and now - self._alone_since < _NOBODY_LEFT_S:
            return
        raise MachineError(
            f"no node of the cluster at {self._cluster.address} can do this work",
            code="no-usable-node",
            why="; ".join(refused) or f"{format_count(len(nodes), 'node')} answer, and none has a free core",
            try_=f"unchoke cluster check {self._cluster.address}",
        )


def _how_it_died(error: BaseException) -> str:
    """Ray's account of a dead worker in a few words: the kind of exit, and its detail."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line.startswith(("Worker exit", "The actor is dead", "Task was killed"))]
    text = " ".join(telling) or first_line(error)
    hint = " (often the system's answer to too little memory)" if "connection error code 2" in text or "OOM" in text else ""
    return text[:400] + hint
