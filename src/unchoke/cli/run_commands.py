"""The commands about what was tried, `runs …`, and about settings that belong together, `presets …`."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import unchoke
from unchoke.cli.completion import complete_preset, complete_run
from unchoke.cli.help_page import HelpfulApp
from unchoke.cli.options import HomeRun, Json, Out, Run, Weights
from unchoke.cli.showing import PlainResult, Result, show

if TYPE_CHECKING:
    from unchoke.runs.report.console import Console

runs_app = HelpfulApp(help="What was tried, and what came out.")
presets_app = HelpfulApp(help="Settings that belong together, for --preset.", invoke_without_command=True, no_args_is_help=False)


@runs_app.command("list")
def runs_list(
    sort: Annotated[
        str,
        typer.Option("--sort", help="run, started, encoder, cut, head, epochs, result, time, or a metric; -NAME turns it round."),
    ] = "run",
    out: Out = None,
    json: Json = False,
) -> None:
    """All runs of the workspace, newest last, or the best first with --sort result."""

    def work(_: object) -> Result:
        from unchoke.runs.lookup import describe_run, stored_runs, unlisted_runs
        from unchoke.runs.report.text import render_runs_table

        rows, unlisted = stored_runs(out=out, sort=sort), unlisted_runs(out=out)
        plain = {"runs": [describe_run(run) for run in rows], "unlisted": [str(folder) for folder in unlisted]}
        return PlainResult(plain, render_runs_table(rows, unlisted))

    show("runs list", json, work)


@runs_app.command("show")
def runs_show(run: Run = "latest", out: Out = None, json: Json = False) -> None:
    """One run: settings, choices, metrics, timings, files."""

    def work(_: object) -> Result:
        from unchoke.runs.report.text import render_run

        record = unchoke.show_run(run, out=out)
        return PlainResult(record.to_dict(), render_run(record))

    show("runs show", json, work)


@runs_app.command("compare")
def runs_compare(
    runs: Annotated[list[str], typer.Argument(help="Two or more runs.", autocompletion=complete_run)],
    out: Out = None,
    json: Json = False,
) -> None:
    """Runs side by side: what differs in settings, and in results."""

    def work(_: object) -> Result:
        from unchoke.runs.report.text import render_comparison

        records = unchoke.compare_runs(runs, out=out)
        return PlainResult({"runs": [run.to_dict() for run in records]}, render_comparison(records))

    show("runs compare", json, work)


@runs_app.command("best")
def runs_best(
    metric: Annotated[str | None, typer.Option("--metric", help="Which metric (default accuracy, or r2).")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """The run with the best validation score."""

    def work(_: object) -> Result:
        from unchoke.runs.report.text import render_run

        record = unchoke.best_run(metric, out=out)
        return PlainResult(record.to_dict(), render_run(record))

    show("runs best", json, work)


@runs_app.command("watch")
def runs_watch(out: Out = None, json: Json = False) -> None:
    """Follow the newest detached run to its end, or show how it ended. Ctrl-C stops the watching, not the run."""

    def work(console: Console) -> Result:
        return unchoke.watch_run(out=out, on_event=console.on_event, on_line=console.pass_on if json else None)

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

    def work(console: Console) -> Result:
        result = unchoke.export_run(run, to, weights=weights, out=out, on_event=console.on_event)
        given = "segment predict {} SCENES" if result["masks"] else "predict {} IMAGES"
        return PlainResult(result, f"exported  {to}\nnext      unchoke {given.format(shlex.quote(str(to)))}")

    show("runs export", json, work)


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
    json: Json = False,
) -> None:
    """The model of a run as one file, from pixels to answers, checked on the run's own test photos before it is handed over."""
    options: dict[str, Any] = {"to": to, "format": format.value, "precision": precision.value, "units": units}
    options |= {"weights": weights, "out": out}
    show("export", json, lambda console: unchoke.export(run, on_event=console.on_event, **options))


@presets_app.callback()
def presets(context: typer.Context, json: Json = False) -> None:
    """Settings that belong together, for --preset. Alone, the same as `presets list`."""
    if context.invoked_subcommand is None:
        presets_list(json=json)


@presets_app.command("list")
def presets_list(json: Json = False) -> None:
    """The presets, with what each is for and what it expects of the data."""

    def work(_: object) -> Result:
        from unchoke.runs.report.text import render_presets

        found = unchoke.list_presets()
        return PlainResult({"presets": [preset.to_dict() for preset in found]}, render_presets(found))

    show("presets list", json, work)


@presets_app.command("show")
def presets_show(
    name: Annotated[str, typer.Argument(help="A preset, or a TOML file.", autocompletion=complete_preset)], json: Json = False
) -> None:
    """A preset as it is written: every setting, and why."""

    def work(_: object) -> Result:
        preset = unchoke.show_preset(name)
        return PlainResult({**preset.to_dict(), "text": preset.text}, preset.text)

    show("presets show", json, work)
