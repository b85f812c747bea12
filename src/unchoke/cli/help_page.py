"""Help texts: the short one fits a screen, `--help-all` has everything. One way for all commands.

A setting stands in the short text if the table of settings has a `brief` for it; what a command has beside the settings is always
there, and a command with few options shows all of them as they are. Headings are those of the table.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from unchoke.cli.misuse import PARSER_ERROR, take_aliases
from unchoke.cli.showing import tell_misuse
from unchoke.core.settings import OPTIONS, flag

Command = TypeVar("Command", bound=Callable[..., Any])
HELP_NAMES = ["-h", "--help", "--help-all"]
ALL = "--help-all"
_FEW = 18
"""A command with no more options than this shows all of them."""
_WIDEST, _COLUMN = 100, 22
_WORDS = {"int": "N", "integer": "N", "float": "X", "path": "PATH"}
_OWN = "Command"
_BRIEFS = {flag(name): option.brief for name, option in OPTIONS.items() if option.brief}
_METAVARS = {
    flag(name): "COLUMN" if "olumn with" in option.help or "umeric column" in option.help else "PATH"
    for name, option in OPTIONS.items()
    if "olumn with" in option.help or "umeric column" in option.help or option.path
}


class _HelpPage:
    """What both kinds of command share: noting which help is wanted, and writing it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[ALL] = ALL in args
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n".join(_page(self, ctx)) + "\n")


class HelpfulCommand(_HelpPage, TyperCommand):
    """A command whose help is one of our pages, and which knows the words of other tools."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words, replaced = take_aliases(self, args)
        if replaced:
            from unchoke.runs.report.console import Console

            told = ", ".join(f"{theirs} is called {ours}" for theirs, ours in replaced.items())
            Console().notice(f"note  {told} here")
        return super().parse_args(ctx, words)


class HelpfulGroup(_HelpPage, TyperGroup):
    """Several commands under one name; the outermost one reports wrong usage like every other error."""

    def main(  # type: ignore[override]  # the rest of its parameters differ between versions of typer
        self, args: Any = None, prog_name: str | None = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(words, prog_name, standalone_mode=False, **options)
        try:
            code = super().main(words, prog_name, standalone_mode=False, **options)
        except PARSER_ERROR as error:
            code = tell_misuse(error, words)
        sys.exit(code if isinstance(code, int) else 0)


class HelpfulApp(typer.Typer):
    """A `Typer` whose commands have our help pages."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": HelpfulGroup, "no_args_is_help": True, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[Command], Command]:
        return super().command(name, **{"cls": HelpfulCommand, **options})


def _page(command: Any, ctx: Any) -> Iterator[str]:
    """The lines of a help text: usage, what it does, commands, arguments, options."""
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    inner: dict[str, Any] = getattr(command, "commands", {})
    words = ["usage:", ctx.command_path, *map(placeholder, arguments), *(["COMMAND"] if inner else []), "[OPTIONS]"]
    width = max(50, min(shutil.get_terminal_size().columns, _WIDEST))
    yield " ".join(words)
    yield ""
    yield from textwrap.wrap(" ".join(str(command.help or "").split()), width)
    brief = len(options) > _FEW and not ctx.meta.get(ALL)

    sections: dict[str, list[tuple[str, str]]] = {}
    for name, one in inner.items():
        sections.setdefault(one.rich_help_panel or "Commands", []).append((name, str(one.short_help or one.help or "")))
    for one in arguments:
        about = OPTIONS["data"].brief if brief and one.help == OPTIONS["data"].help else str(one.help or "")
        sections.setdefault("", []).append((placeholder(one).strip("[].").removesuffix("..."), about))
    for heading, one in sorted(((_heading(one), one) for one in options), key=lambda pair: pair[0] == _OWN):
        if not brief or heading == _OWN or one.opts[0] in _BRIEFS:
            sections.setdefault(heading, []).append((typed_form(one), _text(one, brief=brief)))
    for heading, rows in sections.items():
        yield from ("", heading) if heading else ("",)
        for name, text in rows:
            lines = textwrap.wrap(" ".join(text.split()), width - _COLUMN - 2) or [""]
            # a name too long for its column has a line of its own
            yield f"  {name}" if len(name) > _COLUMN - 2 else f"  {name:<{_COLUMN}}{lines.pop(0)}".rstrip()
            yield from (" " * (_COLUMN + 2) + line for line in lines)


def _heading(option: Any) -> str:
    return str(getattr(option, "rich_help_panel", None) or _OWN)


def _text(option: Any, *, brief: bool) -> str:
    if ALL in option.opts:
        return f"This text; {ALL} shows every option." if brief else "This text."
    text = _BRIEFS.get(option.opts[0], "") if brief and _heading(option) != _OWN else ""
    default = option.default if getattr(option, "show_default", False) else None
    shown = f" [default: {default}]" if default is not None and not isinstance(default, bool) and not callable(default) else ""
    return (text or str(option.help or "")) + shown


def typed_form(option: Any) -> str:
    """How an option is typed: a flag alone, its opposite where it has one, or with what it takes."""
    words = ", ".join(sorted((name for name in option.opts if name != ALL), key=len))
    if option.is_flag:
        return words if not option.secondary_opts else f"{words}, {option.secondary_opts[0]}"
    if option.metavar or option.opts[0] in _METAVARS:
        return f"{words} {option.metavar or _METAVARS[option.opts[0]]}"
    described = getattr(option, "type_descriptor", None)  # of newer versions of typer; before, a type with a name
    kind = str(getattr(described.annotation, "__name__", "") if described else option.type.name).lower()
    return f"{words} {_WORDS.get(kind.removesuffix(' range'), 'TEXT' if kind in ('str', 'text', 'list') else 'NAME')}"


def placeholder(argument: Any) -> str:
    name = str(argument.metavar or argument.name).strip("[]").upper()
    several = "..." if argument.nargs == -1 or getattr(argument, "multiple", False) else ""
    return f"{name}{several}" if argument.required else f"[{name}{several}]"
