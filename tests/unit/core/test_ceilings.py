"""The rate that was possible, the share of it that was reached, and the same again from a record."""

from __future__ import annotations

import json

import pytest

from unchoke.core.ceilings import DEVICE, Ceiling, PartRate
from unchoke.core.record import RunRecord
from unchoke.runs.report.json import to_jsonable

PARTS = [PartRate("engine", 13_600.0, place=DEVICE), PartRate("reading", 467.0, lanes=15)]


def test_parallel_parts_are_as_fast_as_the_slowest() -> None:
    found = Ceiling.of(10_000, 14.2, PARTS)
    assert found is not None
    assert (found.slowest, found.possible_per_s) == ("reading", pytest.approx(7_005))
    assert found.share == pytest.approx(10_000 / 14.2 / 7_005)
    assert found.lost_s == pytest.approx(14.2 - 10_000 / 7_005)
    assert found.is_low


def test_parts_that_share_their_cores_take_turns() -> None:
    found = Ceiling.of(700, 2.0, [PartRate("engine", 500.0), PartRate("reading", 500.0, lanes=2)])
    assert found is not None
    assert found.possible_per_s == pytest.approx(1 / (1 / 500 + 1 / 1000))
    assert (found.slowest, found.in_turn, found.is_low) == ("engine and reading", True, False)
    assert found.lost_s == 0.0, "more than the parts can do is no loss"


def test_tenth_above_the_ceiling_is_noise() -> None:
    slightly, much = (Ceiling.of(num, 10.0, [PartRate("reading", 100.0)]) for num in (1_090, 1_650))
    assert slightly is not None
    assert much is not None
    assert (slightly.is_exceeded, much.is_exceeded) == (False, True)


def test_places_run_side_by_side_parts_take_turns() -> None:
    parts = [
        PartRate("engine", 13_600.0, place=DEVICE),
        PartRate("decoding", 25_900.0, place=DEVICE),
        PartRate("reading", 3_000.0, 15),
    ]
    found = Ceiling.of(10_000, 2.0, parts)
    assert found is not None
    assert found.slowest == "engine and decoding"
    assert found.possible_per_s == pytest.approx(1 / (1 / 13_600 + 1 / 25_900))
    assert not found.in_turn


def test_nothing_is_compared_with_nothing() -> None:
    assert Ceiling.of(10, 1.0, []) is None
    assert Ceiling.of(10, 1.0, [PartRate("engine", 0.0)]) is None
    assert Ceiling.of(0, 1.0, PARTS) is None


def test_a_record_keeps_it_and_older_records_do_without() -> None:
    found = Ceiling.of(10_000, 14.2, PARTS, alone_s={"decode": 0.002}, facts={"readers": 15})
    assert found is not None
    plain = json.loads(json.dumps(to_jsonable(RunRecord(ceilings={"extract": found}).to_dict())))
    assert plain["ceilings"]["extract"]["share"] == found.share
    assert RunRecord.of(plain).ceilings == {"extract": found}
    assert RunRecord.of({"run": "exp_1"}).ceilings == {}
    assert RunRecord.of({"ceilings": {"extract": {"share": "odd"}, "train": plain["ceilings"]["extract"]}}).ceilings == {
        "train": found
    }
