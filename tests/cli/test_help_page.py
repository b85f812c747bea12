"""Help that fits a screen, and all of it on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer

from unchoke.cli.main import app
from unchoke.core.settings import OPTIONS, flag, options_of

if TYPE_CHECKING:
    from tests.cli.conftest import Type

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
LEAVES = [[name] for name, one in COMMANDS.items() if not hasattr(one, "commands")] + [
    [name, inner] for name, one in COMMANDS.items() for inner in getattr(one, "commands", {})
]


def test_the_help_of_fit_fits_a_screen(unchoke: Type) -> None:
    assert len(unchoke("fit", "--help").stdout.splitlines()) <= 40
    assert len(unchoke("--help").stdout.splitlines()) <= 45


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_its_options_in_help_all_and_no_types_after_flags(unchoke: Type, words: list[str]) -> None:
    command = COMMANDS[words[0]]
    command = command.commands[words[1]] if len(words) > 1 else command
    names = {option.opts[0] for option in command.params if option.param_type_name == "option" and not option.hidden}
    short, whole = unchoke(*words, "--help"), unchoke(*words, "--help-all")
    assert (short.code, whole.code) == (0, 0)
    assert all(f" {name}" in whole.stdout for name in names)
    assert "<bool>" not in short.stdout + whole.stdout
    assert "--out" not in names or "--out" in short.stdout
    hidden = {name for name in names if f"  {name}" not in short.stdout}
    assert not hidden or "--help-all shows every option" in short.stdout


def test_a_brief_is_one_line_and_says_no_more_than_the_help() -> None:
    briefs = {name: option.brief for name, option in OPTIONS.items() if option.brief}
    assert {name for name, text in briefs.items() if len(text) > 56} == set()
    assert set(options_of("fit")) & set(briefs) >= {"label", "encoder", "epochs", "device"}
    assert all(text.endswith(".") for text in briefs.values()), flag("label")
