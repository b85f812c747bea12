"""Sends runs to the places that `--log` names, beside the training.

In: the run that begins, the events of the session, and in the end what the database and the run's folder hold. Out: nothing that
a run depends on. One thread for each place does the sending; a place that fails is said once and tried again, and what it lacks
when the run is done is taken from the run's own files, by this command or by the same one typed again.
"""

from __future__ import annotations

import math
import re
import shlex
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from unchoke import __version__
from unchoke.core.errors import Interrupted, shorten_values
from unchoke.core.events import Event, Note, OnEvent, Progress
from unchoke.core.fingerprint import digest, digest_file
from unchoke.core.record import StoredRun
from unchoke.core.urls import hide_secrets
from unchoke.core.workspace import Workspace, out_option
from unchoke.runs.experiment_store import ExperimentStore, RunRow
from unchoke.runs.mlflow_tracker import MlflowTracker
from unchoke.runs.progress_log import TellingPace
from unchoke.runs.report.json import load_record, to_jsonable
from unchoke.runs.report.text import render_run
from unchoke.runs.run_files import RECORD, files_to_share
from unchoke.runs.tensorboard_tracker import TensorboardTracker
from unchoke.runs.tracker import End, Figure, TrackedResult, TrackedRun, Tracker

_EVERY_S = 2.0
_AGAIN_S = 30.0
"""Between two attempts: where all is well, and where the last one failed."""
_PATIENCE_S = 3.0
"""How long a finished command waits for the last attempt before it says so."""
_LONGEST_REASON = 300


class Tracking:
    """What a session sends. `run` is the run that trains now, `finish` or `leave` end it."""

    def __init__(self, words: Sequence[str], workspace: Workspace, on_event: OnEvent) -> None:
        self._words = tuple(dict.fromkeys(words))
        self._workspace, self._tell = workspace, on_event
        self._is_live = True
        self._senders: list[_Sender] = []
        self._pace = TellingPace()

    def listening(self, on_event: OnEvent) -> OnEvent:
        """The same listener; what it hears of a training that is tracked is sent, too."""

        def listen(event: Event) -> None:
            on_event(event)
            if self._senders and self._is_live and isinstance(event, Progress) and event.stage == "train":
                figures = [*_told_figures(event, running=self._pace.is_due(event))]
                for sender in self._senders:
                    sender.add(figures)

        return listen

    @contextmanager
    def run(self, experiments: ExperimentStore, row: RunRow, *, is_live: bool = True) -> Iterator[None]:
        """While a run trains; when it is done, its row says so by then. However it ends, it is told how.

        `is_live` where what is told on the way is of this run, and not of several that it is made of.
        """
        self._is_live = is_live
        run, self._pace = _tracked(row, self._workspace), TellingPace()
        self._senders = [_Sender(build_tracker(word, self._workspace), run, self._tell) for word in self._words]
        try:
            yield
        except BaseException as error:
            stopped = isinstance(error, (Interrupted, KeyboardInterrupt))
            self._end("interrupted" if stopped else "failed", row)
            raise
        stored = experiments.stored(row.name)
        figures, result = [*_stored_figures(stored)], _result(stored, self._workspace.run_folder(row.name))
        for sender in self._senders:
            sender.add(figures)
            sender.result = result
        self._end("done", row)

    def send_finished(self, experiments: ExperimentStore, row: RunRow) -> None:
        """A run that was done before: whatever is missing of it."""
        with self.run(experiments, row):
            pass

    def _end(self, how: End, row: RunRow) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            if (problem := sender.stop(how)) is None:
                self._tell(Note(f"{row.name} is in {sender.where}"))
            elif how == "done":
                words = shlex.join(part for word in self._words for part in ("--log", word))
                again = f"{row.command} {words}{out_option(self._workspace.root)}"
                when = "it answers" if problem.is_away else "that is mended"
                text = f"{row.name} is not, or not wholly, in {sender.where} ({problem.why}). Nothing is lost: "
                self._tell(Note(f"{text}`{again}` sends what is missing once {when}, and trains nothing", "warning"))


class _Problem(NamedTuple):
    """Why a place could not be written to: it did not answer, or something there must be mended."""

    why: str
    is_away: bool


