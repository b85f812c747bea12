"""`unchoke`: one function per command. Each parses, calls the library function of the same name, and shows the result."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from unchoke import __version__
from unchoke.cli import claims_commands as claims
from unchoke.cli import lint_command as linting
from unchoke.cli import notebook_command as notebooks
from unchoke.cli import profile_commands as profiling
from unchoke.cli import scene_commands as scenes
from unchoke.cli import tune_command as tuning
from unchoke.cli.options import Detach, DryRun, Json, Out, Run, Weights, takes
from unchoke.cli.showing import INTERRUPTED, Shown, hush_profiler, show
from unchoke.core.errors import UsageError
from unchoke.reports.console import Console

_COLOUR_WORDS = {"rgb", "rgba", "l", "grey", "gray", "cmyk"}

app = typer.Typer(
    name="unchoke",
    help="Train image models fast on the machine you have, and know what holds a run back.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs_app = typer.Typer(help="What was tried, and what came out.", no_args_is_help=True)
app.add_typer(runs_app, name="runs")
presets_app = typer.Typer(help="Settings that belong together, for --preset.", invoke_without_command=True)
app.add_typer(presets_app, name="presets")
app.add_typer(scenes.segment_app, name="segment")
app.add_typer(profiling.profile_app, name="profile")
app.add_typer(claims.claims_app, name="claims")


def _version(wanted: bool) -> None:
    if wanted:
        Console().result("version", {"version": __version__}, f"unchoke {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Train image models fast on the machine you have, and know what holds a run back."""


@app.command()
@takes("doctor")
def doctor(typed: dict[str, Any], json: Json = False) -> None:
    """This machine: what it is, and what was chosen for it, each with its reason."""

    def work(console: Console) -> Shown:
        from unchoke.commands.doctor import doctor as run
        from unchoke.commands.doctor import render_doctor

        report = run(overrides={"device": typed["device"], "workers": typed["workers"], "dtype": typed["precision"]})
        return report.to_dict(), render_doctor(report), 0

    show("doctor", json, work)


@app.command()
@takes("check")
def check(typed: dict[str, Any], out: Out = None, json: Json = False) -> None:
    """Pre-flight gate: is this data sound, and can workers load it? Exits 1 on errors. Never writes inside DATA."""

    def work(console: Console) -> Shown:
        from unchoke.photos.check_samples import check as run

        result = run(out=out, on_event=console.on_event, **typed)
        return result.to_dict(), result.to_text(), 0 if result.ok else 1

    show("check", json, work)


@app.command()
@takes("fit")
def fit(typed: dict[str, Any], out: Out = None, detach: Detach = False, dry_run: DryRun = False, json: Json = False) -> None:
    """The main job: check, extract features once, train, evaluate, report. Run it again and it goes on, or says it is done."""

    def work(console: Console) -> Shown:
        if detach:
            return _detach("fit", typed, out, dry_run=dry_run)
        hush_profiler(typed["profile"])
        from unchoke.commands.fit import fit as run

        result = run(out=out, on_event=console.on_event, dry_run=dry_run, **typed)
        return result.to_dict(), result.to_text(), 0

    show("fit", json, work)


@app.command()
@takes("train")
def train(typed: dict[str, Any], out: Out = None, detach: Detach = False, json: Json = False) -> None:
    """Train and evaluate, without the gate in front; extracts what is missing."""

    def work(console: Console) -> Shown:
        if detach:
            return _detach("train", typed, out)
        hush_profiler(typed["profile"])
        from unchoke.commands.fit import train as run

        result = run(out=out, on_event=console.on_event, **typed)
        return result.to_dict(), result.to_text(), 0

    show("train", json, work)


def _detach(command: str, typed: dict[str, Any], out: Path | None, *, dry_run: bool = False) -> Shown:
    from unchoke.commands.detach import detach

    if dry_run:
        why = "a rehearsal is over in seconds and changes nothing"
        raise UsageError("--dry-run and --detach do not go together", why=why, try_="unchoke fit DATA --dry-run")
    started = detach(command, out=out, **typed)
    return started.to_dict(), started.to_text(), 0


