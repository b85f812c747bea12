"""Every command of `unchoke`: its options and its help.

A command without a body hands what was typed to the function of its name in `import unchoke`, and shows what that returns. One
with a body returns what is shown. Settings are added from the table (`options.py:command()`).
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

import unchoke
from unchoke.cli.completion import complete_preset, complete_run, complete_setting
from unchoke.cli.help_page import HELP_NAMES, HelpfulApp
from unchoke.cli.options import DryRun, HomeRun, Json, Out, Run, Weights, command
from unchoke.cli.showing import PlainResult, Result
from unchoke.core.errors import UsageError

if TYPE_CHECKING:
    from unchoke.runs.report.console import Console

_BEGIN, _TRAIN, _SCENES, _RUNS, _SPEED = "Begin", "Train", "Scenes and masks", "Runs", "What holds training back"
"""Headings of the commands."""

app = HelpfulApp(
    name="unchoke",
    help="Train image models fast on the machine you have, and know what holds a run back.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES},
)
segment_app = HelpfulApp(help="Patches to full-size masks: train a decoder, then stitch masks of any size.")
runs_app = HelpfulApp(help="What was tried, and what came out.")
presets_app = HelpfulApp(help="Settings that belong together, for --preset.", invoke_without_command=True, no_args_is_help=False)
profile_app = HelpfulApp(
    help="Where the time goes: `profile [OPTIONS] -- python train.py` for any PyTorch script (--steps, --seconds, --try, "
    "--no-replay, --save, --against, --fail-if-slower; `profile script --help` explains them), and the commands below.",
)
cluster_app = HelpfulApp(help="Ray clusters, for --on: starting one is Ray's business, testing it is this.")


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


# -- Begin, and train ------------------------------------------------------------------------------------------------------------


@command(app, "doctor", "What this machine is, and what was chosen for it.", _BEGIN)
def doctor(
    console: Console,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Measure what unchoke does here, in some ten minutes, and write it to this JSON file, without names and paths: "
            "engines, training, a kill, memory. Send it with a report of a problem.",
        ),
    ] = None,
    **typed: Any,
) -> Result:
    """This machine: what it is, and what was chosen for it, each with its reason."""
    from unchoke.machine.doctor import render_doctor

    found = unchoke.doctor(report=report, on_event=console.on_event, **typed)
    return PlainResult(found.to_dict(), render_doctor(found) + (f"\nreport  {report}\n" if report else ""))


@command(app, "check", "Is this data sound? Exits 1 on errors.", _BEGIN)
def check(
    dataset: Annotated[
        str | None,
        typer.Option(
            help="MODULE:NAME or FILE.py:NAME, a dataset of your own or what makes it: a spawned worker loads a batch of it. "
            "Your code is run. Without DATA, that is all.",
            show_default=False,
            rich_help_panel="Data",
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Pre-flight gate: is this data sound, and can workers load it? Exits 1 on errors. Never writes inside DATA."""


@command(app, "curate", "What to look at in the data: labels, copies, odd photos.", _BEGIN)
def curate(
    unlabelled: Annotated[
        str | None,
        typer.Option(
            "--unlabelled", metavar="FOLDER", help="Photos without labels: those to label next come first in the queue."
        ),
    ] = None,
    num: Annotated[int, typer.Option("--num", help="How many photos of --unlabelled to choose.")] = 50,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write a row for each finding to this CSV file.")] = None,
    out: Out = None,
) -> None:
    """What to look at in the data, over cached features: likely wrong labels, near-copies, odd photos; with suggested decisions.

    DATA may also be a run: exp_3, latest or best. Photos are only read; decisions are lines of corrections.csv in the workspace.
    """


Detach = Annotated[bool, typer.Option("--detach", help="Work in the background; see `unchoke runs watch`.")]


@command(app, "fit", "Check, extract features once, train, evaluate, report.", _TRAIN)
def fit(console: Console, out: Out = None, detach: Detach = False, dry_run: DryRun = False, **typed: Any) -> Result:
    """The main job: check, extract features once, train, evaluate, report. Run it again and it goes on, or says it is done."""
    if not detach:
        return unchoke.fit(out=out, on_event=console.on_event, dry_run=dry_run, **typed)
    if dry_run:
        why = "a rehearsal is over in seconds and changes nothing"
        raise UsageError(
            "--dry-run and --detach do not go together", code="options-conflict", why=why, try_="unchoke fit DATA --dry-run"
        )
    return unchoke.detach("fit", out=out, **typed)


@command(app, "train", "The same without the gate in front.", _TRAIN)
def train(console: Console, out: Out = None, detach: Detach = False, **typed: Any) -> Result:
    """Train and evaluate, without the gate in front; extracts what is missing."""
    if detach:
        return unchoke.detach("train", out=out, **typed)
    return unchoke.train(out=out, on_event=console.on_event, **typed)


