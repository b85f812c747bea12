"""Which hosts a node gets. What they do is tested on a real cluster (tests/cluster)."""

from __future__ import annotations

from unchoke.jobs.cluster.connection import ClusterNode
from unchoke.jobs.cluster.hosting import HostPlan, one_for_each_core, one_for_each_node


def node(cpus: int, gpus: int = 0) -> ClusterNode:
    return ClusterNode("a1", "lab2", "10.0.0.2", cpus, gpus, 2**34)


def test_engine_with_streams_gets_one_host() -> None:
    assert one_for_each_node(node(8)) == [HostPlan(8, 0.0, 8)]
    assert one_for_each_node(node(0)) == []


def test_plain_torch_gets_a_host_for_each_core() -> None:
    assert one_for_each_core(node(3)) == [HostPlan()] * 3


def test_cards_are_given_out_as_cards() -> None:
    assert one_for_each_node(node(16, 2)) == one_for_each_core(node(16, 2)) == [HostPlan(8.0, 1.0, 2)] * 2
