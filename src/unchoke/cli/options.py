"""The options of the command line: those of the table of settings, and the few that many commands have beside them.

`takes("fit")` gives a command function the settings of that command: typer reads a function's signature, so the decorator writes
it. Inside the command they arrive together, as a dictionary of what was typed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from unchoke.cli.completion import complete_run, complete_setting
from unchoke.core.settings import OPTIONS, TYPES, flag, flag_off, help_of, options_of


def takes(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give the decorated command the settings of the function `name`; its first argument is a dictionary of what was typed."""
    taken = options_of(name)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "typed"]

        @wraps(command)
        def wrapped(**values: Any) -> None:
            typed = {name: _plain(values.pop(name)) for name in taken}
            command(typed, **values)

        parameters = [_parameter(setting, name) for setting in taken]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _parameter(name: str, command: str) -> inspect.Parameter:
    kind, about = typed_as(TYPES[name].__origin__), help_of(name, command)
    flags = f"{flag(name)}/{flag_off(name)}" if kind is bool else flag(name)
    offers = None if kind is bool else complete_setting(name)
    info: Any = typer.Option(flags, help=about, show_default=False, rich_help_panel=OPTIONS[name].group, autocompletion=offers)
    if name == "data":
        info = typer.Argument(help=about, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info])


def typed_as(annotation: Any) -> Any:
    """What the command line reads for a setting of this type: a switch, a number, text, or several texts."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    plain = [kind for kind in kinds if kind is not NoneType]
    if plain in ([bool], [int], [float]):
        return plain[0]
    return list[str] if plain == [tuple[str, ...]] or get_origin(plain[0]) is dict else str


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Out = Annotated[Path | None, typer.Option("--out", help="Workspace folder (default unchoke-out).", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout; the last one is the result.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; nothing is extracted or trained.")]
Detach = Annotated[bool, typer.Option("--detach", help="Work in the background; see `unchoke runs watch`.")]
Weights = Annotated[Path | None, typer.Option("--weights", help="The encoder's weights, where they are no longer found.")]
On = Annotated[
    str | None,
    typer.Option("--on", help="The Ray cluster that predicts: ray://HOST:10001, HOST:6379 or auto; local is this machine alone."),
]
HomeRun = Annotated[str, typer.Argument(help="A run: exp_3, 3, latest or best.", autocompletion=complete_run)]
"""One in the workspace it was trained in."""
Run = Annotated[str, typer.Argument(help="A run: exp_3, 3, latest, best, or an exported folder.", autocompletion=complete_run)]
