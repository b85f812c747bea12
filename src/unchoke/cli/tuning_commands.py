"""The commands that try things out on your data: `encoders` and `tune`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import unchoke
from unchoke.cli.options import DryRun, Json, Out, takes
from unchoke.cli.showing import show


@takes("encoders")
def encoders(
    typed: dict[str, Any],
    encoders: Annotated[
        str, typer.Option("--encoders", help="timm model names, separated by commas. Left out, those that are installed.")
    ] = "",
    minutes: Annotated[float, typer.Option("--minutes", help="About how long it may take.")] = 3.0,
    keep: Annotated[bool, typer.Option("--keep", help="Let the next `fit` use the choice.")] = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare encoders on a sample of your photos: how well plain heads do on their features, and what those cost."""
    own: dict[str, Any] = {"encoders": encoders, "minutes": minutes, "keep": keep, "out": out}
    show("encoders", json, lambda console: unchoke.encoders(on_event=console.on_event, **own, **typed))


@takes("tune")
def tune(
    typed: dict[str, Any],
    minutes: Annotated[float, typer.Option("--minutes", help="How long it may take, at most.")] = 2.0,
    again: Annotated[bool, typer.Option("--again", help="Try everything anew, also what was tried here before.")] = False,
    out: Out = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Try the tricks on this machine, model and data; keep what is equal and faster. `train` and `fit` use what was kept."""
    own: dict[str, Any] = {"minutes": minutes, "again": again, "out": out, "dry_run": dry_run}
    show("tune", json, lambda console: unchoke.tune(on_event=console.on_event, **own, **typed))
