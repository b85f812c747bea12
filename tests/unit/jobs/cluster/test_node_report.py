"""What could go wrong between nodes, from what they say of themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unchoke.jobs.cluster.connection import ClusterNode
from unchoke.jobs.cluster.hosts import versions
from unchoke.jobs.cluster.node_report import NodeReport, diagnose_nodes, look_around, token_digest
from unchoke.machine.detect import detect_machine
from unchoke.machine.doctor import count_nodes, render_nodes

NODE = ClusterNode("a1", "lab2", "10.0.0.2", cpus=8, gpus=0, memory_bytes=2**34)


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> NodeReport:
    """A node that is like this machine in everything, behind a token."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret of the lab")
    return NodeReport(NODE, detect_machine(), versions(), 0.01, token_digest(), keepalive=True)


def codes(*reports: NodeReport) -> list[str]:
    return [finding.code for finding in diagnose_nodes(reports)]


def test_nodes_like_this_machine_give_no_findings(report: NodeReport) -> None:
    assert codes(report, replace(report, node=replace(NODE, name="lab3"))) == []


def test_each_difference_has_a_finding_of_its_own(report: NodeReport) -> None:
    other = {**versions(), "torch": "2.11.0"}
    assert codes(replace(report, versions=other)) == ["other-versions"]
    assert codes(replace(report, versions={**versions(), "unchoke": "0"})) == ["other-unchoke"]
    assert codes(replace(report, clock_off_s=-7.0)) == ["clock-off"]
    assert codes(replace(report, token="another")) == ["other-token"]
    assert codes(replace(report, token="")) == ["no-token"]
    assert codes(replace(report, keepalive=False)) == ["no-keepalive"]


def test_node_that_could_not_say_is_an_error(report: NodeReport) -> None:
    silent = NodeReport(NODE, problem="unchoke is not installed there")
    (finding,) = diagnose_nodes([report, silent])
    assert (finding.code, finding.severity) == ("node-silent", "error")
    assert "not installed" in render_nodes([report, silent])
    assert count_nodes([report, silent]) == "1 node with 8 cores"


def test_the_token_itself_never_leaves(report: NodeReport) -> None:
    assert "secret of the lab" not in str(look_around()) + str(report.to_dict())


def test_a_token_is_found_in_the_file_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert len(token_digest()) == 12
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert token_digest() == ""
