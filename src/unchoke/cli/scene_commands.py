"""The commands about scenes and masks: `tile`, `segment train`, `segment predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import unchoke
from unchoke.cli.completion import complete_device
from unchoke.cli.help_page import HelpfulApp
from unchoke.cli.options import DryRun, Json, On, Out, Run, Weights, takes
from unchoke.cli.showing import hush_profiler, show

segment_app = HelpfulApp(help="Patches to full-size masks: train a decoder, then stitch masks of any size.")


@takes("tile")
def tile(typed: dict[str, Any], out: Out = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Scenes to training tiles: band files, multi-band files or large images, cut into NPZ windows with masks and a manifest.

    Exits 1 if a scene could not be read; the others are tiled.
    """
    show("tile", json, lambda console: unchoke.tile(out=out, dry_run=dry_run, on_event=console.on_event, **typed))


@segment_app.command("train")
@takes("segment_train")
def segment_train(typed: dict[str, Any], out: Out = None, json: Json = False) -> None:
    """Train a decoder on the encoder's cached pyramids of patches (or, with --cut none, the whole network)."""
    hush_profiler(typed["profile"])
    show("segment train", json, lambda console: unchoke.segment_train(out=out, on_event=console.on_event, **typed))


@segment_app.command("predict")
def segment_predict(
    run: Run,
    scenes: Annotated[str, typer.Argument(help="Scenes as for `tile`: a folder, a table, a file.")],
    to: Annotated[Path | None, typer.Option("--to", help="Folder for the masks (default: masks/RUN in the workspace).")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities/--no-probabilities", help="Write the probability of each class as well.")
    ] = True,
    overlap: Annotated[int | None, typer.Option("--overlap", help="Pixels that patches share (default: as trained).")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Memory it may take, for instance 2GB.")] = None,
    weights: Weights = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or mps.", autocompletion=complete_device)] = None,
    on: On = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Masks of whole scenes, stitched from patches in bounded memory: GeoTIFFs in the scene's place on the map, PNG for photos.

    Run it again and it goes on, or says it is done. Exits 1 if a scene could not be read.
    """
    options: dict[str, Any] = {
        "to": to,
        "probabilities": probabilities,
        "overlap": overlap,
        "memory": memory,
        "weights": weights,
        "device": device,
        "on": on,
        "out": out,
    }
    show("segment predict", json, lambda console: unchoke.segment_predict(run, scenes, on_event=console.on_event, **options))
