"""What detection says of the machine the tests run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unchoke.machine.detect import Limits, _Probes, detect_machine, interface_towards, read_limits
from unchoke.machine.machine_facts import MachineFacts


@pytest.fixture(scope="module")
def facts() -> MachineFacts:
    return detect_machine()


def test_this_machine_has_sane_values(facts: MachineFacts) -> None:
    assert facts.system
    assert facts.cpu_name
    assert 1 <= facts.cores <= (os.cpu_count() or 1)
    assert 0 < facts.memory_available_bytes <= facts.memory_bytes
    assert facts.disk_free_bytes > 0
    assert facts.torch_version[0].isdigit()
    assert facts.notes == ()


def test_disk_of_a_folder_to_come_is_its_parents(tmp_path: Path) -> None:
    assert detect_machine(tmp_path / "not" / "yet").disk_free_bytes > 0


def test_a_failed_probe_becomes_a_note_and_a_cautious_value() -> None:
    probes = _Probes()
    assert probes.ask("the weather", lambda: 1 // 0, otherwise=7) == 7
    (note,) = probes.notes
    assert "the weather" in note and "ZeroDivisionError" in note


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2, reason="needs two cores and affinity")
def test_a_process_held_to_one_core_sees_one() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from unchoke.machine.detect import usable_cores; print(usable_cores())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == "1"


def lay_out(mount: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text)


def test_cgroup2_counts_the_tightest_limit(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "box/cpu.max": "150000 100000\n", "box/inner/cpu.max": "max 100000\n",
        "box/memory.max": "1000000\n", "box/memory.current": "400000\n", "box/memory.stat": "anon 1\ninactive_file 100000\n",
        "box/inner/memory.max": "max\n",
    })  # fmt: skip
    assert read_limits("0::/box/inner\n", mount=tmp_path) == Limits(1.5, 1_000_000, 300_000)


def test_version_1_reads_each_controllers_own_tree(tmp_path: Path) -> None:
    lay_out(tmp_path, {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "200000", "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
        "memory/job/memory.limit_in_bytes": "5000", "memory/job/memory.usage_in_bytes": "2000",
    })  # fmt: skip
    assert read_limits("4:memory:/job\n3:cpu,cpuacct:/job\n", mount=tmp_path) == Limits(2.0, 5000, 2000)


@pytest.mark.parametrize("membership", ["", "0::/\n", "0::/gone/elsewhere\n", "4:memory:/\n1:cpu:/\n"])
def test_without_limits_there_are_none(tmp_path: Path, membership: str) -> None:
    lay_out(
        tmp_path, {"cpu.max": "max 100000", "memory/memory.limit_in_bytes": "9223372036854771712", "cpu/cpu.cfs_quota_us": "-1"}
    )
    assert read_limits(membership, mount=tmp_path) == Limits()


def test_a_name_that_stands_for_nothing_leads_nowhere():
    assert interface_towards("no such machine.invalid") is None