@app.command()
@takes("extract")
def extract(
    typed: dict[str, Any],
    job: Annotated[str | None, typer.Option("--job", help="Run this one job of features/jobs_queue.csv, done or not.")] = None,
    out: Out = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """The frozen part alone, in resumable micro-jobs."""

    def work(console: Console) -> Shown:
        from unchoke.commands.fit import extract as run

        result = run(out=out, job=job, dry_run=dry_run, on_event=console.on_event, **typed)
        return result.to_dict(), result.to_text(), 0

    show("extract", json, work)


@app.command()
@takes("budget")
def budget(
    typed: dict[str, Any],
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Time every batch size on the way, and name the fastest.")
    ] = False,
    json: Json = False,
) -> None:
    """What batch fits here, and how fast it is: measured in processes of their own, without data. Left out, --cut is none."""

    def work(console: Console) -> Shown:
        from unchoke.commands.budget import budget as run

        result = run(benchmark=benchmark, on_event=console.on_event, **typed)
        return result.to_dict(), result.to_text(), 0

    show("budget", json, work)


@app.command()
def evaluate(run: Run = "latest", out: Out = None, json: Json = False) -> None:
    """Score a run again from its files: what was cached and the saved weights, no training."""

    def work(console: Console) -> Shown:
        from unchoke.commands.evaluate import evaluate as evaluate_run

        result = evaluate_run(run, out=out, on_event=console.on_event)
        return result.to_dict(), result.to_text(), 0

    show("evaluate", json, work)


@app.command()
def predict(
    run: Run,
    images: Annotated[list[str], typer.Argument(help="Image files or folders.")],
    to: Annotated[Path | None, typer.Option("--to", help="Write the predictions to this CSV file.")] = None,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", help="Table with the images' extra columns, for a run trained with --input.")
    ] = None,
    weights: Weights = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or mps.")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Predict new images with a run, from its files alone. Exits 1 if an image could not be read."""

    def work(console: Console) -> Shown:
        from unchoke.commands.predict import predict as predict_images

        result = predict_images(
            run, images, to=to, inputs=inputs, weights=weights, device=device, out=out, on_event=console.on_event
        )
        return result.to_dict(), result.to_text(), 1 if result.failed else 0

    show("predict", json, work)


@app.command()
def report(run: Run = "latest", out: Out = None, json: Json = False) -> None:
    """Write report.html of a run again, from its files alone."""

    def work(console: Console) -> Shown:
        from unchoke.runs.lookup import report as write_report

        file = write_report(run, out=out)
        return {"report": str(file)}, f"report  {file}", 0

    show("report", json, work)


@runs_app.command("list")
def runs_list(out: Out = None, json: Json = False) -> None:
    """All runs of the workspace, newest last."""

    def work(console: Console) -> Shown:
        from unchoke.reports.text import render_runs_table
        from unchoke.runs.lookup import stored_runs

        rows = stored_runs(out=out)
        return {"runs": [run.to_dict() for run in rows]}, render_runs_table(rows), 0

    show("runs list", json, work)


@runs_app.command("show")
def runs_show(run: Run = "latest", out: Out = None, json: Json = False) -> None:
    """One run: settings, choices, metrics, timings, files."""

    def work(console: Console) -> Shown:
        from unchoke.reports.text import render_run
        from unchoke.runs.lookup import show_run

        record = show_run(run, out=out)
        return record.to_dict(), render_run(record), 0

    show("runs show", json, work)


@runs_app.command("compare")
def runs_compare(
    runs: Annotated[list[str], typer.Argument(help="Two or more runs.")], out: Out = None, json: Json = False
) -> None:
    """Runs side by side: what differs in settings, and in results."""

    def work(console: Console) -> Shown:
        from unchoke.reports.text import render_comparison
        from unchoke.runs.lookup import compare_runs

        records = compare_runs(runs, out=out)
        return {"runs": [run.to_dict() for run in records]}, render_comparison(records), 0

    show("runs compare", json, work)


