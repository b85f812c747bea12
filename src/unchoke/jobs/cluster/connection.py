"""A Ray cluster as the driver sees it: how it is reached, which nodes it has, and which of them are still there.

In: an address, as `--on` takes it. Out: a `Cluster`. Ray's own errors become ours here. Nothing is ever stopped but what this
process started: a cluster belongs to the person who started it.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from unchoke.core.errors import MachineError, UsageError, missing_extra
from unchoke.core.units import format_count

LOCAL = "local"
CLIENT_PORT = 10001
GCS_PORT = 6379
KEEPALIVE = {"RAY_grpc_client_keepalive_time_ms": "2000", "RAY_grpc_client_keepalive_timeout_ms": "3000"}
"""What makes a machine notice that another one is silently gone; without it a call to that one is waited for without end."""
_ANSWERS_WITHIN_S = 5.0
_CLIENT_QUESTION, _GCS_QUESTION = "/ray.rpc.RayletDriver/ClusterInfo", "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""Small questions to a cluster from outside and from within, by their names in Ray's protocol."""
_TRIES = 3
_FORM = re.compile(r"(?P<client>ray://)?(?P<host>[^\s:/\[\]]+|\[[0-9A-Fa-f:]+\])(?::(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True)
class ClusterNode:
    """A machine of the cluster, as the cluster's own list has it."""

    node_id: str
    name: str
    address: str
    cpus: int
    gpus: int
    memory_bytes: int

    def __str__(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


@dataclass
class Cluster:
    """A connection to the cluster at `address`. Close it when the work is done: what it started there ends with it."""

    address: str
    ray: Any = field(repr=False)
    refused: dict[str, str] = field(default_factory=dict)
    """Nodes that are not used, by id, with the reason: asked once and then left alone."""

    def nodes(self) -> list[ClusterNode]:
        """The nodes that answer now, in the order of their addresses; a `MachineError` where the cluster itself is gone."""
        with explained(self.address):
            listed = within(lambda: self.ray.nodes(), seconds=30.0)
        found = []
        for row in (row for row in listed if row.get("Alive")):
            cpus, gpus, memory_bytes = (int((row.get("Resources") or {}).get(name, 0)) for name in ("CPU", "GPU", "memory"))
            address = str(row.get("NodeManagerAddress"))
            name = str(row.get("NodeManagerHostname") or address)
            found.append(ClusterNode(str(row["NodeID"]), name, address, cpus, gpus, memory_bytes))
        return sorted(found, key=lambda node: (node.name, node.address, node.node_id))

    def in_words(self) -> str:
        """How many nodes answer now."""
        num = len(self.nodes())
        return f"{format_count(num, 'node')} of that cluster {'answers' if num == 1 else 'answer'}"

    def close(self) -> None:
        """Let go of the cluster; hosts that still run there end."""
        with suppress(Exception):  # it may be gone: there is nothing left to let go of
            self.ray.shutdown()


def connect(address: str) -> Cluster:
    """Reach the cluster at `address`: ``ray://host:10001`` from outside it, ``host:6379`` or ``auto`` on one of its machines."""
    where = checked_address(address)
    if where != "auto":
        _refuse_silence(where)
    ray = import_ray()
    _refuse_other_token(address, where)
    _hush(ray)
    with explained(address):
        for left in reversed(range(_TRIES)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what goes wrong is said below, in our words
                    ray.init(where, namespace="unchoke", log_to_driver=False, configure_logging=True, logging_level="CRITICAL")
                break
            except ConnectionAbortedError:  # a busy head was too slow to start the process that serves this client
                if not left:
                    raise
    return Cluster(address, ray)


_reached: dict[str, Cluster] = {}
"""The cluster this process is connected to: Ray knows one at a time."""


def cluster_at(address: str | None) -> Cluster | None:
    """The cluster at `address`, connected on first use; None for this machine alone."""
    if address in (None, LOCAL):
        return None
    assert address is not None
    if address not in _reached:
        leave_cluster()
        _reached[address] = connect(address)
    return _reached[address]


def leave_cluster() -> None:
    """Let go of the cluster this process is connected to, if it is."""
    for address in list(_reached):
        _reached.pop(address).close()


def checked_address(address: str) -> str:
    """The address with its port; refused where it cannot be one."""
    if address == "auto":
        return address
    match = _FORM.fullmatch(address)
    if match is None or int(match["port"] or 1) > 65535:
        raise UsageError(
            f"--on {address!r} is no address of a cluster",
            code="bad-cluster-address",
            why="it is ray://HOST:PORT, HOST:PORT, auto (this machine is part of one) or local (no cluster)",
            try_=f"--on ray://HOST:{CLIENT_PORT}",
        )
    port = match["port"] or str(CLIENT_PORT if match["client"] else GCS_PORT)
    return f"{match['client'] or ''}{match['host']}:{port}"


def import_ray() -> Any:
    """Ray, quiet and without its reports home; what it reads from the environment is set before it is loaded."""
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # a lost cluster must not be replaced by one that Ray starts here unasked
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", "GRPC_VERBOSITY": "NONE", **KEEPALIVE}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", extra="ray", purpose="running on a cluster (--on)") from error
    return ray


def within(ask: Callable[[], Any], *, seconds: float) -> Any:
    """What `ask` answers; a `TimeoutError` where that takes longer: the thread that waits for it is left behind."""
    answer: list[Any] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(ask())
        except BaseException as caught:
            error.append(caught)

    thread = threading.Thread(target=run, daemon=True, name="unchoke-ask-cluster")
    thread.start()
    thread.join(seconds)
    if error:
        raise error[0]
    if not answer:
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    return answer[0]


@contextmanager
def explained(address: str) -> Iterator[None]:
    """What Ray raises about reaching a cluster, as a sentence."""
    try:
        yield
    except (UsageError, MachineError):
        raise
    except Exception as error:  # Ray raises many types here: its own, gRPC's, and plain ones
        raise _explain(address, error) from error


def _explain(address: str, error: Exception) -> MachineError:
    text = " ".join(str(error).split())
    short = f"{type(error).__name__}: {text[:300]}"
    host = address.removeprefix("ray://").rpartition(":")[0] or address
    if re.search(r"authenticat|authoriz|token", f"{type(error).__name__} {text}", re.IGNORECASE):
        return _not_let_in(address, f"its token is another one, or one side has none ({short})")
    if "client connection timeout" in text:
        why = "something listens there and does not answer: mostly the token is another one, or one side has none"
        return _not_let_in(address, why)
    if "NOT_FOUND" in text:  # another cluster answers at its address, which has never heard of this program
        what, code = f"the cluster at {address} was started anew, or its head was", "cluster-restarted"
        why = "what this program had there is gone; what is finished here is kept"
        try_ = "run the same command again: it goes on from here"
    elif "ersion mismatch" in text:
        what, code, why = f"the cluster at {address} runs other versions", "cluster-versions-differ", text[:400]
        try_ = "the same Ray and the same Python on every machine: pip install 'unchoke[ray]' in the same Python there"
    elif address == "auto" and isinstance(error, ConnectionError):
        what, code = "this machine is part of no cluster", "cluster-not-found"
        why = "--on auto looks for one that runs here, and found none"
        try_ = f"ray start --address=HEAD:{GCS_PORT}, or name the cluster: --on ray://HEAD:{CLIENT_PORT}"
    elif not address.startswith("ray://") and isinstance(error, ConnectionError):
        what, code = f"the cluster at {address} does not take this machine in", "cluster-refuses-machine"
        why = f"something listens there, but HOST:PORT is for machines that are part of the cluster, with its token ({short})"
        try_ = f"--on ray://{host}:{CLIENT_PORT} from outside the cluster; the token of the cluster in RAY_AUTH_TOKEN_PATH"
    else:
        what, code, why = f"the cluster at {address} does not answer", "cluster-silent", short
        try_ = "`ray status` on its head says whether it runs; then run the same command again: what is finished is kept"
    return MachineError(what, code=code, why=why, try_=try_)


def _refuse_silence(where: str) -> None:
    """Say at once that nothing listens there: Ray itself would try for a minute."""
    host, _, port = where.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_WITHIN_S).close()
    except (OSError, UnicodeError) as error:  # the second: no name of a machine is that long
        raise MachineError(
            f"nothing answers at {where}",
            code="cluster-silent",
            why=getattr(error, "strerror", None) or str(error),
            try_="`ray start --head` on that machine, or another address with --on",
        ) from error


def _refuse_other_token(address: str, where: str) -> None:
    """Ask the cluster one small thing, which it refuses at once where the token is another one: Ray would try for half a minute.

    Whatever else comes of it is left to Ray, and so is a Ray that keeps these parts elsewhere.
    """
    try:
        import grpc
        from ray._private.grpc_utils import init_grpc_channel
        from ray._private.services import get_ray_address_from_environment

        server = get_ray_address_from_environment("auto", None) if where == "auto" else where
    except (ImportError, TypeError, ConnectionError):  # the last: no cluster runs here, which Ray will say
        return
    method = _CLIENT_QUESTION if server.startswith("ray://") else _GCS_QUESTION
    try:
        with init_grpc_channel(server.removeprefix("ray://")) as channel:
            channel.unary_unary(method)(b"", timeout=_ANSWERS_WITHIN_S)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise _not_let_in(address, f"its token is another one, or one side has none ({error.details()})") from error
    except Exception as error:  # a token file that is not there, in whatever words this Ray has for it
        with explained(address):
            raise error


def _not_let_in(address: str, why: str) -> MachineError:
    return MachineError(
        f"the cluster at {address} does not let this program in",
        code="cluster-refuses-login",
        why=why,
        try_="the same RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE here as where the cluster was started",
    )


def _hush(ray: Any) -> None:
    """Ray prints what its daemons say of lost nodes and dead workers among the results of this program, and has no option for
    it. We say these things ourselves."""
    from ray.util.client.logsclient import LogstreamClient

    LogstreamClient.stdstream = LogstreamClient.log = lambda *_arguments, **_options: None
    logging.getLogger(LogstreamClient.__module__).disabled = True
    ray._private.worker.print_to_stdstream = lambda *_arguments, **_options: None