class _Sender:
    """One run on its way to one tracker. What is added is sent by a thread, in order, each step of each figure once."""

    def __init__(self, tracker: Tracker, run: TrackedRun, tell: OnEvent) -> None:
        self._tracker, self._run, self._tell = tracker, run, tell
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._waiting: list[Figure] = []
        self._known: dict[str, set[int]] | None = None
        self._problem: _Problem | None = None
        self._is_said = False
        self._how: End | None = None
        self.result: TrackedResult | None = None
        self._thread = threading.Thread(target=self._work, name=f"log {tracker.where}", daemon=True)
        self._thread.start()

    @property
    def where(self) -> str:
        return self._tracker.where

    def add(self, figures: Sequence[Figure]) -> None:
        spelt = [replace(one, name=self._tracker.spell(one.name)) for one in figures]
        with self._lock:
            self._waiting += spelt

    def stop(self, how: End) -> _Problem | None:
        """Send what is left and say how the run ended; why that could not be, or None."""
        self._how = how
        self._wake.set()
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            self._tell(Note(f"waiting for {self.where}"))
            self._thread.join()
        return self._problem

    def _work(self) -> None:
        while self._how is None:
            self._attempt()
            self._wake.wait(_EVERY_S if self._problem is None else _AGAIN_S)
        self._attempt(self._how)

    def _attempt(self, how: End | None = None) -> None:
        """Bring the tracker up to date. Whatever goes wrong there is no reason to stop a training."""
        try:
            if self._known is None:
                self._known = self._tracker.begin(self._run)
            self._send()
            if how == "done" and self.result is not None:
                self._tracker.hand_in(self.result)
            if how is not None:
                self._tracker.end(how)
            self._problem = None
        except Exception as error:
            self._problem = _Problem(_in_words(error), self._tracker.is_away(error))
            if not self._is_said and how is None:
                self._is_said = True
                said = f"{self.where} cannot be written to ({self._problem.why}): the training goes on, it is tried again"
                self._tell(Note(said, "warning"))

    def _send(self) -> None:
        assert self._known is not None, "a run was begun"
        with self._lock:
            num, fresh = len(self._waiting), {(one.name, one.step): one for one in self._waiting}
        new = [one for one in fresh.values() if one.step not in self._known.get(one.name, ())]
        if new:
            self._tracker.send(new)
        for one in new:
            self._known.setdefault(one.name, set()).add(one.step)
        with self._lock:
            del self._waiting[:num]


def build_tracker(word: str, workspace: Workspace) -> Tracker:
    """The tracker that a word names; its library is loaded when it is first used."""
    kind, _, address = word.partition(":")
    return MlflowTracker(address) if kind == "mlflow" else TensorboardTracker(workspace.tensorboard)


def _in_words(error: Exception) -> str:
    """The kind of the error and its first line, or the cause at the end of it, without what a URL may hold."""
    lines = str(error).strip().splitlines()
    said = hide_secrets(lines[0] if lines else "no reason given")
    if cause := re.search(r"\(Caused by (.+)\)$", said):  # what went before is which request it was, and how often it was tried
        said = cause[1]
    return textwrap.shorten(shorten_values(f"{type(error).__name__}: {said}"), _LONGEST_REASON, placeholder=" …")


def _tracked(row: RunRow, workspace: Workspace) -> TrackedRun:
    """`created_at` is in the identity because two workspaces may have a run of one key."""
    about = {
        "unchoke.run": row.name,
        "unchoke.command": row.command,
        "unchoke.workspace": str(workspace.root.resolve()),
        "unchoke.version": __version__,
        "unchoke.data": str(row.data.get("source", "")),
    }
    settings = {name: _as_text(value) for name, value in row.settings.items() if name != "log"}
    if settings.keys() & {"folds", "fold_column"}:
        settings.setdefault("fold", "0")  # a default, which is said because the runs of other folds say theirs
    return TrackedRun(row.name, digest([row.key, row.name, row.created_at]), settings, about)


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _told_figures(event: Progress, *, running: bool) -> Iterator[Figure]:
    """What was measured when an epoch ended, under the names that the run's history will have, and what runs along."""
    row = dict(event.figures)
    step = int(row.pop("epoch", 0))
    yield from (Figure(f"epoch/{name}", step, value) for name, value in row.items() if value is not None)
    for name, value in event.extra.items():
        if running and isinstance(value, float) and math.isfinite(value) and event.unit != "epochs":
            yield Figure(f"running/{name}", event.done, value)


def _stored_figures(stored: StoredRun) -> Iterator[Figure]:
    """Everything the database has of a run: by epoch, of the whole, and what its stages took."""
    yield from (Figure(f"epoch/{row.name}", row.step, row.value) for row in stored.history if row.value is not None)
    yield from (Figure(name, 0, value) for name, value in _final_figures(stored).items())
    yield from (Figure(f"seconds/{stage}", 0, seconds) for stage, seconds in stored.timings.items())


def _final_figures(stored: StoredRun) -> dict[str, float]:
    found: dict[str, float] = {}
    for split, named in stored.metrics.items():
        for name, one in named.items():
            parts = {"": one.value, ".low": one.low, ".high": one.high}
            found |= {f"{split.removesuffix(':')}/{name}{end}": value for end, value in parts.items() if value is not None}
    return found


def _result(stored: StoredRun, folder: Path) -> TrackedResult:
    files, record = files_to_share(folder), load_record(folder / RECORD)
    loop = record.training.loop if record.training is not None else None  # a run that went on says of its loop: as begun
    begun: dict[str, Any] = {} if loop is None else to_jsonable(loop)
    chosen = {**begun, **{choice.name: choice.value for choice in stored.choices}}
    return TrackedResult(
        files,
        {name.replace(" ", "_"): _as_text(value) for name, value in chosen.items()},
        f"{render_run(record)}\n\nreport  {folder.resolve() / 'report.html'}",
        {name: value for name, value in _final_figures(stored).items() if not name.endswith((".low", ".high"))},
        digest_file(files[RECORD]),
    )
