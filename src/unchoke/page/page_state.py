"""What all pages share: the workspace, its photos, the review, pictures, and how a template becomes a response.

Read when it is asked for, and read again when the files behind it have changed: whoever looks sees what commands wrote
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse

from unchoke.core.errors import UsageError
from unchoke.core.record import StoredRun
from unchoke.core.remembered import load_remembered
from unchoke.core.workspace import Workspace, out_option
from unchoke.data.manifest import load_manifest
from unchoke.page.catalogue import PhotoCatalogue, stamp_of
from unchoke.page.page_answers import PageAnswers
from unchoke.page.reviewing import Review
from unchoke.page.thumbnails import Thumbnails
from unchoke.runs.experiment_store import ExperimentStore, RunRow
from unchoke.runs.lookup import stored_runs
from unchoke.runs.report.page import environment

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_RECENT_S = 1.0


class PageState:
    """The workspace as the pages see it. Safe to call from several threads."""

    def __init__(self, workspace: Workspace, sources: PageAnswers) -> None:
        self.workspace = workspace
        self.sources = sources
        self.review = Review(workspace, sources)
        self.thumbnails = Thumbnails(workspace.thumbnails)
        self.closing = threading.Event()
        """Set when the server ends: whoever follows a run lets go."""
        self._building = threading.Lock()
        self._catalogue: tuple[tuple[Any, ...], PhotoCatalogue | None] | None = None
        self._looked_s = 0.0

    @property
    def out(self) -> str:
        """What a command needs behind it to work here."""
        return out_option(self.workspace.root)

    @property
    def data(self) -> str:
        """The data that this workspace was made for; "" where it knows none."""
        return str(load_remembered(self.workspace).get("data", ""))

    def runs(self) -> list[StoredRun]:
        """Every run, the newest first; none in a workspace that has none."""
        if not self.workspace.experiments_file.exists():
            return []
        return stored_runs(out=self.workspace.root)[::-1]

    def run(self, name: str) -> StoredRun:
        """One run by its name."""
        found = next((run for run in self.runs() if run.name == name), None)
        if found is None:
            raise UsageError(
                f"there is no run {name!r}",
                code="no-such-run",
                why="the workspace lists no such run",
                try_=f"unchoke runs list{self.out}",
            )
        return found

    def running(self) -> str:
        """The run that a command works on now, by the database alone; "" where there is none."""
        rows = self._rows()
        return next((row.name for row in rows if row.status == "running"), "")

    def judging_run(self) -> str:
        """The newest run that was judged on photos; "" where there is none."""
        done = (row.name for row in self._rows() if row.status == "done")
        return next((name for name in done if (self.workspace.run_folder(name) / "predictions.csv").exists()), "")

    def _rows(self) -> list[RunRow]:
        """What the database lists, the newest first."""
        if not self.workspace.experiments_file.exists():
            return []
        with ExperimentStore.open(self.workspace.experiments_file) as experiments:
            return experiments.runs()[::-1]

    def recent_catalogue(self) -> PhotoCatalogue | None:
        """The photos as they were less than a second ago: for pictures, of which dozens are asked for at once."""
        if self._catalogue is not None and time.monotonic() - self._looked_s < _RECENT_S:
            return self._catalogue[1]
        return self.catalogue()

    def catalogue(self) -> PhotoCatalogue | None:
        """The photos, as the newest run judged them; None where the workspace has no manifest."""
        with self._building:
            self._looked_s = time.monotonic()
            run = self.judging_run()
            judged = self.workspace.run_folder(run) / "predictions.csv" if run else None
            findings = self.workspace.curation / "findings.json"
            stamps = (run, *(stamp_of(file) if file else None for file in (self.workspace.manifest_file, judged, findings)))
            if self._catalogue is None or self._catalogue[0] != stamps:
                self._catalogue = (stamps, self._build(run))
            return self._catalogue[1]

    def _build(self, run: str) -> PhotoCatalogue | None:
        manifest = load_manifest(self.workspace.manifest_file)
        if manifest is None:
            return None
        return PhotoCatalogue.build(manifest, self._judged(run) if run else None, self.sources.findings(()), run=run)

    def _judged(self, run: str) -> pd.DataFrame:
        """What a run said of the photos it was judged on; reading it loads more than a workspace without runs needs."""
        from unchoke.training.scoring.predictions import load_predictions

        return load_predictions(self.workspace.run_folder(run) / "predictions.csv")

    @cached_property
    def _environment(self) -> Environment:
        found = environment(_TEMPLATES).overlay()
        found.globals = found.globals | {"out": self.out, "workspace": str(self.workspace.root)}
        return found

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """A template as text; everything in it is escaped."""
        return self._environment.get_template(template).render(**values)


def state_of(request: Request) -> PageState:
    found: PageState = request.app.state.page
    return found


def show(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page."""
    state = state_of(request)
    here = request.url.path.split("/")[1]
    return HTMLResponse(state.render(template, {"here": here, **values}), status)


async def read_body(request: Request, *, most_bytes: int) -> bytes:
    """What was sent, refused as soon as it is more than that."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise UsageError(
                f"more than {most_bytes:,} bytes were sent",
                code="upload-too-large",
                why="no photo of the usual kind is that large",
                try_="a smaller file",
            )
        parts.append(part)
    return b"".join(parts)