@command(app, "extract", "The frozen part alone, in resumable micro-jobs.", _TRAIN)
def extract(
    job: Annotated[str | None, typer.Option("--job", help="Run this one job of features/jobs_queue.csv, done or not.")] = None,
    out: Out = None,
    dry_run: DryRun = False,
) -> None:
    """The frozen part alone, in resumable micro-jobs."""


@command(app, "budget", "What batch fits here, and how fast it is.", _SPEED)
def budget(
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Time every batch size on the way, and name the fastest.")
    ] = False,
) -> None:
    """What batch fits here, and how fast it is: measured in processes of their own, without data. Left out, --cut is none."""


@command(app, "evaluate", "Score a run again from its files.", _TRAIN)
def evaluate(run: Run = "latest", out: Out = None) -> None:
    """Score a run again from its files: what was cached and the saved weights, no training."""


Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda or mps.", autocompletion=complete_setting("device"))]
On = Annotated[
    str | None,
    typer.Option("--on", help="The Ray cluster that predicts: ray://HOST:10001, HOST:6379 or auto; local is this machine alone."),
]


@command(app, "predict", "Predict new images with a run.", _TRAIN)
def predict(
    run: Run,
    images: Annotated[list[str], typer.Argument(help="Image files or folders, also by URL.")],
    to: Annotated[Path | None, typer.Option("--to", help="Write the predictions to this CSV file.")] = None,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="PATH", help="Write them with the ids, columns and order of this sample_submission.csv."),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option("--inputs", metavar="PATH", help="Table with the images' extra columns, for a run trained with --input."),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="The probability of every class, as p/NAME.")] = False,
    top: Annotated[int | None, typer.Option("--top", help="Number of guesses, the most likely first.")] = None,
    unsure_below: Annotated[
        float | None,
        typer.Option(
            "--unsure-below",
            help='Call images "unsure" whose class is less probable than this, and those unlike all training photos.',
        ),
    ] = None,
    level: Annotated[
        float | None, typer.Option("--level", help="Share of true values that the intervals hold (default 0.9).")
    ] = None,
    least_precision: Annotated[
        float | None,
        typer.Option("--least-precision", help="Of several labels: as many as keep this precision (default: highest F1)."),
    ] = None,
    least_recall: Annotated[
        float | None, typer.Option("--least-recall", help="Of several labels: as few as keep this recall.")
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
    device: Device = None,
    on: On = None,
    out: Out = None,
) -> None:
    """Predict new images with a run, from its files alone. One that cannot be read has its reason in its row; exits 1 then."""


@command(app, "report", "Write report.html of a run again.", _TRAIN)
def report(run: Run = "latest", out: Out = None) -> Result:
    """Write report.html of a run again, from its files alone."""
    file = unchoke.report(run, out=out)
    return PlainResult({"report": str(file)}, f"report  {file}")


class ModelFormat(StrEnum):
    """The runtime a model is written for."""

    onnx = "onnx"
    openvino = "openvino"
    pt2 = "pt2"


class ModelPrecision(StrEnum):
    """How a model's weights are kept."""

    f32 = "f32"
    f16 = "f16"
    int8 = "int8"


@command(app, "export", "A run's model as one file for other runtimes.", _RUNS)
def export(
    run: HomeRun,
    to: Annotated[Path, typer.Option("--to", help="The folder to make.")],
    format: Annotated[
        ModelFormat, typer.Option("--format", help="For onnxruntime, OpenVINO, or torch alone.")
    ] = ModelFormat.onnx,
    precision: Annotated[
        ModelPrecision, typer.Option("--precision", help="f16: weights in half the bytes; int8: fitted to your photos.")
    ] = ModelPrecision.f32,
    units: Annotated[
        str | None, typer.Option("--units", help="Units of targets, NAME=UNIT,…; left out, by the ends of their names.")
    ] = None,
    weights: Weights = None,
    out: Out = None,
) -> None:
    """The model of a run as one file, from pixels to answers, checked on the run's own test photos before it is handed over."""


# -- Scenes and masks ------------------------------------------------------------------------------------------------------------


@command(app, "tile", "Scenes to NPZ tiles with masks and a manifest.", _SCENES)
def tile(out: Out = None, dry_run: DryRun = False) -> None:
    """Scenes to training tiles: band files, multi-band files or large images, cut into NPZ windows with masks and a manifest.

    Exits 1 if a scene could not be read; the others are tiled.
    """


@command(segment_app, "segment train")
def segment_train(out: Out = None) -> None:
    """Train a decoder on the encoder's cached pyramids of patches (or, with --cut none, the whole network)."""


