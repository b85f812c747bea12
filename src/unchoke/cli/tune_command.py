"""`unchoke tune`: its options, and the call of the library function of the same name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unchoke.cli.options import DryRun, Json, Out, takes
from unchoke.cli.showing import Shown, show
from unchoke.reports.console import Console


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

    def work(console: Console) -> Shown:
        from unchoke.commands.tune import tune as run

        result = run(minutes=minutes, again=again, out=out, dry_run=dry_run, on_event=console.on_event, **typed)
        return result.to_dict(), result.to_text(), 0

    show("tune", json, work)
