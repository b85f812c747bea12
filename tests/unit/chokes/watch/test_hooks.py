"""Somebody else's imports and functions keep working, whatever our hooks do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch import recorder as record


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
        hooks._told.discard(name)


def test_a_callback_runs_once_the_module_is_there(module: str) -> None:
    seen: list[bool] = []
    hooks.when_imported(module, lambda: seen.append(sys.modules[module].READY))
    assert seen == []
    importlib.import_module(module)
    importlib.import_module(module)
    assert seen == [True]


def test_a_callback_runs_at_once_for_what_is_imported_already() -> None:
    seen: list[str] = []
    hooks.when_imported("json", lambda: seen.append("json"))
    assert seen == ["json"]


def test_a_module_of_a_package_can_be_used_before_the_package_is_done(module: str) -> None:
    def patch() -> None:
        import watched_package.inner  # type: ignore[import-not-found]

        hooks.replace(watched_package.inner, "double", lambda original, _: lambda x: original(x) + 1)

    hooks.when_imported(f"{module}.inner", patch)
    assert importlib.import_module(module).inner.double(2) == 5


def test_a_callback_that_fails_breaks_no_import_and_is_noted(module: str) -> None:
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

    patch = hooks.replace(Owner, "name", lambda original, _: lambda self: original(self).upper())
    assert patch is not None
    assert (Owner().name(), Base().name()) == ("BASE", "base")
    patch.undo()
    assert "name" not in vars(Owner)


def test_what_is_not_there_or_cannot_be_replaced_is_left_alone() -> None:
    def make(original: Any, _: hooks.Patch) -> Any:
        return original

    assert hooks.replace(SimpleNamespace(), "missing", make) is None
    assert hooks.replace(dict, "keys", make) is None
