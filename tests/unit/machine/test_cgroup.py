"""Container limits, from folders laid out as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.machine.cgroup import Limits, read_limits


def lay_out(mount: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text)


def test_version_2_counts_the_tightest_of_a_group_and_its_parents(tmp_path: Path) -> None:
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
