"""What each node of a cluster is: `doctor` of every machine, asked once, with what could go wrong between them.

In: a cluster. Out: a `NodeReport` for each node, and findings: another unchoke, other versions, clocks apart, tokens that differ
or are missing, no keepalive. Nothing secret travels: of a token a short digest comes back, never the token.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding, Severity
from unchoke.jobs.cluster.connection import KEEPALIVE, Cluster, ClusterNode
from unchoke.jobs.cluster.hosts import on_node, versions
from unchoke.machine.detect import detect_machine
from unchoke.machine.machine_facts import MachineFacts

_ANSWERS_WITHIN_S = 120.0
_CLOCKS_APART_S = 2.0
_NUMBERS = ("python", "torch", "numpy", "openvino", "simplejpeg", "Pillow", "timm")
"""Versions that may change numbers; whether they do is found out by comparing some."""


@dataclass(frozen=True)
class NodeReport:
    """One node: what it is, or why it could not say. `clock_off_s` is how far its clock is from the driver's."""

    node: ClusterNode
    facts: MachineFacts | None = None
    versions: Mapping[str, str] | None = None
    clock_off_s: float = 0.0
    token: str = ""
    keepalive: bool = False
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("versions", "clock_off_s", "keepalive", "problem")}
        facts = None if self.facts is None else self.facts.to_dict()
        return {**asdict(self.node), **plain, "facts": facts, "authenticated": bool(self.token)}


def look_around() -> dict[str, Any]:
    """Run on a node: what this machine is."""
    return {
        "facts": detect_machine(),
        "versions": versions(),
        "token": token_digest(),
        "keepalive": all(name in os.environ for name in KEEPALIVE),
    }


def token_digest() -> str:
    """A short digest of the token Ray is started with here; "" where there is none. The token itself never leaves the machine."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return ""
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    if not token:
        file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return ""
    return hashlib.sha256(token.encode()).hexdigest()[:12] if token else ""


def ask_nodes(cluster: Cluster) -> list[NodeReport]:
    """Ask every node what it is, all at once; one that cannot say is reported with the reason."""
    ray, ask = cluster.ray, cluster.ray.remote(look_around)
    asked = {node: ask.options(num_cpus=0, max_retries=0, scheduling_strategy=on_node(node)).remote() for node in cluster.nodes()}
    ends_s = time.monotonic() + _ANSWERS_WITHIN_S
    return [_answer(ray, node, ref, max(1.0, ends_s - time.monotonic())) for node, ref in asked.items()]


def _answer(ray: Any, node: ClusterNode, ref: Any, timeout_s: float) -> NodeReport:
    try:
        said = ray.get(ref, timeout=timeout_s)
    except Exception as error:  # Ray wraps whatever was raised there, a missing unchoke among it
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        problem = f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
        if "No module named 'unchoke" in str(error):
            problem = "unchoke is not installed there, or in another Python than Ray's"
        return NodeReport(node, problem=problem)
    return NodeReport(node, clock_off_s=_clock_off(ray, node), **said)


def _clock_off(ray: Any, node: ClusterNode) -> float:
    """How far the node's clock is ahead, by the middle of one question and its answer."""
    ask = ray.remote(lambda: time.time()).options(num_cpus=0, scheduling_strategy=on_node(node))
    ray.get(ask.remote(), timeout=30)
    before = time.time()
    there = float(ray.get(ask.remote(), timeout=30))
    return round(there - (before + time.time()) / 2, 3)


def diagnose_nodes(reports: Sequence[NodeReport]) -> list[Finding]:
    """What could go wrong between these nodes and the machine this runs on."""
    here, token, findings = versions(), token_digest(), list[Finding]()

    def find(code: str, message: str, fix: str, *, wrong: bool = False, **evidence: Any) -> None:
        severity: Severity = "error" if wrong else "warning"
        stage = "cluster" if code == "node-silent" else "index"
        findings.append(Finding(code, message, severity=severity, stage=stage, evidence=evidence, fix=fix))

    for report in reports:
        if report.problem:
            fix = "install the same unchoke there, in the Python that runs Ray: pip install 'unchoke[ray]'"
            find("node-silent", f"{report.node} cannot be used: {report.problem}", fix, wrong=True)
    heard = [report for report in reports if not report.problem]
    for report in heard:
        name, found = report.node.name, report.versions or here
        if found["unchoke"] != here["unchoke"]:
            fix = "the same version everywhere: pip install 'unchoke[ray]'"
            find("other-unchoke", f"{name} has another unchoke and is not used", fix, wrong=True)
        differ = [one for one in _NUMBERS if found[one] != here[one]]
        if others := [f"{one} {found[one] or 'missing'} instead of {here[one] or 'none'}" for one in differ]:
            message = f"{name} has {list_some(others)}: it is used if its features agree"
            find("other-versions", message, "the same versions, where features are to be equal to the last bit")
        if abs(report.clock_off_s) > _CLOCKS_APART_S:
            message = f"the clock of {name} is {report.clock_off_s:+.1f} s off"
            find("clock-off", message, "NTP on every machine: times in records and token checks rest on it")
        if report.token and token and report.token != token:
            find("other-token", f"{name} was started with another token", "one token everywhere", wrong=True)
    if unwatched := [report.node.name for report in heard if not report.keepalive]:
        message = f"{list_some(unwatched)} would not notice that another machine fell silent"
        fix = " ".join(f"{name}={value}" for name, value in KEEPALIVE.items()) + " in front of `ray start` there"
        find("no-keepalive", message, fix, nodes=unwatched)
    if any(not report.token for report in heard):
        message = "everybody who reaches the cluster's ports may run anything on it: it asks for no token"
        find("no-token", message, "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE for every `ray start`, and here")
    return findings
