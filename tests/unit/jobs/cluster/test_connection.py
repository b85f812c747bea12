"""Addresses, and what Ray says about reaching them, in our words. No cluster is started."""

from __future__ import annotations

import socket
import threading

import pytest

from errors import refused
from unchoke.core.errors import UsageError
from unchoke.jobs.cluster.connection import Cluster, checked_address, cluster_at, connect, explained, within


@pytest.mark.parametrize(
    ("typed", "reached"),
    [
        ("auto", "auto"),
        ("ray://head", "ray://head:10001"),
        ("ray://head:10002", "ray://head:10002"),
        ("head:6380", "head:6380"),
        ("10.0.0.7", "10.0.0.7:6379"),
        ("[::1]:6379", "[::1]:6379"),
    ],
)
def test_an_address_gets_the_port_that_is_usual(typed: str, reached: str) -> None:
    assert checked_address(typed) == reached


@pytest.mark.parametrize("typed", ["", "a b", "http://head:1", "head:99999", "ray://", "head:6379:1"])
def test_no_address_is_refused_with_the_forms(typed: str) -> None:
    with refused("bad-cluster-address") as error:
        checked_address(typed)
    assert "ray://HOST:PORT" in error.value.why


def test_local_is_no_cluster() -> None:
    assert cluster_at("local") is None
    assert cluster_at(None) is None


def test_a_place_where_nothing_listens_is_said_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with refused("cluster-silent", f"127.0.0.1:{port}"):
        connect(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("address", "raised", "code"),
    [
        ("head:1", RuntimeError("AuthenticationError: invalid token"), "cluster-refuses-login"),
        ("ray://head:1", ConnectionError("ray client connection timeout"), "cluster-refuses-login"),
        ("head:1", RuntimeError("Version mismatch: Ray 2.9"), "cluster-versions-differ"),
        ("auto", ConnectionError("Could not find any running Ray instance."), "cluster-not-found"),
        ("head:1", ConnectionError("Failed to connect to Ray cluster"), "cluster-refuses-machine"),
        ("ray://head:1", TimeoutError("no answer"), "cluster-silent"),
    ],
)
def test_errors_of_ray_are_translated(address: str, raised: Exception, code: str) -> None:
    with refused(code) as error, explained(address):
        raise raised
    assert error.value.why and error.value.try_


def test_our_own_errors_pass_unchanged() -> None:
    with refused("of-a-test", "mine"), explained("head:1"):
        raise UsageError("mine", code="of-a-test", why="a test", try_="nothing")


def test_a_question_nobody_answers_is_given_up() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError):
        within(never.wait, seconds=0.05)
    never.set()
    assert within(lambda: 7, seconds=5) == 7
    with pytest.raises(ZeroDivisionError):
        within(lambda: 1 // 0, seconds=5)


class _Listing:
    """What of Ray a list of nodes needs."""

    def nodes(self) -> list[dict[str, object]]:
        shared = {"Resources": {"CPU": 4.0, "GPU": 1.0, "memory": 8e9}, "NodeManagerAddress": "10.0.0.2"}
        return [
            {"NodeID": "b", "Alive": True, "NodeManagerHostname": "two", **shared},
            {"NodeID": "a", "Alive": True, "NodeManagerHostname": "one", **shared},
            {"NodeID": "c", "Alive": False, "NodeManagerHostname": "gone", **shared},
        ]


def test_nodes_that_answer_are_listed_by_name() -> None:
    nodes = Cluster("auto", _Listing()).nodes()
    assert [(node.name, node.cpus, node.gpus) for node in nodes] == [("one", 4, 1), ("two", 4, 1)]
    assert str(nodes[0]) == "one (10.0.0.2)"
