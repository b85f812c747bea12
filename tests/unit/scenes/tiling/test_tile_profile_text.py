"""A profile of tiling as text."""

from __future__ import annotations

from typing import Any

from unchoke.scenes.tiling.tile_profile_text import render_stages, render_tile_profile

BEFORE = [
    {"stage": "open", "seconds": 0.5, "share": 0.05, "calls": 96},
    {"stage": "write", "seconds": 9.5, "share": 0.95, "calls": 24},
]
AFTER = [
    {"stage": "open", "seconds": 0.01, "share": 0.01, "calls": 4},
    {"stage": "write", "seconds": 0.99, "share": 0.99, "calls": 0},
]
RECORD: dict[str, Any] = {
    "windows": 24,
    "tile_px": 512,
    "scenes": ["lake", "shore"],
    "threads": 2,
    "before": BEFORE,
    "after": AFTER,
    "seconds": {"before": 9.9, "after": 1.1, "after_one_thread": 1.9},
    "ratio": 9.0,
    "ratio_one_thread": 5.2,
    "size_ratio": 1.08,
    "equal": True,
    "files": {"before": "work/logs/profiler/tile_before.prof", "after": "a folder/tile_after.prof"},
    "findings": [],
    "next_command": "unchoke tile scenes",
}


def test_stages_stand_side_by_side_with_totals() -> None:
    lines = render_stages(BEFORE, AFTER).splitlines()
    assert lines[0].split() == ["stage", "before", "time", "calls", "after", "time", "calls"]
    assert lines[2].split() == ["open", "5.0", "%", "500", "ms", "96", "1.0", "%", "10", "ms", "4"]
    assert lines[3].split()[-1] == "-"  # a stage without calls of its own
    assert lines[-1].split() == ["total", "10.0", "s", "1.0", "s"]


def test_the_whole_text_reads_well() -> None:
    text = " ".join(render_tile_profile(RECORD).split())
    assert "24 windows of 512 px from 2 scenes, the same ones both ways" in text
    assert "9.9 s the plain way, 1.1 s as `unchoke tile` does it in 2 threads: 9.0× as fast (5.2× in one)." in text
    assert "The tiles take 1.08× the room of np.savez_compressed; every band and mask is equal." in text
    assert "snakeviz work/logs/profiler/tile_before.prof" in text
    assert "snakeviz 'a folder/tile_after.prof'" in text
    assert text.endswith("next unchoke tile scenes")


def test_differing_arrays_are_said_loudly() -> None:
    assert "bands or masks DIFFER" in render_tile_profile({**RECORD, "equal": False})


def test_one_thread_needs_no_second_ratio() -> None:
    assert "in one)" not in render_tile_profile({**RECORD, "threads": 1})
