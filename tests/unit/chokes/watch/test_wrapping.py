"""Functions in the place of others: equal to them in all that a script may do with them."""

from __future__ import annotations

import copy
import json
import pickle
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from unchoke.chokes.watch.recorder import Recorder
from unchoke.chokes.watch.wrapping import About, StandIn, Wrappings, key_of


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def wrappings(recorder: Recorder) -> Iterator[Wrappings]:
    made = Wrappings(recorder)
    yield made
    made.remove()


def nothing(_: Any, __: tuple[Any, ...], ___: dict[str, Any]) -> About:
    return {}


def calls(recorder: Recorder) -> dict[str, dict[str, Any]]:
    return {row["kind"]: row for row in recorder.to_dict()["calls"]}


def test_a_watched_function_can_be_pickled_copied_and_held_by_a_class(wrappings: Wrappings) -> None:
    original = json.loads
    wrappings.time(json, "loads", "csv", nothing)

    class Holder:
        parse = json.loads

    assert isinstance(json.loads, StandIn)
    assert Holder().parse("[1]") == [1]
    assert pickle.loads(pickle.dumps(json.loads)) is json.loads
    assert copy.deepcopy(json.loads) is json.loads
    assert b"unchoke" not in pickle.dumps(json.loads)
    assert json.loads.__name__ == "loads"
    wrappings.remove()
    assert json.loads is original


def test_seconds_leave_out_what_a_timed_call_inside_took(recorder: Recorder, wrappings: Wrappings) -> None:
    owner = types.ModuleType("owner")
    owner.inner = lambda: time.sleep(0.03)  # type: ignore[attr-defined]
    owner.outer = lambda: owner.inner()  # type: ignore[attr-defined]
    wrappings.time(owner, "inner", "decode", nothing)
    wrappings.time(owner, "outer", "resize", nothing)
    owner.outer()
    rows = calls(recorder)
    assert rows["decode"]["seconds"] >= 0.03
    assert rows["resize"]["seconds"] < 0.02


def test_a_call_inside_another_of_its_kind_is_part_of_it(recorder: Recorder, wrappings: Wrappings) -> None:
    owner = types.ModuleType("owner")
    owner.inner = lambda: 1  # type: ignore[attr-defined]
    owner.outer = lambda: owner.inner()  # type: ignore[attr-defined]
    for name in ("inner", "outer"):
        wrappings.time(owner, name, "decode", nothing)
    assert owner.outer() == 1
    assert calls(recorder)["decode"]["count"] == 1


def test_an_error_of_ours_ends_the_watching_and_not_the_script(recorder: Recorder, wrappings: Wrappings) -> None:
    def fail(_: Any, __: tuple[Any, ...], ___: dict[str, Any]) -> About:
        raise LookupError("ours")

    owner = types.ModuleType("owner")
    owner.work = lambda: 7  # type: ignore[attr-defined]
    wrappings.time(owner, "work", "decode", fail)
    held = owner.work
    assert [owner.work(), held(), owner.work()] == [7, 7, 7]
    assert not isinstance(owner.work, StandIn)
    assert not calls(recorder)


def test_an_error_of_the_scripts_passes_through(recorder: Recorder, wrappings: Wrappings) -> None:
    wrappings.time(json, "loads", "csv", nothing)
    with pytest.raises(json.JSONDecodeError):
        json.loads("{")
    json.loads("{}")
    assert calls(recorder)["csv"]["count"] == 1


def test_bytes_are_told_apart_by_their_content() -> None:
    one, other = key_of(b"a" * 5000), key_of(b"b" * 5000)
    assert one is not None
    assert one != other
    assert key_of(bytearray(b"a" * 5000)) == one
