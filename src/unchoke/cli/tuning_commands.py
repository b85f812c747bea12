"""The commands that try things out: `encoders` and `tune` on your data, `claims` on data made for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import unchoke
from unchoke.cli.help_page import HelpfulApp
from unchoke.cli.options import DryRun, Json, Out, takes
from unchoke.cli.showing import PlainResult, Result, show

claims_app = HelpfulApp(help="Commonly reported gains, measured on this machine.")


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


@claims_app.command("run")
def claims_run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Claims by name (default: all).", show_default=False)
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", help="How long all of them together may take.")] = 4.0,
    only_list: Annotated[bool, typer.Option("--list", help="Say what would be measured, and measure nothing.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for claims.json (default: nothing is kept).", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Measure commonly reported gains here: claimed, measured, equal or not, and why they differ. Offline, on data made for it.

    Ctrl-C shows what was measured so far.
    """
    if only_list:
        show("claims run", json, lambda _: _listed(names or ()))
        return
    show("claims run", json, lambda console: unchoke.claims_run(names or (), minutes=minutes, out=out, on_event=console.on_event))


@claims_app.command("list")
def claims_list(json: Json = False) -> None:
    """The claims: what is commonly reported, and what is timed here."""
    show("claims list", json, lambda _: _listed(()))


def _listed(names: Sequence[str]) -> Result:
    from unchoke.tuning.claims.run_claims import render_claim_list

    claims = unchoke.list_claims(names)
    return PlainResult({"claims": claims}, render_claim_list(claims))
