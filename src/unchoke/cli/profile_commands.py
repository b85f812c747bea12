"""The commands about where time goes: `profile -- COMMAND`, `profile train`, `profile tile`, `profile view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import unchoke
from unchoke.cli.help_page import HelpfulApp
from unchoke.cli.options import Json, Out, takes
from unchoke.cli.showing import hush_profiler, show

profile_app = HelpfulApp(
    help="Where the time goes: `profile -- python train.py` for any PyTorch script, and the commands below.",
)


class DoctorCommand(TyperCommand):
    """A command whose words `unchoke_doctor` reads, `--help` among them: nothing is parsed here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = args
        return []

    def invoke(self, ctx: Any) -> Any:
        from unchoke_doctor.__main__ import main

        raise typer.Exit(main(["profile" if ctx.info_name == "script" else ctx.info_name, *ctx.args]))


def add_doctor_command(app: typer.Typer, name: str, short_help: str, heading: str | None = None) -> None:
    """Let `app` list a command of the doctor."""
    app.command(name, cls=DoctorCommand, short_help=short_help, rich_help_panel=heading)(lambda: None)


add_doctor_command(profile_app, "script", "Which lines the time of a training script goes to.")


def name_script(arguments: list[str]) -> list[str]:
    """Let `profile [options] -- COMMAND` be typed without `script`: what stands before `--` is options alone."""
    if arguments[:1] != ["profile"] or "--" not in arguments:
        return arguments
    named = arguments[1:2] and not arguments[1].startswith("-")
    return arguments if named else ["profile", "script", *arguments[1:]]


@profile_app.command("train")
@takes("profile_train")
def profile_train(typed: dict[str, Any], out: Out = None, json: Json = False) -> None:
    """Some steps of `unchoke train` under torch.profiler: where a step's time went, the top operators, a page. Keeps no run."""
    hush_profiler(True)
    show("profile train", json, lambda console: unchoke.profile_train(out=out, on_event=console.on_event, **typed))


@profile_app.command("tile")
@takes("profile_tile")
def profile_tile(
    typed: dict[str, Any],
    windows: Annotated[int, typer.Option("--windows", min=1, help="How many windows to measure.")] = 24,
    out: Out = None,
    json: Json = False,
) -> None:
    """Where tiling your scenes spends its time, the plain way and this one: a real profile, with .prof files for snakeviz."""
    show(
        "profile tile",
        json,
        lambda console: unchoke.profile_tile(out=out, windows=windows, on_event=console.on_event, **typed),
    )


@profile_app.command("view")
def profile_view(
    trace: Annotated[Path, typer.Argument(help="A trace that torch.profiler wrote: *.pt.trace.json, or the same gzipped.")],
    against: Annotated[Path | None, typer.Option("--against", help="An earlier trace: show what changed since.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The page to write (default: beside the trace, as .html).")] = None,
    json: Json = False,
) -> None:
    """A trace of any run as one HTML page: steps, operators, kernels, a zoomable strip, memory; a diff of two. No network."""
    show("profile view", json, lambda _: unchoke.profile_view(trace, against=against, to=to))
