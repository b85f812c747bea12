"""Help that fits a screen, and all of it on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unchoke.core.settings import OPTIONS, flag, options_of

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_help_fits_a_screen(unchoke: Type) -> None:
    assert len(unchoke("fit", "--help").stdout.splitlines()) <= 40
    assert len(unchoke("--help").stdout.splitlines()) <= 45


def test_every_option_is_in_help_all(unchoke: Type) -> None:
    import typer

    from unchoke.cli.main import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    leaves = {name: one for name, one in commands.items() if not hasattr(one, "commands")}
    leaves |= {f"{name} {inner}": two for name, one in commands.items() for inner, two in getattr(one, "commands", {}).items()}
    assert len(leaves) > 30
    for words, command in leaves.items():
        names = {option.opts[0] for option in command.params if option.param_type_name == "option" and not option.hidden}
        short, whole = unchoke(*words.split(), "--help"), unchoke(*words.split(), "--help-all")
        assert (short.code, whole.code) == (0, 0), words
        assert [name for name in names if f" {name}" not in whole.stdout] == [], words
        assert "<bool>" not in short.stdout + whole.stdout, words
        assert "--out" not in names or "--out" in short.stdout, words
        hidden = {name for name in names if f"  {name}" not in short.stdout}
        assert not hidden or "--help-all" in short.stdout, words


def test_brief_is_one_line() -> None:
    briefs = {name: option.brief for name, option in OPTIONS.items() if option.brief}
    assert {name for name, text in briefs.items() if len(text) > 56} == set()
    assert set(options_of("fit")) & set(briefs) >= {"label", "encoder", "epochs", "device"}
    assert all(text.endswith(".") for text in briefs.values()), flag("label")
