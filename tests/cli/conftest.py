"""The command as a person types it, in this process: exit code, both streams, and the last JSON line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from unchoke.cli.main import app, join_expect


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
    def run(*arguments: object) -> Answer:
        done = CliRunner().invoke(app, join_expect([str(argument) for argument in arguments]))
        return Answer(done.exit_code, done.stdout, done.stderr)

    return run
