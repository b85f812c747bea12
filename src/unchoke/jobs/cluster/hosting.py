"""Hosts as the driver sees them: how many a node gets, how one is started and ended, and what Ray's errors say of it.

The engine for tasks (`ray_engine.py`) and teams that work together (`team.py`) both stand on this. Ray's own restarts and
retries are off: see docs/decisions/0032.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from unchoke.jobs.cluster.connection import Cluster, ClusterNode, explained
from unchoke.jobs.cluster.host import Host, source_digest


@dataclass(frozen=True)
class HostPlan:
    """One host on a node: what it takes of it, and how many tasks it runs at a time."""

    cpus: float = 1.0
    gpus: float = 0.0
    slots: int = 1


def one_for_each_core(node: ClusterNode) -> list[HostPlan]:
    """Hosts that compute on one core each; or on one card each, where a node has some."""
    if node.gpus:
        return [HostPlan(max(1.0, node.cpus // node.gpus), 1.0, 2)] * node.gpus
    return [HostPlan()] * node.cpus


def one_for_each_node(node: ClusterNode) -> list[HostPlan]:
    """One host with all cores of a node, as many tasks side by side; or one on each card."""
    if node.gpus:
        return one_for_each_core(node)
    return [HostPlan(node.cpus, 0.0, node.cpus)] if node.cpus else []


def start_host(cluster: Cluster, node: ClusterNode, plan: HostPlan, parcel: Any) -> tuple[Any, Any]:
    """A host on that very node, and what its set-up will answer. `parcel` is where the cluster keeps body and set-up."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    host = cluster.ray.remote(Host).options(
        num_cpus=plan.cpus,
        num_gpus=plan.gpus,
        max_concurrency=plan.slots,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
    )
    with explained(cluster.address):
        actor = host.remote(parcel, source_digest())
        return actor, actor.ready.remote()


def end_host(cluster: Cluster, actor: Any) -> None:
    """End a host at once, whatever it does."""
    with suppress(Exception):  # it is dead, or the cluster is: either way nothing of ours runs there
        cluster.ray.kill(actor, no_restart=True)


def node_is_away(cluster: Cluster, error: Exception) -> bool:
    """Whether an error of a call says that the node is gone, or cannot be reached now, rather than the process on it."""
    return isinstance(error, cluster.ray.exceptions.ActorUnavailableError) or "node has died" in str(error)


def first_line(error: BaseException) -> str:
    """The first line of what Ray says; the rest is about its inner workings."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
