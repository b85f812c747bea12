"""The command about notebooks: `notebook FILE.ipynb`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unchoke.cli.options import Json, Out
from unchoke.cli.showing import Shown, show
from unchoke.core.errors import UsageError
from unchoke.reports.console import Console


def notebook(
    file: Annotated[Path, typer.Argument(metavar="FILE.ipynb", help="The notebook. It is read, and never written.")],
    run: Annotated[bool, typer.Option("--run", help="Run it in a fresh kernel and measure every cell.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="The longest a cell may run; then it is interrupted.")
    ] = 600.0,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a cell that raised or was interrupted (default: stop there).")
    ] = False,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", help="Folder to run in (default: the notebook's own).", show_default=False)
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", help="Kernel to run it in (default: the one it names).", show_default=False)
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table as Markdown.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page of it: one file, no network.", show_default=False)
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """A notebook cell by cell: what it does, its choke points, what it costs; keep, optimise, segment or eliminate it.

    With --run, exits 1 if a cell raised, ran over its time or ended the kernel. Ctrl-C keeps what was measured.
    """

    def work(console: Console) -> Shown:
        if markdown and json:
            why = "each of them is what goes to stdout"
            raise UsageError("--markdown and --json at once", why=why, try_="give one of them")
        from unchoke.commands.notebook import notebook as analyse

        report = analyse(
            file,
            run=run,
            timeout_s=timeout,
            keep_going=keep_going,
            cwd=cwd,
            kernel=kernel,
            html=html,
            out=out,
            on_event=console.on_event,
        )
        return report.to_dict(), report.to_markdown() if markdown else report.to_text(), report.exit_code

    show("notebook", json, work)
