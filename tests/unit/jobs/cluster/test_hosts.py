"""What lives on a node, without a cluster around it, and which hosts a node gets."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import job_bodies
import pytest

import unchoke
from unchoke.jobs.attempts import Outcome
from unchoke.jobs.cluster import hosts
from unchoke.jobs.cluster.connection import ClusterNode
from unchoke.jobs.cluster.hosts import (
    Host,
    HostPlan,
    NodeRefused,
    one_for_each_core,
    one_for_each_node,
    source_digest,
    versions,
)


def ready(host: Host) -> Outcome[Any, Any]:
    found: Outcome[Any, Any] = pickle.loads(host.ready())
    return found


def test_a_host_sets_its_body_up_and_answers() -> None:
    host = Host(pickle.dumps((job_bodies.greeting, job_bodies.greet, ("hello",))), source_digest())
    assert ready(host).error is None
    assert pickle.loads(host.run(pickle.dumps(3))).value == "hello 3"


def test_a_set_up_that_fails_is_told_with_its_traceback() -> None:
    outcome = ready(Host(pickle.dumps((job_bodies.square, job_bodies.refuse, ())), source_digest()))
    assert "no weights here" in str(outcome.error)
    assert "in refuse" in outcome.traceback_text


def test_node_with_another_source_refuses_itself() -> None:
    outcome = ready(Host(pickle.dumps((job_bodies.square, None, ())), "0123456789abcdef"))
    assert isinstance(outcome.error, NodeRefused)
    assert "another unchoke" in outcome.error.what and source_digest() in outcome.error.why


def test_a_body_that_cannot_be_unpacked_here_is_told() -> None:
    assert isinstance(ready(Host(b"no pickle", source_digest())).error, Exception)


def test_versions_name_what_numbers_depend_on() -> None:
    found = versions()
    assert {"python", "unchoke", "torch", "numpy", "openvino"} <= found.keys()
    assert found["unchoke"] == source_digest()


def test_the_source_digest_covers_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Path] = []
    monkeypatch.setattr(hosts.listing, "walk", lambda root: walked.append(root) or [])
    source_digest.__wrapped__()
    assert walked == [Path(unchoke.__file__).parent]


def node(cpus: int, gpus: int = 0) -> ClusterNode:
    return ClusterNode("a1", "lab2", "10.0.0.2", cpus, gpus, 2**34)


def test_engine_with_streams_gets_one_host() -> None:
    assert one_for_each_node(node(8)) == [HostPlan(8, 0.0, 8)]
    assert one_for_each_node(node(0)) == []
    assert one_for_each_node(node(6, 1), gpus=False) == [HostPlan(6, 0.0, 6)]


def test_plain_torch_gets_a_host_for_each_core() -> None:
    assert one_for_each_core(node(3)) == [HostPlan()] * 3


def test_cards_are_given_out_as_cards() -> None:
    assert one_for_each_node(node(16, 2)) == one_for_each_core(node(16, 2)) == [HostPlan(8.0, 1.0, 2)] * 2