@command(segment_app, "segment predict")
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
    device: Device = None,
    on: On = None,
    out: Out = None,
) -> None:
    """Masks of whole scenes, stitched from patches in bounded memory: GeoTIFFs in the scene's place on the map, PNG for photos.

    Run it again and it goes on, or says it is done. Exits 1 if a scene could not be read.
    """


# -- What holds training back ----------------------------------------------------------------------------------------------------


@command(app, "encoders", "Which network suits your photos?", _TRAIN)
def encoders(
    console: Console,
    encoders: Annotated[
        str, typer.Option("--encoders", help="timm model names, separated by commas. Left out, those that are installed.")
    ] = "",
    minutes: Annotated[float, typer.Option("--minutes", help="About how long it may take.")] = 3.0,
    keep: Annotated[bool, typer.Option("--keep", help="Let the next `fit` use the choice.")] = False,
    out: Out = None,
    **typed: Any,
) -> Result:
    """Compare encoders on a sample of your photos: how well plain heads do on their features, and what those cost.

    `unchoke encoders list` shows a few networks worth trying, their licences, and whose weights are on this machine.
    """
    if typed.get("data") == "list" and not Path("list").exists():
        return unchoke.list_encoders()
    return unchoke.encoders(encoders=encoders, minutes=minutes, keep=keep, out=out, on_event=console.on_event, **typed)


@command(app, "tune", "Try the tricks on your data; keep what is faster.", _SPEED)
def tune(
    minutes: Annotated[float, typer.Option("--minutes", help="How long it may take, at most.")] = 2.0,
    again: Annotated[bool, typer.Option("--again", help="Try everything anew, also what was tried here before.")] = False,
    out: Out = None,
    dry_run: DryRun = False,
) -> None:
    """Try the tricks on this machine, model and data; keep what is equal and faster. `train` and `fit` use what was kept."""


class DoctorCommand(TyperCommand):
    """A command whose words `unchoke_doctor` reads, `--help` among them: nothing is parsed here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = args
        return []

    def invoke(self, ctx: Any) -> Any:
        from unchoke_doctor.__main__ import main

        raise typer.Exit(main(["profile" if ctx.info_name == "script" else ctx.info_name, *ctx.args]))


def _doctor_command(group: typer.Typer, name: str, short_help: str, heading: str | None = None) -> None:
    group.command(name, cls=DoctorCommand, short_help=short_help, rich_help_panel=heading)(lambda: None)


_doctor_command(app, "lint", "What slows training code down, by reading it.", _SPEED)
_doctor_command(app, "notebook", "The same, cell by cell, read or run.", _SPEED)
_doctor_command(profile_app, "script", "Which lines the time of a training script goes to.")


@command(profile_app, "profile train")
def profile_train(out: Out = None) -> None:
    """Some steps of `unchoke train` under torch.profiler: where a step's time went, the top operators, a page. Keeps no run."""


@command(profile_app, "profile tile")
def profile_tile(
    windows: Annotated[int, typer.Option("--windows", min=1, help="How many windows to measure.")] = 24, out: Out = None
) -> None:
    """Where tiling your scenes spends its time, the plain way and this one: a real profile, with .prof files for snakeviz."""


@command(profile_app, "profile view")
def profile_view(
    trace: Annotated[Path, typer.Argument(help="A trace that torch.profiler wrote: *.pt.trace.json, or the same gzipped.")],
    against: Annotated[Path | None, typer.Option("--against", help="An earlier trace: show what changed since.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The page to write (default: beside the trace, as .html).")] = None,
) -> Result:
    """A trace of any run as one HTML page: steps, operators, kernels, a zoomable strip, memory; a diff of two. No network."""
    return unchoke.profile_view(trace, against=against, to=to)


# -- Runs ------------------------------------------------------------------------------------------------------------------------


@command(runs_app, "runs list")
def runs_list(
    sort: Annotated[
        str,
        typer.Option("--sort", help="run, started, encoder, cut, head, epochs, result, time, or a metric; -NAME turns it round."),
    ] = "run",
    out: Out = None,
) -> Result:
    """All runs of the workspace, newest last, or the best first with --sort result."""
    from unchoke.runs.lookup import describe_run, stored_runs, unlisted_runs
    from unchoke.runs.report.text import render_runs_table

    rows, unlisted = stored_runs(out=out, sort=sort), unlisted_runs(out=out)
    plain = {"runs": [describe_run(run) for run in rows], "unlisted": [str(folder) for folder in unlisted]}
    return PlainResult(plain, render_runs_table(rows, unlisted))


@command(runs_app, "runs show")
def runs_show(run: Run = "latest", out: Out = None) -> Result:
    """One run: settings, choices, metrics, timings, files."""
    return _shown(unchoke.show_run(run, out=out))


