"""Findings about tiling and their text, from tables made by hand."""

from __future__ import annotations

from typing import Any

from unchoke.core.stages import StageRow
from unchoke.scenes.tiling.tile_profile import StageTables, diagnose_tiling, render_stages, render_tile_profile

STAGES = ("open", "read", "normalise", "mask", "write", "other")


def table(*seconds: float, calls: int = 8) -> list[StageRow]:
    total = sum(seconds)
    return [StageRow(stage, spent, spent / total, calls) for stage, spent in zip(STAGES, seconds, strict=True)]


BEFORE = table(10.0, 20.0, 1.0, 1.0, 66.0, 2.0)


def test_the_stage_with_most_to_gain_comes_first() -> None:
    measured = StageTables(BEFORE, table(0.1, 2.0, 0.5, 0.5, 3.0, 0.2), windows=2, zlib_s=60.0)
    found = diagnose_tiling(measured, command="unchoke tile scenes")
    assert [finding.code for finding in found] == [
        "slow-compression",
        "blocks-decoded-again",
        "files-opened-per-window",
        "what-is-left",
    ]
    assert [finding.stage for finding in found] == ["write", "read", "open", "write"]


def test_compression_is_named_by_its_share_in_zlib_itself() -> None:
    found = diagnose_tiling(
        StageTables(BEFORE, table(0.1, 2, 0.5, 0.5, 3, 0.2), windows=2, zlib_s=60.0), command="unchoke tile x"
    )[0]
    assert "60 %" in found.message and "66 %" in found.message
    assert "22.0×" in found.expected_gain and "2.7×" in found.expected_gain
    assert found.evidence["zlib_s"] == 60.0
    assert found.evidence["before_share"] == 0.66
    assert found.command == "unchoke tile x"


def test_small_or_no_better_stages_not_mentioned() -> None:
    even = StageTables(BEFORE, BEFORE, windows=2)
    assert [finding.code for finding in diagnose_tiling(even, command="")] == ["what-is-left"]


def test_lighter_layout_offered_if_compressed() -> None:
    after = table(0.1, 0.5, 0.1, 0.1, 3.0, 0.1)
    packed = diagnose_tiling(StageTables(BEFORE, after, windows=2), command="unchoke tile x")[-1]
    assert packed.command == "unchoke tile x --store raw"
    raw = diagnose_tiling(StageTables(BEFORE, after, windows=2, store="raw"), command="unchoke tile x --store raw")[-1]
    assert raw.command == "unchoke tile x --store raw --compress none"
    plain = diagnose_tiling(StageTables(BEFORE, after, windows=2, compress="none"), command="unchoke tile x")[-1]
    assert plain.command == ""


def test_an_even_table_leaves_nothing_to_say() -> None:
    assert diagnose_tiling(StageTables(BEFORE, table(1, 1, 1, 1, 1, 1), windows=1), command="")[-1].code != "what-is-left"


BEFORE_ROWS = [
    {"stage": "open", "seconds": 0.5, "share": 0.05, "calls": 96},
    {"stage": "write", "seconds": 9.5, "share": 0.95, "calls": 24},
]
AFTER_ROWS = [
    {"stage": "open", "seconds": 0.01, "share": 0.01, "calls": 4},
    {"stage": "write", "seconds": 0.99, "share": 0.99, "calls": 0},
]
RECORD: dict[str, Any] = {
    "windows": 24,
    "tile_px": 512,
    "scenes": ["lake", "shore"],
    "threads": 2,
    "before": BEFORE_ROWS,
    "after": AFTER_ROWS,
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
    lines = render_stages(BEFORE_ROWS, AFTER_ROWS).splitlines()
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
