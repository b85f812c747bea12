"""How far the command is that works in a workspace: `logs/progress.jsonl`, for observers in another process.

In: the events of a session. Out: a file that begins anew with each command that has something to count: its stages and its
progress, one JSON line each with the seconds since it began. Lines become rarer the longer it takes, so that a week is a few
thousand of them. It is only a window: nothing is gone on with from it, and a line that a kill cut off is passed over.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from unchoke.core.events import Event, OnEvent, Progress, StageDone, StageStarted
from unchoke.core.input_file import open_plain, parse_json
from unchoke.core.workspace import Workspace
from unchoke.runs.report.json import dump_line, parse_event, to_jsonable

FILE = "progress.jsonl"
_EVERY_S = 0.5
_LINES_PER_E_FOLD = 500
"""So many lines at most while the time that has passed grows by a factor of e."""
_NAMES: dict[type, str] = {StageStarted: "stage_started", StageDone: "stage_done", Progress: "progress"}


class TellingPace:
    """When a stage's progress is worth keeping: the longer it takes, the rarer; its last state always is."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._began_s = now, now()
        self._told_s: dict[str, float] = {}

    def is_due(self, event: Progress) -> bool:
        now_s = self._now()
        every_s = max(_EVERY_S, (now_s - self._began_s) / _LINES_PER_E_FOLD)
        told_s = self._told_s.get(event.stage)
        if told_s is not None and now_s - told_s < every_s and event.done < event.total:
            return False
        self._told_s[event.stage] = now_s
        return True


class ProgressLog:
    """Writes what a command tells. What cannot be written is not told: the command must not fail of it."""

    def __init__(self, workspace: Workspace, *, now: Callable[[], float] = time.monotonic) -> None:
        self._file, self._now = workspace.logs / FILE, now
        self._began_s = now()
        self._pace = TellingPace(now)
        self._waiting: list[Event] = []
        self._opened: IO[str] | None = None
        self._given_up = False
        self._lock = threading.Lock()

    def listening(self, on_event: OnEvent) -> OnEvent:
        """The same listener; what it hears is written, too."""

        def listen(event: Event) -> None:
            on_event(event)
            if type(event) in _NAMES:
                with self._lock, suppress(OSError):
                    self._hear(event)

        return listen

    def close(self) -> None:
        with self._lock:
            self._given_up = True
            if self._opened is not None:
                self._opened.close()

    def _hear(self, event: Event) -> None:
        """Stages wait for the first progress: a command that counts nothing leaves the file of the one before alone."""
        if self._given_up:
            return
        if isinstance(event, Progress):
            if not self._pace.is_due(event):
                return
        elif self._opened is None:
            self._waiting.append(event)
            return
        if self._opened is None:
            self._given_up = True  # unless it can be opened
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._opened = self._file.open("w", encoding="utf-8")
            began = {"event": "began", "pid": os.getpid(), "when": datetime.now(UTC).isoformat()}
            self._opened.write(dump_line(began) + "\n")
            self._given_up = False
        for one in (*self._waiting, event):
            line = {"event": _NAMES[type(one)], "at_s": round(self._now() - self._began_s, 3), **to_jsonable(one)}
            self._opened.write(dump_line(line) + "\n")
        self._waiting = []
        self._opened.flush()


class ToldEvent(NamedTuple):
    """An event, and how many seconds after the command began it was told."""

    at_s: float
    event: Event


class ProgressReader:
    """Reads the file as it grows: `read` returns what was added; `started_anew` says whether it was of another command."""

    def __init__(self, workspace: Workspace) -> None:
        self._file: Path = workspace.logs / FILE
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._rest = b""
        self.started_anew = False
        self.process = 0
        """The process whose file it is, as it said itself."""

    def read(self) -> list[ToldEvent]:
        """What was written since the last call."""
        try:
            with open_plain(self._file) as file:
                head = file.read(4096).partition(b"\n")[0]
                identity = (self._file.stat().st_ino, hash(head))
                self.started_anew = identity != self._identity or file.seek(0, 2) < self._offset
                if self.started_anew:
                    self._identity, self._offset, self._rest = identity, 0, b""
                    self.process = _process_of(head)
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            self.started_anew = self._identity is not None
            self._identity, self._offset, self._rest = None, 0, b""
            return []
        self._offset += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [told for line in lines if (told := _parse(line)) is not None]


def _process_of(head: bytes) -> int:
    try:
        return int(parse_json(head)["pid"])
    except (ValueError, KeyError, TypeError):
        return 0


def _parse(line: bytes) -> ToldEvent | None:
    try:
        found: Any = parse_json(line)
        event = parse_event(found)
        return None if event is None else ToldEvent(float(found["at_s"]), event)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
