"""Hosts: processes on nodes that hold what a body needs and answer tasks, and how the driver starts and ends them.

A `Host` runs inside a Ray actor. Everything crosses as bytes that this module packs and unpacks, so an error of a body arrives as
it does from a worker process. A node whose unchoke is another one, or that `setup` finds unfit, raises `NodeRefused` and is not
used. The engine for tasks (`ray_engine.py`) and teams that work together (`team.py`) both stand on this. Ray's own restarts and
retries are off: see docs/decisions/0032.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pickle
import platform
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from unchoke.core import listing
from unchoke.core.errors import MachineError
from unchoke.jobs.attempts import Outcome, answer, pack_failure
from unchoke.jobs.cluster.connection import Cluster, ClusterNode, explained, import_ray
from unchoke.machine.detect import usable_cores

PACKAGES = ("torch", "torchvision", "timm", "numpy", "openvino", "simplejpeg", "Pillow", "ray")
"""What the numbers of a node may depend on."""


class NodeRefused(MachineError):  # noqa: N818 (what happened, as `WorkerDied`)
    """This node is not used, and why; the others are."""


class Host:
    """The body of an actor: `ready` once, then `run` for each task."""

    def __init__(self, parcel: bytes, unchoke_digest: str) -> None:
        self._parcel, self._digest = parcel, unchoke_digest
        self._body: Any = None

    def ready(self) -> bytes:
        """Unpack the body and set it up; the outcome's value is what `setup` handed back, for packing the tasks."""
        try:
            if self._digest != (here := source_digest()):
                raise NodeRefused(
                    f"{socket.gethostname()} has another unchoke",
                    code="node-other-source",
                    why=f"its source has the digest {here}, the driver's {self._digest}: they might compute other numbers",
                    try_="install the same version there: pip install 'unchoke[ray]'",
                )
            self._body, setup, setup_args = pickle.loads(self._parcel)
            self._parcel = b""
            found = setup(*setup_args) if setup is not None else None
        except (Exception, SystemExit) as error:
            return pack_failure(error)
        return pickle.dumps(Outcome(None, value=found))

    def run(self, message: bytes) -> bytes:
        """The outcome of one task."""
        return answer(self._body, message)

    def process(self) -> tuple[str, int]:
        """Which machine and which process this is."""
        return socket.gethostname(), os.getpid()


def assigned_cores() -> int:
    """Cores that the cluster gave the process this runs in, no more than there are."""
    given = import_ray().get_runtime_context().get_assigned_resources().get("CPU", 0)
    return max(1, min(int(given), usable_cores()))


@cache
def source_digest() -> str:
    """A digest of unchoke's own source: two machines with the same one run the same code."""
    state = hashlib.sha256()
    for file in listing.walk(Path(__file__).parents[2]):
        if file.relative.endswith((".py", ".toml")):
            state.update(file.relative.encode() + b"\0" + Path(file.path).read_bytes() + b"\0")
    return state.hexdigest()[:16]


def versions() -> dict[str, str]:
    """The installed versions of what numbers may depend on."""
    found = {"python": platform.python_version(), "unchoke": source_digest()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


@dataclass(frozen=True)
class HostPlan:
    """One host on a node: what it takes of it, and how many tasks it runs at a time."""

    cpus: float = 1.0
    gpus: float = 0.0
    slots: int = 1


def one_for_each_core(node: ClusterNode) -> list[HostPlan]:
    """Hosts that compute on one core each; or on one GPU each, where a node has some."""
    if node.gpus:
        return [HostPlan(max(1.0, node.cpus // node.gpus), 1.0, 2)] * node.gpus
    return [HostPlan()] * node.cpus


def one_for_each_node(node: ClusterNode, *, gpus: bool = True) -> list[HostPlan]:
    """One host with all cores of a node and as many tasks at a time; or, with `gpus`, one on each GPU."""
    if node.gpus and gpus:
        return one_for_each_core(node)
    return [HostPlan(node.cpus, 0.0, node.cpus)] if node.cpus else []


def start_host(cluster: Cluster, node: ClusterNode, plan: HostPlan, parcel: Any) -> tuple[Any, Any]:
    """A host on that very node, and the reference to what its set-up answers. `parcel` refers to body and set-up."""
    host = cluster.ray.remote(Host).options(
        num_cpus=plan.cpus,
        num_gpus=plan.gpus,
        max_concurrency=plan.slots,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=on_node(node),
    )
    with explained(cluster.address):
        actor = host.remote(parcel, source_digest())
        return actor, actor.ready.remote()


def on_node(node: ClusterNode) -> Any:
    """The scheduling strategy that means this node and no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.node_id, soft=False)


def end_host(cluster: Cluster, actor: Any) -> None:
    """End a host at once, whatever it does."""
    with suppress(Exception):  # it is dead, or the cluster is: either way nothing of ours runs there
        cluster.ray.kill(actor, no_restart=True)


def raise_set_up_error(node: ClusterNode, outcome: Outcome[Any, Any]) -> None:
    """An error of the set-up, with where it happened; a node that refuses itself is not one."""
    if outcome.error is not None and not isinstance(outcome.error, NodeRefused):
        outcome.error.add_note(f"in the set-up on {node}:\n{outcome.traceback_text}")
        raise outcome.error


def node_is_away(cluster: Cluster, error: Exception) -> bool:
    """Whether an error of a call says that the node is gone, or cannot be reached now, rather than the process on it."""
    return isinstance(error, cluster.ray.exceptions.ActorUnavailableError) or "node has died" in str(error)


def first_line(error: BaseException) -> str:
    """The first line of Ray's message; the rest is about its inner workings."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
