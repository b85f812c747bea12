"""Pages about runs: what trains now, all runs, one of them with its curves, two side by side, and their reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from unchoke.core.errors import DataError, UsageError
from unchoke.core.metrics import METRICS
from unchoke.core.record import RunRecord, StoredRun
from unchoke.core.units import format_seconds
from unchoke.page.live_progress import LiveWatch
from unchoke.page.page_state import PageState, show, state_of
from unchoke.page.stored_pages import serve_page
from unchoke.runs.report import summary, view
from unchoke.runs.report.charts import Series, line_chart
from unchoke.runs.report.html import heading, learning_curves, render_report, result_parts
from unchoke.runs.report.json import load_record
from unchoke.runs.report.text import comparison_rows

_LOOK_EVERY_S = 0.5
_HEARTBEAT_S = 15.0
_TWO = 2


def runs_page(request: Request) -> Response:
    """All runs, and what works here now."""
    state = state_of(request)
    rows = [_row(run) for run in state.runs()]
    return show(
        request, "runs.html.j2", title="Runs", rows=rows, live=render_live(state, LiveWatch(state.workspace)), data=state.data
    )


def _row(run: StoredRun) -> dict[str, Any]:
    metric, setup = summary.leading_metric(run), summary.run_setup(run)
    seconds = summary.total_seconds(run)
    return {
        "name": run.name,
        "status": run.status,
        "when": view.moment(run.created_at),
        "encoder": run.encoder,
        "setup": setup,
        "figure": "" if metric is None else metric.text,
        "label": "" if metric is None else f"{metric.label} on {metric.split}",
        "interval": "" if metric is None else metric.interval,
        "took": format_seconds(seconds) if seconds else "",
    }


def render_live(state: PageState, watch: LiveWatch) -> str:
    """The command at work as markup; nothing where none is."""
    watch.look()
    is_owned = state.workspace.is_owned()
    name = state.running() if is_owned else ""
    is_told = is_owned and watch.is_of(state.workspace.owner())
    stages = list(watch.stages.values()) if is_told else []
    charts = watch.charts() if is_told else []
    return state.render("live.html.j2", {"is_owned": is_owned, "run": name, "stages": stages, "charts": charts})


def live_events(request: Request) -> Response:
    """The same as events, whenever it changes."""
    state = state_of(request)

    async def events() -> AsyncIterator[str]:
        watch, before, silent_s = LiveWatch(state.workspace), "", 0.0
        while not state.closing.is_set():
            markup = await run_in_threadpool(render_live, state, watch)
            if markup != before:
                before, silent_s = markup, 0.0
                yield f"event: live\ndata: {json.dumps(markup)}\n\n"
            elif silent_s >= _HEARTBEAT_S:
                silent_s = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(_LOOK_EVERY_S)
            silent_s += _LOOK_EVERY_S

    return StreamingResponse(events(), media_type="text/event-stream")


def run_page(request: Request) -> Response:
    """One run: its figures and curves, or how far it is."""
    state = state_of(request)
    run = state.run(request.path_params["run"])
    record = _record(state, run)
    if record is None:
        live = render_live(state, LiveWatch(state.workspace)) if run.status == "running" else ""
        return show(request, "run_unfinished.html.j2", title=run.name, run=run, live=live)
    return show(
        request,
        "run.html.j2",
        title=run.name,
        run=run,
        heading=heading(record),
        result=result_parts(record),
        curves=learning_curves(record),
        timings=view.timing_table(record),
        chokes=[view.describe_finding(choke) for choke in record.chokes],
        masks=bool(record.gallery),
    )


def _record(state: PageState, run: StoredRun) -> RunRecord | None:
    file = state.workspace.run_folder(run.name) / "record.json"
    return load_record(file) if run.status == "done" and file.is_file() else None


def report_page(request: Request) -> Response:
    """The run's report, from its record: the one that `unchoke report` writes."""
    state = state_of(request)
    run = state.run(request.path_params["run"])
    record = _record(state, run)
    if record is None:
        raise DataError(
            f"{run.name} has no report", code="no-report", why=f"it is {run.status}", try_=f"{run.command}{state.out}"
        )
    return serve_page(render_report(record, state.workspace.run_folder(run.name)), of=f"the report of {run.name}")


def compare_page(request: Request) -> Response:
    """Two runs side by side: figures, times, settings that differ, and their curves in one drawing."""
    state = state_of(request)
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if len(names) != _TWO:
        raise UsageError(
            f"{len(names)} runs were chosen",
            code="compare-needs-two",
            why="two are compared",
            try_="go back and tick two of them",
        )
    runs = [state.run(name) for name in names]
    rows, note = comparison_rows(runs)
    return show(
        request, "compare.html.j2", title=" and ".join(names), names=names, rows=rows, note=note, charts=_charts(state, runs)
    )


def _charts(state: PageState, runs: Sequence[StoredRun]) -> list[tuple[str, Any]]:
    """Validation figures of both runs by epoch, where both were followed."""
    records = [_record(state, run) for run in runs]
    wanted = [("val_loss", "Validation loss", False)]
    wanted += [(metric.of_validation, metric.curve, metric.is_share) for metric in METRICS if metric.curve]
    drawn = []
    for key, title, percent in wanted:
        lines = []
        for place, (run, record) in enumerate(zip(runs, records, strict=True)):
            pairs = [(row.get("epoch"), row.get(key)) for row in record.history] if record else []
            points = [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]
            if points:
                lines.append(Series(run.name, points, f"s{place + 1}"))
        if len(lines) == _TWO:
            drawn.append((title, line_chart(f"both-{key}", title, lines, x_label="epoch", percent=percent)))
    return drawn