@command(runs_app, "runs compare")
def runs_compare(
    runs: Annotated[list[str], typer.Argument(help="Two or more runs.", autocompletion=complete_run)],
    out: Out = None,
) -> Result:
    """Runs side by side: what differs in settings, and in results."""
    from unchoke.runs.report.text import render_comparison

    records = unchoke.compare_runs(runs, out=out)
    return PlainResult({"runs": [run.to_dict() for run in records]}, render_comparison(records))


@command(runs_app, "runs best")
def runs_best(
    metric: Annotated[str | None, typer.Option("--metric", help="Which metric (default accuracy, or r2).")] = None,
    out: Out = None,
) -> Result:
    """The run with the best validation score."""
    return _shown(unchoke.best_run(metric, out=out))


def _shown(record: unchoke.RunRecord) -> Result:
    from unchoke.runs.report.text import render_run

    return PlainResult(record.to_dict(), render_run(record))


@command(runs_app, "runs watch")
def runs_watch(console: Console, out: Out = None, json: Json = False) -> Result:
    """Follow the newest detached run to its end, or show how it ended. Ctrl-C stops the watching, not the run."""
    return unchoke.watch_run(out=out, on_event=console.on_event, on_line=console.pass_on if json else None)


@command(runs_app, "runs export")
def runs_export(
    console: Console,
    run: Run,
    to: Annotated[Path, typer.Argument(help="The folder to make.")],
    weights: Weights = None,
    out: Out = None,
) -> Result:
    """One folder with everything evaluate, predict and report need, to take to another machine."""
    result = unchoke.export_run(run, to, weights=weights, out=out, on_event=console.on_event)
    given = "segment predict {} SCENES" if result["masks"] else "predict {} IMAGES"
    return PlainResult(result, f"exported  {to}\nnext      unchoke {given.format(shlex.quote(str(to)))}")


@presets_app.callback()
def presets(context: typer.Context, json: Json = False) -> None:
    """Settings that belong together, for --preset. Alone, the same as `presets list`."""
    if context.invoked_subcommand is None:
        presets_list(json=json)


@command(presets_app, "presets list")
def presets_list() -> Result:
    """The presets, with what each is for and what it expects of the data."""
    from unchoke.runs.report.text import render_presets

    found = unchoke.list_presets()
    return PlainResult({"presets": [preset.to_dict() for preset in found]}, render_presets(found))


@command(presets_app, "presets show")
def presets_show(
    name: Annotated[str, typer.Argument(help="A preset, or a TOML file.", autocompletion=complete_preset)],
) -> Result:
    """A preset as it is written: every setting, and why."""
    preset = unchoke.show_preset(name)
    return PlainResult({**preset.to_dict(), "text": preset.text}, preset.text)


@command(cluster_app, "cluster check")
def cluster_check(
    console: Console,
    address: Annotated[str, typer.Argument(help="ray://HOST:10001, HOST:6379, or auto.")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Photos as for `fit`; left out, some are made up.", show_default=False)
    ] = None,
    images: Annotated[
        list[Path] | None, typer.Option("--images", help="Folder with the images of a table; repeatable.", show_default=False)
    ] = None,
) -> Result:
    """Can this cluster do the work, and does every node give the same answer?

    Every node is asked what it is (versions, clock, token), whether it can read the photos, and to extract some of them. Exits 1
    if a node cannot be used.
    """
    return unchoke.cluster_check(address, data, images=images or [], on_event=console.on_event)


for _group, _name, _short, _heading in (
    (segment_app, "segment", "Train a decoder, stitch masks of any size.", _SCENES),
    (runs_app, "runs", "What was tried, and what came out.", _RUNS),
    (presets_app, "presets", "Settings that belong together, for --preset.", _RUNS),
    (profile_app, "profile", "Where the time goes, in any PyTorch script.", _SPEED),
    (cluster_app, "cluster", "Can this Ray cluster do the work?", _RUNS),
):
    app.add_typer(_group, name=_name, short_help=_short, rich_help_panel=_heading)


@command(app, "ui", "The workspace as a page: runs, photos, review.", _RUNS)
def ui(
    out: Out = None,
    port: Annotated[int, typer.Option("--port", help="Port to listen on (default one that is free).", show_default=False)] = 0,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; another one lets other machines in.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """The workspace as a local page: runs as they train, photos, decisions about them. Serves until Ctrl-C."""


class Demo(StrEnum):
    """What a demo is about."""

    photos = "photos"
    scenes = "scenes"


@command(app, "demo", "All of it on data that comes with a package, offline.", _BEGIN)
def demo(
    what: Annotated[
        Demo, typer.Argument(help="photos: grocery photos to classes; scenes: Landsat bands to a cloud mask.")
    ] = Demo.photos,
    out: Out = None,
) -> None:
    """All of it on real data that comes with a package: offline, a couple of minutes on two cores."""
