"""Processes on several nodes that do one piece of work together: all of them, or none.

In: a cluster, how many processes are wanted, and what each must be able to do. Out: a `Team` of those that can. Unlike the hosts
of `ray_engine.py`, which answer tasks one by one, teammates need each other: when one is lost, the work of all of them ends, and
the caller begins again with a new team. What they do is the caller's.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from unchoke.core.events import Note, OnEvent
from unchoke.core.units import format_count
from unchoke.jobs.attempts import Outcome, WorkerDied
from unchoke.jobs.cluster.connection import Cluster, ClusterNode, explained
from unchoke.jobs.cluster.hosts import (
    HostPlan,
    NodeRefused,
    end_host,
    first_line,
    node_is_away,
    raise_set_up_error,
    start_host,
)

_READY_WITHIN_S = 180.0
_WAIT_S = 0.3
_CALLS = 3
"""Calls that a teammate answers at a time: the work, and questions about it."""


class NodeSilent(WorkerDied):
    """The process may be gone with its node: the cluster's list will say so soon, or not."""


@dataclass(frozen=True)
class Place:
    """Room for one process on a node."""

    node: ClusterNode
    cpus: int
    gpus: int = 0


def plan_places(nodes: Sequence[ClusterNode], num: int | None, *, gpus: bool) -> list[Place]:
    """Where processes can be, those of different nodes first: one for each GPU, or one for each node with all of its cores.

    A node without GPUs is shared by several only where `num` asks for more than there are nodes.
    """
    if gpus:
        by_node = [[Place(node, max(1, node.cpus // node.gpus), 1)] * node.gpus for node in nodes if node.gpus]
    else:
        usable = [node for node in nodes if node.cpus]
        each, most = 1, max((node.cpus for node in usable), default=1)
        while num is not None and each < most and sum(min(each, node.cpus) for node in usable) < num:
            each += 1
        by_node = [[Place(node, node.cpus // min(each, node.cpus))] * min(each, node.cpus) for node in usable]
    return [place for row in zip_longest(*by_node) for place in row if place is not None]


@dataclass(eq=False)
class Teammate:
    """A process on a node, as the driver sees it."""

    place: Place
    actor: Any
    ready_ref: Any

    @property
    def node(self) -> ClusterNode:
        return self.place.node


class TeamNeed(NamedTuple):
    """What each process of a team runs: `body` for every task, after `setup`, which refuses an unfit node with `NodeRefused`."""

    body: Callable[[Any], Any]
    setup: Callable[..., Any]
    setup_args: tuple[Any, ...]


class Team:
    """Processes that are ready, in the order of their nodes. Ends them when it is closed."""

    def __init__(self, cluster: Cluster, mates: list[Teammate]) -> None:
        self.cluster, self.mates, self._ray = cluster, mates, cluster.ray

    def ask(self, mate: Teammate, task: Any) -> Any:
        """Give a process a task; what comes back is waited for with `answers`."""
        with explained(self.cluster.address):
            return mate.actor.run.remote(pickle.dumps(task))

    def answers(self, refs: Sequence[Any], *, timeout_s: float = _WAIT_S) -> Iterator[tuple[Any, Outcome[Any, Any]]]:
        """Those of `refs` that are answered by now; a process that is gone answers with `WorkerDied`."""
        with explained(self.cluster.address):
            ready, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=timeout_s, fetch_local=False)
        for ref in ready:
            try:
                outcome: Outcome[Any, Any] = pickle.loads(self._ray.get(ref, timeout=60))
            except Exception as error:  # Ray's own, of many types: whatever it was, that process does not answer
                kind = NodeSilent if node_is_away(self.cluster, error) else WorkerDied
                outcome = Outcome(None, error=kind(first_line(error)))
            yield ref, outcome

    def lost(self) -> list[ClusterNode]:
        """The nodes of this team that the cluster has lost."""
        alive = {node.node_id for node in self.cluster.nodes()}
        return list({mate.node.node_id: mate.node for mate in self.mates if mate.node.node_id not in alive}.values())

    def close(self) -> None:
        """End every process of the team at once, whatever it does."""
        for mate in self.mates:
            end_host(self.cluster, mate.actor)
        self.mates.clear()


def recruit(
    cluster: Cluster,
    places: Sequence[Place],
    need: TeamNeed,
    *,
    num: int,
    on_event: OnEvent,
    stop: Callable[[], bool] = lambda: False,
) -> Team:
    """A team of up to `num` processes at the first of `places` that are fit; the others are told of. None may be."""
    with explained(cluster.address):
        parcel = cluster.ray.put(pickle.dumps(tuple(need)))
    order = list(dict.fromkeys(place.node.node_id for place in places))
    waiting = [place for place in places if place.node.node_id not in cluster.refused]
    team, starting = Team(cluster, []), list[Teammate]()
    until = time.monotonic() + _READY_WITHIN_S
    try:
        while not stop():
            while waiting and len(team.mates) + len(starting) < num:
                place = waiting.pop(0)
                plan = HostPlan(place.cpus, place.gpus, _CALLS)
                starting.append(Teammate(place, *start_host(cluster, place.node, plan, parcel)))
            if not starting:
                break
            late = time.monotonic() > until
            alive = {node.node_id for node in cluster.nodes()}
            heard = dict(team.answers([mate.ready_ref for mate in starting]))
            for mate in list(starting):
                reason = _unfit(mate, heard.get(mate.ready_ref), alive=mate.node.node_id in alive, late=late)
                if reason is None:
                    continue
                starting.remove(mate)
                if not reason:
                    team.mates.append(mate)
                    continue
                end_host(cluster, mate.actor)
                on_event(Note(f"{mate.node} does not take part: {reason}", "warning"))
                waiting = [place for place in waiting if place.node.node_id != mate.node.node_id]
    except BaseException:
        team.close()
        raise
    finally:
        for mate in starting:
            end_host(cluster, mate.actor)
    team.mates.sort(key=lambda mate: order.index(mate.node.node_id))
    return team


def _unfit(mate: Teammate, outcome: Outcome[Any, Any] | None, *, alive: bool, late: bool) -> str | None:
    """Why this process cannot be used, "" where it can; None while that is not known yet."""
    if not alive:
        return "it was lost"
    if outcome is None:
        waited = f"no room for it, or not ready within {_READY_WITHIN_S:g} s: {format_count(mate.place.cpus, 'core')} wanted"
        return waited if late else None
    if isinstance(outcome.error, NodeRefused):
        return f"{outcome.error.what}: {outcome.error.why}"
    if isinstance(outcome.error, WorkerDied):
        return f"its process died before it was ready: {outcome.error}"
    raise_set_up_error(mate.node, outcome)
    return ""
