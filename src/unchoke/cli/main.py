"""`unchoke`: one function per command. Each parses, calls the function of that name of `import unchoke`, and shows the result."""

from __future__ import annotations

import os
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import unchoke
from unchoke.cli import profile_commands as profiling
from unchoke.cli import run_commands as runs
from unchoke.cli import scene_commands as scenes
from unchoke.cli import tuning_commands as tuning
from unchoke.cli.cluster_commands import cluster_app
from unchoke.cli.completion import complete_device
from unchoke.cli.help_page import HELP_NAMES, HelpfulApp
from unchoke.cli.options import Detach, DryRun, Json, On, Out, Run, Weights, takes
from unchoke.cli.showing import INTERRUPTED, PlainResult, Result, hush_profiler, show, tell_error
from unchoke.core.errors import UsageError

_COLOUR_WORDS = {"rgb", "rgba", "l", "grey", "gray", "cmyk"}

_BEGIN, _TRAIN, _SCENES, _RUNS, _SPEED = "Begin", "Train", "Scenes and masks", "Runs", "What holds training back"
"""Headings of the commands."""

app = HelpfulApp(
    name="unchoke",
    help="Train image models fast on the machine you have, and know what holds a run back.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES},
)


def _version(wanted: bool) -> None:
    if wanted:
        from unchoke.runs.report.console import Console

        Console().result("version", {"version": unchoke.__version__}, f"unchoke {unchoke.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Train image models fast on the machine you have, and know what holds a run back."""


@app.command(short_help="What this machine is, and what was chosen for it.", rich_help_panel=_BEGIN)
@takes("doctor")
def doctor(typed: dict[str, Any], json: Json = False) -> None:
    """This machine: what it is, and what was chosen for it, each with its reason."""

    def work(_: object) -> Result:
        from unchoke.machine.doctor import render_doctor

        report = unchoke.doctor(**typed)
        return PlainResult(report.to_dict(), render_doctor(report))

    show("doctor", json, work)


Dataset = Annotated[
    str | None,
    typer.Option(
        help="MODULE:NAME or FILE.py:NAME, a dataset of your own or what makes it: a spawned worker loads a batch of it. "
        "Your code is run. Without DATA, that is all.",
        show_default=False,
        rich_help_panel="Data",
    ),
]


@app.command(short_help="Is this data sound? Exits 1 on errors.", rich_help_panel=_BEGIN)
@takes("check")
def check(typed: dict[str, Any], dataset: Dataset = None, out: Out = None, json: Json = False) -> None:
    """Pre-flight gate: is this data sound, and can workers load it? Exits 1 on errors. Never writes inside DATA."""
    show("check", json, lambda console: unchoke.check(dataset=dataset, out=out, on_event=console.on_event, **typed))


Unlabelled = Annotated[
    str | None,
    typer.Option("--unlabelled", metavar="FOLDER", help="Photos without labels: those to label next come first in the queue."),
]


@app.command(short_help="What to look at in the data: labels, copies, odd photos.", rich_help_panel=_BEGIN)
@takes("curate")
def curate(
    typed: dict[str, Any],
    unlabelled: Unlabelled = None,
    num: Annotated[int, typer.Option("--num", help="How many photos of --unlabelled to choose.")] = 50,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write a row for each finding to this CSV file.")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """What to look at in the data, over cached features: likely wrong labels, near-copies, odd photos; with suggested decisions.

    DATA may also be a run: exp_3, latest or best. Photos are only read; decisions are lines of corrections.csv in the workspace.
    """
    own: dict[str, Any] = {"unlabelled": unlabelled, "num": num, "csv": csv, "out": out}
    show("curate", json, lambda console: unchoke.curate(on_event=console.on_event, **own, **typed))


@app.command(short_help="Check, extract features once, train, evaluate, report.", rich_help_panel=_TRAIN)
@takes("fit")
def fit(typed: dict[str, Any], out: Out = None, detach: Detach = False, dry_run: DryRun = False, json: Json = False) -> None:
    """The main job: check, extract features once, train, evaluate, report. Run it again and it goes on, or says it is done."""
    if detach:
        show("fit", json, lambda _: _detach("fit", typed, out, dry_run=dry_run))
        return
    hush_profiler(typed["profile"])
    show("fit", json, lambda console: unchoke.fit(out=out, on_event=console.on_event, dry_run=dry_run, **typed))


@app.command(short_help="The same without the gate in front.", rich_help_panel=_TRAIN)
@takes("train")
def train(typed: dict[str, Any], out: Out = None, detach: Detach = False, json: Json = False) -> None:
    """Train and evaluate, without the gate in front; extracts what is missing."""
    if detach:
        show("train", json, lambda _: _detach("train", typed, out))
        return
    hush_profiler(typed["profile"])
    show("train", json, lambda console: unchoke.train(out=out, on_event=console.on_event, **typed))


def _detach(command: Any, typed: dict[str, Any], out: Path | None, *, dry_run: bool = False) -> Result:
    if dry_run:
        why = "a rehearsal is over in seconds and changes nothing"
        raise UsageError(
            "--dry-run and --detach do not go together", code="options-conflict", why=why, try_="unchoke fit DATA --dry-run"
        )
    return unchoke.detach(command, out=out, **typed)


@app.command(short_help="The frozen part alone, in resumable micro-jobs.", rich_help_panel=_TRAIN)
@takes("extract")
def extract(
    typed: dict[str, Any],
    job: Annotated[str | None, typer.Option("--job", help="Run this one job of features/jobs_queue.csv, done or not.")] = None,
    out: Out = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """The frozen part alone, in resumable micro-jobs."""
    show("extract", json, lambda console: unchoke.extract(out=out, job=job, dry_run=dry_run, on_event=console.on_event, **typed))


@app.command(short_help="What batch fits here, and how fast it is.", rich_help_panel=_SPEED)
@takes("budget")
def budget(
    typed: dict[str, Any],
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Time every batch size on the way, and name the fastest.")
    ] = False,
    json: Json = False,
) -> None:
    """What batch fits here, and how fast it is: measured in processes of their own, without data. Left out, --cut is none."""
    show("budget", json, lambda console: unchoke.budget(benchmark=benchmark, on_event=console.on_event, **typed))


@app.command(short_help="Score a run again from its files.", rich_help_panel=_TRAIN)
def evaluate(run: Run = "latest", out: Out = None, json: Json = False) -> None:
    """Score a run again from its files: what was cached and the saved weights, no training."""
    show("evaluate", json, lambda console: unchoke.evaluate(run, out=out, on_event=console.on_event))


@app.command(short_help="Predict new images with a run.", rich_help_panel=_TRAIN)
def predict(
    run: Run,
    images: Annotated[list[str], typer.Argument(help="Image files or folders, also by URL.")],
    to: Annotated[Path | None, typer.Option("--to", help="Write the predictions to this CSV file.")] = None,
    inputs: Annotated[
        str | None,
        typer.Option("--inputs", metavar="PATH", help="Table with the images' extra columns, for a run trained with --input."),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="The probability of every class, as p/NAME.")] = False,
    top: Annotated[int | None, typer.Option("--top", help="So many guesses, the likeliest first.")] = None,
    unsure_below: Annotated[
        float | None, typer.Option("--unsure-below", help='Call images "unsure" whose class is less probable than this.')
    ] = None,
    level: Annotated[
        float | None, typer.Option("--level", help="Of values: the share that their intervals are to hold (default 0.9).")
    ] = None,
    corrections: Annotated[
        str | None,
        typer.Option(
            "--corrections",
            metavar="PATH",
            help="Decisions about the run's own photos, for --unsure-below and --level (default: its workspace's); 'none'.",
        ),
    ] = None,
    weights: Weights = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or mps.", autocompletion=complete_device)] = None,
    on: On = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Predict new images with a run, from its files alone. One that cannot be read has its reason in its row; exits 1 then."""
    options: dict[str, Any] = {"to": to, "inputs": inputs, "weights": weights, "device": device, "on": on, "out": out}
    options |= {"probabilities": probabilities, "top": top, "unsure_below": unsure_below, "level": level}
    options["corrections"] = corrections
    show("predict", json, lambda console: unchoke.predict(run, images, on_event=console.on_event, **options))


@app.command(short_help="Write report.html of a run again.", rich_help_panel=_TRAIN)
def report(run: Run = "latest", out: Out = None, json: Json = False) -> None:
    """Write report.html of a run again, from its files alone."""

    def work(_: object) -> Result:
        file = unchoke.report(run, out=out)
        return PlainResult({"report": str(file)}, f"report  {file}")

    show("report", json, work)


app.command("export", short_help="A run's model as one file for other runtimes.", rich_help_panel=_RUNS)(runs.export)
app.command("tile", short_help="Scenes to NPZ tiles with masks and a manifest.", rich_help_panel=_SCENES)(scenes.tile)
app.command("encoders", short_help="Which network suits your photos?", rich_help_panel=_TRAIN)(tuning.encoders)
app.command("tune", short_help="Try the tricks on your data; keep what is faster.", rich_help_panel=_SPEED)(tuning.tune)
profiling.add_doctor_command(app, "lint", "What slows training code down, by reading it.", _SPEED)
profiling.add_doctor_command(app, "notebook", "The same, cell by cell, read or run.", _SPEED)
_GROUPS = (
    (scenes.segment_app, "segment", "Train a decoder, stitch masks of any size.", _SCENES),
    (runs.runs_app, "runs", "What was tried, and what came out.", _RUNS),
    (runs.presets_app, "presets", "Settings that belong together, for --preset.", _RUNS),
    (profiling.profile_app, "profile", "Where the time goes, in any PyTorch script.", _SPEED),
    (cluster_app, "cluster", "Can this Ray cluster do the work?", _RUNS),
)
for _group, _name, _short, _heading in _GROUPS:
    app.add_typer(_group, name=_name, short_help=_short, rich_help_panel=_heading)


Port = Annotated[int, typer.Option("--port", help="Port to listen on (default one that is free).", show_default=False)]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; another one lets other machines in.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")]


@app.command(short_help="The workspace as a page: runs, photos, review.", rich_help_panel=_RUNS)
def ui(out: Out = None, port: Port = 0, host: Host = "127.0.0.1", browser: Browser = True, json: Json = False) -> None:
    """The workspace as a local page: runs as they train, photos, decisions about them. Serves until Ctrl-C."""
    show("ui", json, lambda console: unchoke.ui(out=out, port=port, host=host, browser=browser, on_event=console.on_event))


class Demo(StrEnum):
    """What a demo is about."""

    photos = "photos"
    scenes = "scenes"


@app.command(short_help="All of it on data that comes with a package, offline.", rich_help_panel=_BEGIN)
def demo(
    what: Annotated[
        Demo, typer.Argument(help="photos: grocery photos to classes; scenes: Landsat bands to a cloud mask.")
    ] = Demo.photos,
    out: Out = None,
    json: Json = False,
) -> None:
    """All of it on real data that comes with a package: offline, a couple of minutes on two cores."""
    show("demo", json, lambda console: unchoke.demo(what.value, out=out, on_event=console.on_event))


def join_expect(arguments: list[str]) -> list[str]:
    """Let `--expect 600x450 rgb` be typed without quotes: its second word is not a file."""
    joined: list[str] = []
    for argument in arguments:
        expected = joined[-2:-1] == ["--expect"] or "".join(joined[-1:]).startswith("--expect=")
        if expected and argument.lower() in _COLOUR_WORDS:
            joined[-1] += f" {argument}"
        else:
            joined.append(argument)
    return joined


def main() -> None:
    """The console script."""
    _open_closed_streams()
    try:
        app(args=join_expect(profiling.name_script(sys.argv[1:])))
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _leave_at_once()
        raise
    except OSError as error:
        raise SystemExit(_unwritten(error)) from None


def _unwritten(error: OSError) -> int:
    """A help text, or a word about wrong usage, that could not be written."""
    from unchoke.machine.system_limits import limit_reached
    from unchoke.runs.report.console import Console, no_stdout, silence

    if limit_reached(error) is None:
        raise error
    if sys.stdout is not None:
        silence(sys.stdout)
    return tell_error(Console(), "unchoke", no_stdout(error.strerror or str(error)))


def _open_closed_streams() -> None:
    """Where stdin, stdout or stderr is closed (`>&-`), let its number lead nowhere: else the next file would bear it."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def _leave_at_once() -> None:
    """Exit without waiting for threads that nobody needs any more: ending Python beside them waits, or aborts in native code.

    Nothing is lost: every file is written whole or not at all, and the lock goes with the process.
    """
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
