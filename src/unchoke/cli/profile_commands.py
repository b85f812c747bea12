"""The commands about where time goes: `profile -- COMMAND`, `profile train`, `profile tile`, `profile view`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import unchoke
from unchoke.cli.help_page import HelpfulApp
from unchoke.cli.options import Json, Out, takes
from unchoke.cli.showing import hush_profiler, show

if TYPE_CHECKING:
    from unchoke.reports.console import Console

profile_app = HelpfulApp(
    help="Where the time goes: `profile -- python train.py` for any PyTorch script, and the commands below.",
)


@profile_app.command("script")
def profile_script(
    command: Annotated[list[str], typer.Argument(help="The command to run, after `--`.")],
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Stop after this many optimizer steps.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.1, help="Stop after this many seconds of training.")] = None,
    replay: Annotated[
        bool, typer.Option("--replay/--no-replay", help="Run it once more on one batch, to see how fast a step could be.")
    ] = True,
    try_fixes: Annotated[
        bool,
        typer.Option("--try", help="Try what the first findings suggest, on sandboxed runs of a few steps, script unedited."),
    ] = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Run a training script as it is, and say where each step's time went: `unchoke profile -- python train.py`."""
    options: dict[str, Any] = {"steps": steps, "seconds": seconds, "replay": replay, "try_fixes": try_fixes, "out": out}

    def run(console: Console) -> Any:
        profiled = unchoke.profile(command, on_event=console.on_event, stdout_to_stderr=json, **options)
        return replace(profiled, own_cpu_s=time.process_time())  # from the start of this command

    show("profile", json, run)


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
