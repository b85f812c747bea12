"""`unchoke doctor`: this machine, what was chosen for it, and why; with --on, each node of a cluster. Changes nothing.

The report as text: the facts, then each choice with its value and reason; then the nodes, and what could go wrong, with the
libraries in scripts beside unchoke or between the nodes.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unchoke.core.events import OnEvent, ignore
from unchoke.core.findings import Finding
from unchoke.core.output_file import output_file
from unchoke.core.units import format_bytes, format_count
from unchoke.jobs.cluster.connection import cluster_at, leave_cluster
from unchoke.jobs.cluster.node_report import NodeReport, ask_nodes, diagnose_nodes
from unchoke.machine.detect import detect_machine, package_version
from unchoke.machine.evidence import gather_evidence
from unchoke.machine.machine_facts import MachineFacts
from unchoke.machine.policy import Policy, choose_policy
from unchoke.runs.report.layout import columns
from unchoke.runs.report.text import render_findings

_NODE_COLUMNS = ("node", "cores", "memory", "device", "python", "torch", "openvino", "clock")
_FLAGS_SHOWN = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "bf16", "i8mm")


@dataclass(frozen=True)
class DoctorReport:
    """A machine and what was chosen for it: what `unchoke doctor` shows."""

    facts: MachineFacts
    """What the machine is."""
    policy: Policy
    """What was chosen for it, each with its reason."""
    nodes: Sequence[NodeReport] = ()
    """The nodes of the cluster that was asked about."""
    findings: Sequence[Finding] = ()
    """What could go wrong: libraries that scripts cannot import, and what differs between nodes."""

    def to_dict(self) -> dict[str, Any]:
        found = [finding.to_dict() for finding in self.findings]
        own = {"facts": self.facts.to_dict(), **self.policy.to_dict(), "findings": found}
        return {**own, "nodes": [node.to_dict() for node in self.nodes]} if self.nodes else own


def doctor(
    *,
    folder: str | Path = ".",
    report: str | Path | None = None,
    on: str | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> DoctorReport:
    """This machine: what it is, and what was chosen for it, each with its reason. Changes nothing.

    Args:
        folder: Which disk is meant.
        report: A file for what unchoke does here, measured in some ten minutes: engines, training, a kill, memory. It holds
            no names and no paths, and is meant to be sent.
        on_event: Called with what is measured, while it is.

    Returns:
        The facts of the machine and the policy chosen for it.

    Example:
        >>> unchoke.doctor(device="cpu").policy.device
        'cpu'
    """
    asked = {name: options.get(name) for name in ("device", "workers", "precision")}
    with try_libraries() as find_fault:
        facts = detect_machine(Path(folder))
        policy = choose_policy(facts, **asked)
        try:
            cluster = cluster_at(on)
            nodes = [] if cluster is None else ask_nodes(cluster)
        finally:
            leave_cluster()
        unsound = find_fault()
    findings = [*([unsound] if unsound else []), *(diagnose_nodes(nodes) if nodes else ())]
    found = DoctorReport(facts, policy, nodes, findings)
    if report is not None:
        to = output_file(report, option="--report", example="report.json")
        evidence = gather_evidence(found.to_dict(), policy.engine, policy.device, on_event or ignore)
        to.write_text(json.dumps(evidence, indent=1, ensure_ascii=False) + "\n")
    return found


def render_doctor(report: DoctorReport, *, width: int = 110) -> str:
    """The report as lines no wider than `width`, as far as single words allow."""
    facts = _fact_rows(report.facts)
    indent = max(len(name) for name, _ in facts) + 4
    lines = ["This machine"]
    lines += [line for name, text in facts for line in _wrapped(f"  {name}".ljust(indent), text, width=width)]
    lines += ["", "Chosen for it"]
    choices = [(choice, _value(choice.value)) for choice in report.policy.choices]
    name_width = max(len(choice.name) for choice, _ in choices)
    value_width = max(len(value) for _, value in choices if len(value) <= 16)
    for choice, value in choices:
        head, measured = f"  {choice.name.ljust(name_width)}  ", choice.evidence.get("measured")
        if len(value) > value_width:
            lines.append(head + value)
            value, head = "", " " * len(head)
        reason = f"{choice.reason} [{measured}]" if measured else choice.reason
        lines += _wrapped(f"{head}{value.ljust(value_width)}  ", reason, width=width)
    if report.nodes:
        lines += ["", f"The cluster: {count_nodes(report.nodes)}", render_nodes(report.nodes)]
    if report.findings:
        lines += ["", render_findings(report.findings).rstrip()]
    return "\n".join(lines) + "\n"


def render_nodes(reports: Sequence[NodeReport]) -> str:
    """The nodes as a table."""
    rows: list[tuple[str, ...]] = []
    for report in reports:
        facts, node, found = report.facts, report.node, report.versions
        if facts is None or found is None:
            rows.append((str(node), str(node.cpus), "", report.problem, "", "", "", ""))
            continue
        gpus = ", ".join(f"{gpu.kind}:{gpu.index} {gpu.name}" for gpu in facts.accelerators) or "no card"
        shown = [found[name] or "missing" for name in ("python", "torch", "openvino")]
        cores, memory = f"{node.cpus} of {facts.cores}", format_bytes(facts.memory_bytes)
        rows.append((str(node), cores, memory, gpus, *shown, f"{report.clock_off_s:+.2f} s"))
    return columns(rows, header=_NODE_COLUMNS, indent="  ")


def count_nodes(reports: Sequence[NodeReport]) -> str:
    """How many machines that are, in words."""
    usable = [report for report in reports if not report.problem]
    cores, gpus = sum(report.node.cpus for report in usable), sum(report.node.gpus for report in usable)
    words = f"{format_count(len(usable), 'node')} with {format_count(cores, 'core')}"
    return f"{words} and {format_count(gpus, 'card')}" if gpus else words


def _fact_rows(facts: MachineFacts) -> list[tuple[str, str]]:
    flags = [flag for flag in _FLAGS_SHOWN if flag in facts.cpu_flags]
    soft, hard = facts.descriptor_limit, facts.descriptor_limit_hard
    raised = f" (may be raised to {hard:,})" if soft is not None and hard is not None and hard > soft else ""
    rows = [
        ("system", f"{facts.system} {facts.system_version} on {facts.machine}"),
        ("processor", f"{facts.cpu_name}, {format_count(facts.cores, 'usable core')}"),
        ("instructions", ", ".join(flags) or "none of those that matter here"),
        ("memory", f"{format_bytes(facts.memory_bytes)}, {format_bytes(facts.memory_available_bytes)} available"),
        ("disk", f"{format_bytes(facts.disk_free_bytes)} free"),
        ("open files", "no limit" if soft is None else f"{soft:,} at a time{raised}"),
    ]
    for gpu in facts.accelerators:
        parts = [f"{gpu.kind}:{gpu.index} {gpu.name}", format_bytes(gpu.memory_bytes)]
        parts += ["shared with the machine"] if gpu.unified else []
        parts += [f"capability {gpu.capability[0]}.{gpu.capability[1]}"] if gpu.capability is not None else []
        rows.append(("accelerator", ", ".join([*parts, *([f"driver {gpu.driver}"] if gpu.driver else [])])))
    cuda = f", CUDA {facts.cuda_version}" if facts.cuda_version else ""
    rows += [
        ("python", facts.python_version),
        ("torch", f"{facts.torch_version or 'not installed'}{cuda}"),
        ("openvino", facts.openvino_version or "not installed"),
    ]
    return rows + [("note", note) for note in facts.notes]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", then ".join(value) if isinstance(value, tuple) else str(value)


def _wrapped(head: str, text: str, *, width: int) -> list[str]:
    return textwrap.wrap(text, width=max(width, len(head) + 20), initial_indent=head, subsequent_indent=" " * len(head)) or [head]


_LIMIT_S = 300.0
_AROUND = "from unchoke.core.torchvision_ready import prepare_torchvision; prepare_torchvision()"


@contextmanager
def try_libraries() -> Iterator[Callable[[], Finding | None]]:
    """`import timm` in a process that knows nothing of unchoke, as a script of the user's would; the call waits for its end.

    unchoke itself gets round a torchvision that was built for another torch (`core/torchvision_ready.py`); a script beside it
    does not, and fails in its first line.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "import timm"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )

    def find_fault() -> Finding | None:
        try:
            _, said = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            said = f"it took longer than {_LIMIT_S:g} s"
        else:
            if process.returncode == 0:
                return None
        return diagnose_import(said, torch=package_version("torch"), torchvision=package_version("torchvision"))

    try:
        yield find_fault
    finally:
        process.kill()
        process.communicate()


def diagnose_import(said: str, *, torch: str, torchvision: str) -> Finding:
    """What the last line of a failed `import timm` means, and what to do about it."""
    last = (said.strip().splitlines() or ["it ended without a word"])[-1]
    evidence = {"said": last, "torch": torch, "torchvision": torchvision}
    pip = f"{shlex.quote(sys.executable)} -m pip"
    if not re.search(r"operator torchvision::\w+ does not exist|undefined symbol", last):
        return Finding(
            "import-timm",
            f"`import timm` fails: {last}",
            "error",
            stage="libraries",
            evidence=evidence,
            fix="unchoke needs it, too: install it anew, and see what pip says of the versions around it",
            command=f"{pip} install --force-reinstall timm && {pip} check",
        )
    return Finding(
        "torchvision-build",
        f"`import timm` fails in scripts of your own ({last}): torchvision {torchvision} is not of the build of torch {torch}",
        stage="libraries",
        evidence=evidence,
        fix=f"install both from one place; or, in a script, before timm: {_AROUND}. unchoke does that for itself",
        command=f"{pip} install --force-reinstall torch torchvision",
    )
