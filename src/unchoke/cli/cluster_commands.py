"""The commands about clusters: `cluster check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unchoke
from unchoke.cli.help_page import HelpfulApp
from unchoke.cli.options import Json
from unchoke.cli.showing import show

cluster_app = HelpfulApp(help="Ray clusters, for --on: starting one is Ray's business, testing it is this.")


@cluster_app.command("check")
def cluster_check(
    address: Annotated[str, typer.Argument(help="ray://HOST:10001, HOST:6379, or auto.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Photos as for `fit`; left out, some are made up.", show_default=False)
    ] = None,
    images: Annotated[
        list[Path] | None, typer.Option("--images", help="Folder with the images of a table; repeatable.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Can this cluster do the work, and does every node give the same answer?

    Every node is asked what it is (versions, clock, token), whether it can read the photos, and to extract some of them. Exits 1
    if a node cannot be used.
    """
    folders = images or []
    show("cluster check", json, lambda console: unchoke.cluster_check(address, data, images=folders, on_event=console.on_event))
