"""Findings about tiling, from tables made by hand."""

from __future__ import annotations

from unchoke.core.stages import StageRow
from unchoke.scenes.tiling.tile_findings import Measured, diagnose_tiling

STAGES = ("open", "read", "normalise", "mask", "write", "other")


def table(*seconds: float, calls: int = 8) -> list[StageRow]:
    total = sum(seconds)
    return [StageRow(stage, spent, spent / total, calls) for stage, spent in zip(STAGES, seconds, strict=True)]


BEFORE = table(10.0, 20.0, 1.0, 1.0, 66.0, 2.0)


def test_the_stage_with_most_to_gain_comes_first() -> None:
    measured = Measured(BEFORE, table(0.1, 2.0, 0.5, 0.5, 3.0, 0.2), windows=2, zlib_s=60.0)
    found = diagnose_tiling(measured, command="unchoke tile scenes")
    assert [finding.code for finding in found] == [
        "slow-compression",
        "blocks-decoded-again",
        "files-opened-per-window",
        "what-is-left",
    ]
    assert [finding.stage for finding in found] == ["write", "read", "open", "write"]


def test_compression_is_named_by_its_share_in_zlib_itself() -> None:
    found = diagnose_tiling(Measured(BEFORE, table(0.1, 2, 0.5, 0.5, 3, 0.2), windows=2, zlib_s=60.0), command="unchoke tile x")[
        0
    ]
    assert found.message == "60 % of the plain way's time is zlib in np.savez_compressed (66 % with all of writing)"
    assert found.expected_gain == "22.0× for this stage, 2.7× for the whole, in one thread"
    assert found.evidence["zlib_s"] == 60.0
    assert found.evidence["before_share"] == 0.66
    assert found.command == "unchoke tile x"


def test_stages_that_are_small_or_no_better_are_not_mentioned() -> None:
    even = Measured(BEFORE, BEFORE, windows=2)
    assert [finding.code for finding in diagnose_tiling(even, command="")] == ["what-is-left"]


def test_what_is_left_offers_a_lighter_layout_only_where_tiles_are_compressed() -> None:
    after = table(0.1, 0.5, 0.1, 0.1, 3.0, 0.1)
    packed = diagnose_tiling(Measured(BEFORE, after, windows=2), command="unchoke tile x")[-1]
    assert packed.command == "unchoke tile x --store raw"
    assert "compressing" in packed.message
    raw = diagnose_tiling(Measured(BEFORE, after, windows=2, store="raw"), command="unchoke tile x --store raw")[-1]
    assert raw.command == "unchoke tile x --store raw --compress none"
    plain = diagnose_tiling(Measured(BEFORE, after, windows=2, compress="none"), command="unchoke tile x")[-1]
    assert plain.command == ""


def test_an_even_table_leaves_nothing_to_say() -> None:
    assert diagnose_tiling(Measured(BEFORE, table(1, 1, 1, 1, 1, 1), windows=1), command="")[-1].code != "what-is-left"
