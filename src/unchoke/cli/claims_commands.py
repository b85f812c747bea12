"""The commands about commonly reported gains: `claims run`, `claims list`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from unchoke.cli.options import Json
from unchoke.cli.showing import Shown, show
from unchoke.reports.console import Console

claims_app = typer.Typer(help="Commonly reported gains, measured on this machine.", no_args_is_help=True)


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

    def work(console: Console) -> Shown:
        if only_list:
            return _listed(names or ())
        from unchoke.tuning.claims.run_claims import claims_run as run

        result = run(names or (), minutes=minutes, out=out, on_event=console.on_event)
        return result.to_dict(), result.to_text(), result.exit_code

    show("claims run", json, work)


@claims_app.command("list")
def claims_list(json: Json = False) -> None:
    """The claims: what is commonly reported, and what is timed here."""
    show("claims list", json, lambda console: _listed(()))


def _listed(names: Sequence[str]) -> Shown:
    from unchoke.tuning.claims.run_claims import list_claims, render_claim_list

    claims = list_claims(names)
    return {"claims": claims}, render_claim_list(claims), 0
