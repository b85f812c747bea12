"""The command as a person types it, in this process: exit code, both streams, and the last JSON line."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Once
from typer.testing import CliRunner


@dataclass(frozen=True)
class Answer:
    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    @property
    def result(self) -> dict[str, Any]:
        """The result of a command that was asked for JSON and went well."""
        assert self.last["ok"], self.stdout
        found: dict[str, Any] = self.last["result"]
        return found


Type = Callable[..., Answer]


@pytest.fixture
def unchoke() -> Type:
    from unchoke.cli.main import app, join_expect

    def run(*arguments: object) -> Answer:
        done = CliRunner().invoke(app, join_expect([str(argument) for argument in arguments]))
        return Answer(done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="module", autouse=True)
def _frozen_garbage() -> None:
    """Commands collect their garbage more than once: what the tests before have loaded need not be looked through each time."""
    gc.freeze()


@pytest.fixture(scope="session")
def looked_at(photos: Path, finished: Path, once: Once) -> Path:
    """The finished workspace after `check` and `curate`. Shared: to be read only."""

    def look(folder: Path) -> None:
        import unchoke
        from unchoke.core.events import ignore

        shutil.copytree(finished, folder, dirs_exist_ok=True)
        assert unchoke.check(str(photos), out=folder, on_event=ignore).ok
        unchoke.curate(out=folder, on_event=ignore)

    return once("cli-looked-at", look)


@pytest.fixture
def workspace(looked_at: Path, tmp_path: Path) -> Path:
    """A copy of the finished workspace that a test may change. No `check` of the photos needs to start a process again."""
    return Path(shutil.copytree(looked_at, tmp_path / "out"))


@pytest.fixture
def out(looked_at: Path, tmp_path: Path) -> Path:
    """A new workspace that knows only that worker processes can load the photos."""
    folder = tmp_path / "out"
    folder.mkdir()
    shutil.copy(looked_at / ".worker-trial", folder)
    return folder