@runs_app.command("best")
def runs_best(
    metric: Annotated[str | None, typer.Option("--metric", help="Which metric (default accuracy, or r2).")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """The run with the best validation score."""

    def work(console: Console) -> Shown:
        from unchoke.reports.text import render_run
        from unchoke.runs.lookup import best_run

        record = best_run(metric, out=out)
        return record.to_dict(), render_run(record), 0

    show("runs best", json, work)


@runs_app.command("watch")
def runs_watch(out: Out = None, json: Json = False) -> None:
    """Follow the newest detached run to its end, or show how it ended. Ctrl-C stops the watching, not the run."""

    def work(console: Console) -> Shown:
        from unchoke.commands.detach import watch_run

        watched = watch_run(out=out, on_event=console.on_event, on_line=console.pass_on if json else None)
        return watched.to_dict(), watched.to_text(), watched.exit_code

    show("runs watch", json, work)


@runs_app.command("export")
def runs_export(
    run: Run,
    to: Annotated[Path, typer.Argument(help="The folder to make.")],
    weights: Weights = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """One folder with everything evaluate, predict and report need, to take to another machine."""

    def work(console: Console) -> Shown:
        from unchoke.commands.export import export_run

        result = export_run(run, to, weights=weights, out=out, on_event=console.on_event)
        given = "segment predict {} SCENES" if result["masks"] else "predict {} IMAGES"
        return result, f"exported  {to}\nnext      unchoke {given.format(shlex.quote(str(to)))}", 0

    show("runs export", json, work)


@presets_app.callback()
def presets(context: typer.Context, json: Json = False) -> None:
    """Settings that belong together, for --preset. Alone, the same as `presets list`."""
    if context.invoked_subcommand is None:
        presets_list(json=json)


@presets_app.command("list")
def presets_list(json: Json = False) -> None:
    """The presets, with what each is for and what it expects of the data."""

    def work(console: Console) -> Shown:
        from unchoke.core.presets import list_presets
        from unchoke.reports.text import render_presets

        found = list_presets()
        return {"presets": [preset.to_dict() for preset in found]}, render_presets(found), 0

    show("presets list", json, work)


@presets_app.command("show")
def presets_show(name: Annotated[str, typer.Argument(help="A preset, or a TOML file.")], json: Json = False) -> None:
    """A preset as it is written: every setting, and why."""

    def work(console: Console) -> Shown:
        from unchoke.core.presets import load_preset

        preset = load_preset(name)
        return {**preset.to_dict(), "text": preset.text}, preset.text, 0

    show("presets show", json, work)


app.command("tile")(scenes.tile)
app.command("tune")(tuning.tune)
app.command("lint")(linting.lint)
app.command("notebook")(notebooks.notebook)


class Demo(StrEnum):
    """What a demo is about."""

    photos = "photos"
    scenes = "scenes"


@app.command()
def demo(
    what: Annotated[
        Demo, typer.Argument(help="photos: grocery photos to classes; scenes: Landsat bands to a cloud mask.")
    ] = Demo.photos,
    out: Out = None,
    json: Json = False,
) -> None:
    """All of it on real data that comes with a package: offline, a couple of minutes on two cores."""

    def work(console: Console) -> Shown:
        from unchoke.commands.demo import demo as run

        result = run(what.value, out=out, on_event=console.on_event)
        return result.to_dict(), result.to_text(), 0

    show("demo", json, work)


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
    try:
        app(args=join_expect(profiling.name_script(sys.argv[1:])))
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _leave_at_once()
        raise


def _leave_at_once() -> None:
    """Exit without waiting for threads that were told to be abandoned: ending Python beside them aborts in native code.

    Nothing is lost: every file is written whole or not at all, and the lock goes with the process.
    """
    if any(thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
