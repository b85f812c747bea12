"""Where processes of a team can be: on different nodes first, one for each card, several on a node only when asked for."""

from __future__ import annotations

from unchoke.jobs.cluster.connection import ClusterNode
from unchoke.jobs.cluster.team import plan_places


def node(name: str, cpus: int, gpus: int = 0) -> ClusterNode:
    return ClusterNode(f"id of {name}", name, name, cpus, gpus, 0)


def rows(nodes: list[ClusterNode], num: int | None = None, *, cards: bool = False) -> list[tuple[str, int, int]]:
    return [(place.node.name, place.cpus, place.gpus) for place in plan_places(nodes, num, gpus=cards)]


def test_one_process_with_all_cores_on_each_node():
    assert rows([node("a", 8), node("b", 2), node("head", 0)]) == [("a", 8, 0), ("b", 2, 0)]


def test_fewer_than_nodes_leave_a_reserve():
    assert rows([node("a", 8), node("b", 2)], 1) == [("a", 8, 0), ("b", 2, 0)]


def test_nodes_are_shared_only_if_there_are_too_few():
    assert rows([node("a", 8), node("b", 1)], 4) == [("a", 2, 0), ("b", 1, 0), ("a", 2, 0), ("a", 2, 0)]


def test_no_more_places_than_cores():
    assert len(rows([node("a", 2), node("b", 1)], 9)) == 3


def test_one_process_for_each_gpu():
    nodes = [node("head", 8), node("a", 8, 2), node("b", 4, 1)]
    assert rows(nodes, cards=True) == [("a", 4, 1), ("b", 4, 1), ("a", 4, 1)]


def test_a_cluster_without_cores_has_no_places():
    assert rows([node("head", 0)]) == []
    assert rows([]) == []
