"""The operators that took most, and how to look closer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unchoke.core.record import ProfileRecord
from unchoke.runs.report.profile_top import format_us, render_profile


def operator(name: str, **figures: float) -> dict[str, Any]:
    names = ("self_cpu_s", "cpu_s", "self_device_s", "device_s", "self_cpu_bytes", "self_device_bytes")
    return {"name": name, "calls": 4, **dict.fromkeys(names, 0), **figures}


def profile(**changes: Any) -> ProfileRecord:
    many = [operator(f"aten::op{number}", self_cpu_s=number / 1000, cpu_s=0.5, self_cpu_bytes=-8) for number in range(1, 15)]
    plain = {
        "num_steps": 3,
        "num_operators": 14,
        "cpu_s": 0.105,
        "device_s": 0.0,
        "operators": [*many, operator("aten::empty", self_cpu_bytes=4_000_000)],
        "traces": ["logs/profiler/exp 1.pt.trace.json"],
        "pages": ["logs/profiler/exp 1.html"],
        **changes,
    }
    return ProfileRecord(**plain)


def test_top_ten_first_files_last() -> None:
    lines = render_profile(profile(), root=Path("out")).splitlines()
    assert [line.split()[0] for line in lines if line.startswith("aten::op")] == [f"aten::op{n}" for n in range(14, 4, -1)]
    assert lines[0] == "top 10 of 14 operators by CPU time, in 3 steps (self: without what it called)"
    assert ["aten::op14", "14.0", "ms", "13.3", "%", "500", "ms", "4", "3.50", "ms"] in [line.split() for line in lines]
    assert ["aten::empty", "4.0", "MB", "4"] in [line.split() for line in lines]
    assert "look    vizviewer 'out/logs/profiler/exp 1.pt.trace.json'" in lines


def test_device_has_its_own_table() -> None:
    text = render_profile(
        profile(device_s=0.2, operators=[operator("aten::mm", self_device_s=0.1, device_s=0.1, self_device_bytes=2_000)]),
        root=Path("out"),
    )
    assert "top 10 by time on the device" in text
    assert "by device memory" in text
    assert "2.0 kB" in text


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.50 s"), (0.0123, "12.3 ms"), (0.000004, "4.00 µs"), (0.45, "450 ms")])
def test_short_times_keep_the_digits_that_matter(seconds: float, text: str) -> None:
    assert format_us(seconds) == text
