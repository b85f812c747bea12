"""The options of the command line: those of the table of settings, and the few that many commands have beside them.

`command` makes a command of a function: typer reads a signature, so the decorator writes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

import unchoke
from unchoke.cli.completion import complete_run, complete_setting
from unchoke.cli.showing import Result, hush_profiler, show
from unchoke.core.settings import OPTIONS, TYPES, flag, flag_off, help_of, options_of
from unchoke.machine.policy import refuse_absent_device

if TYPE_CHECKING:
    from unchoke.runs.report.console import Console

Out = Annotated[Path | None, typer.Option("--out", help="Workspace folder (default unchoke-out).", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout; the last one is the result.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show the result and warnings alone.", rich_help_panel="Output")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show every choice on its own line, with its reason.", rich_help_panel="Output")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; nothing is extracted or trained.")]
Weights = Annotated[Path | None, typer.Option("--weights", help="The encoder's weights, where they are no longer found.")]
HomeRun = Annotated[str, typer.Argument(help="A run: exp_3, 3, latest or best.", autocompletion=complete_run)]
"""One in the workspace it was trained in."""
Run = Annotated[str, typer.Argument(help="A run: exp_3, 3, latest, best, or an exported folder.", autocompletion=complete_run)]


def command(app: typer.Typer, name: str, short_help: str = "", heading: str | None = None) -> Callable[[Any], Any]:
    """Make the decorated function the command `name` of `app`.

    Its options are the settings of the function of its name in `import unchoke`, its own parameters, and --json. They go to that
    function, or to the decorated one if that returns something.
    """

    def decorate(function: Callable[..., Result | None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True, locals={"Console": object})
        declared = signature.parameters
        own = [one for one in declared.values() if one.name != "console" and one.kind != one.VAR_KEYWORD]
        if "json" not in declared:
            own.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json))
        tells = signature.return_annotation is None or "console" in declared
        for option, kind in (("quiet", Quiet), ("verbose", Verbose)) if tells else ():
            own.append(inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind))
        parameters = [_parameter(setting, function.__name__) for setting in options_of(function.__name__)]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]

        @wraps(function)
        def run(**typed: Any) -> None:
            how = {key: bool(typed.get(key)) for key in ("json", "quiet", "verbose")}
            values = {key: _plain(value) for key, value in typed.items() if key not in how or key in declared}
            hush_profiler(values.get("profile") or name == "profile train")

            def work(console: Console) -> Result:
                refuse_absent_device(values.get("device"))
                if signature.return_annotation is None:
                    found: Result = getattr(unchoke, function.__name__)(on_event=console.on_event, **values)
                    return found
                result = function(console, **values) if "console" in declared else function(**values)
                assert result is not None
                return result

            show(name, work, **how)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name.split()[-1], short_help=short_help or None, rich_help_panel=heading)(run)
        return run

    return decorate


def _parameter(name: str, command: str) -> inspect.Parameter:
    kind, about = list[str] if name == "label" else typed_as(TYPES[name].__origin__), help_of(name, command)
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
    if isinstance(value, Enum):
        return value.value
    return tuple(value) if isinstance(value, list) else value
