"""Somebody else's imports and functions keep working, whatever our hooks do; those in the place of others are equal to them."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch import recorder as record
from unchoke.chokes.watch.recorder import Recorder


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of two modules that nobody has imported."""
    package = tmp_path / "watched_package"
    package.mkdir()
    (package / "__init__.py").write_text("from watched_package import inner\nREADY = True\n")
    (package / "inner.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(record, "_current", record.Recorder())
    yield "watched_package"
    for name in [name for name in sys.modules if name.startswith("watched_package")]:
        del sys.modules[name]
        hooks._imported.discard(name)


def test_a_callback_runs_once_the_module_is_there(module: str) -> None:
    seen: list[bool] = []
    hooks.when_imported(module, lambda: seen.append(sys.modules[module].READY))
    assert seen == []
    importlib.import_module(module)
    importlib.import_module(module)
    assert seen == [True]


def test_callback_runs_at_once_if_already_imported() -> None:
    seen: list[str] = []
    hooks.when_imported("json", lambda: seen.append("json"))
    assert seen == ["json"]


def test_submodule_is_usable_before_its_package_is_done(module: str) -> None:
    def patch() -> None:
        import watched_package.inner  # type: ignore[import-not-found]

        hooks.replace(watched_package.inner, "double", lambda original: lambda x: original(x) + 1)

    hooks.when_imported(f"{module}.inner", patch)
    assert importlib.import_module(module).inner.double(2) == 5


def test_failing_callback_is_noted_and_import_succeeds(module: str) -> None:
    hooks.when_imported(module, lambda: [][0])
    assert importlib.import_module(module).READY
    assert any(module in note for note in record.current().to_dict()["notes"])


def test_a_failing_import_fails_as_it_would_have(module: str, tmp_path: Path) -> None:
    (tmp_path / "watched_package" / "inner.py").write_text("raise ValueError('theirs')\n")
    hooks.when_imported(f"{module}.inner", lambda: None)
    with pytest.raises(ValueError, match="theirs"):
        importlib.import_module(module)


def test_a_replaced_function_comes_back() -> None:
    class Base:
        def name(self) -> str:
            return "base"

    class Owner(Base):
        pass

    hook = hooks.replace(Owner, "name", lambda original: lambda self: original(self).upper())
    assert hook is not None
    assert (Owner().name(), Base().name()) == ("BASE", "base")
    hook.undo()
    assert "name" not in vars(Owner)


def test_missing_or_fixed_attributes_are_left_alone() -> None:
    assert hooks.replace(SimpleNamespace(), "missing", lambda original: original) is None
    assert hooks.replace(dict, "keys", lambda original: original) is None


@pytest.fixture
def recorder(hooks_made: list[hooks.Hook]) -> Recorder:
    return Recorder()


def nothing(_: Any, __: tuple[Any, ...], ___: dict[str, Any]) -> hooks.CallFacts:
    return {}


def calls(recorder: Recorder) -> dict[str, dict[str, Any]]:
    return {row["kind"]: row for row in recorder.to_dict()["calls"]}


def test_watched_function_pickles_copies_and_binds(recorder: Recorder, hooks_made: list[hooks.Hook]) -> None:
    original = json.loads
    hooks.time_calls(recorder, json, "loads", "csv", nothing)

    class Holder:
        parse = json.loads

    assert isinstance(json.loads, hooks.StandIn)
    assert Holder().parse("[1]") == [1]
    assert pickle.loads(pickle.dumps(json.loads)) is json.loads
    assert copy.deepcopy(json.loads) is json.loads
    assert b"unchoke" not in pickle.dumps(json.loads)
    assert json.loads.__name__ == "loads"
    hooks_made[0].undo()
    assert json.loads is original


def test_seconds_leave_out_what_a_timed_call_inside_took(recorder: Recorder) -> None:
    owner = types.ModuleType("owner")
    owner.inner = lambda: time.sleep(0.03)  # type: ignore[attr-defined]
    owner.outer = lambda: owner.inner()  # type: ignore[attr-defined]
    hooks.time_calls(recorder, owner, "inner", "decode", nothing)
    hooks.time_calls(recorder, owner, "outer", "resize", nothing)
    owner.outer()
    rows = calls(recorder)
    assert rows["decode"]["seconds"] >= 0.03
    assert rows["resize"]["seconds"] < 0.02


def test_a_call_inside_another_of_its_kind_is_part_of_it(recorder: Recorder) -> None:
    owner = types.ModuleType("owner")
    owner.inner = lambda: 1  # type: ignore[attr-defined]
    owner.outer = lambda: owner.inner()  # type: ignore[attr-defined]
    for name in ("inner", "outer"):
        hooks.time_calls(recorder, owner, name, "decode", nothing)
    assert owner.outer() == 1
    assert calls(recorder)["decode"]["count"] == 1


def test_own_error_ends_watching_not_the_script(recorder: Recorder) -> None:
    def fail(_: Any, __: tuple[Any, ...], ___: dict[str, Any]) -> hooks.CallFacts:
        raise LookupError("ours")

    owner = types.ModuleType("owner")
    owner.work = lambda: 7  # type: ignore[attr-defined]
    hooks.time_calls(recorder, owner, "work", "decode", fail)
    held = owner.work
    assert [owner.work(), held(), owner.work()] == [7, 7, 7]
    assert not isinstance(owner.work, hooks.StandIn)
    assert not calls(recorder)


def test_an_error_of_the_scripts_passes_through(recorder: Recorder) -> None:
    hooks.time_calls(recorder, json, "loads", "csv", nothing)
    with pytest.raises(json.JSONDecodeError):
        json.loads("{")
    json.loads("{}")
    assert calls(recorder)["csv"]["count"] == 1


def test_bytes_are_told_apart_by_their_content() -> None:
    one, other = hooks.key_of(b"a" * 5000), hooks.key_of(b"b" * 5000)
    assert one is not None
    assert one != other
    assert hooks.key_of(bytearray(b"a" * 5000)) == one
