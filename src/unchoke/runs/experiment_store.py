"""The record of runs in `experiments/experiments.db`: SQLite with a write-ahead log, so others read while one writes.

Every write is one transaction and may be repeated; text is only ever bound as a parameter, never part of a statement. The file
holds no absolute paths of its own, so it may be copied. What a run computed lies in its folder, not here.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from unchoke.core import listing
from unchoke.core.atomic import valid_text
from unchoke.core.checksums import damaged, making_sense
from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError, list_some
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import parse_json
from unchoke.core.metrics import BEST_BY, find_metric, metric_order
from unchoke.core.record import ArtefactRecord, Interval, MemoryRecord, StepValue, StoredRun, stored_versions
from unchoke.core.remembered import DIVIDING
from unchoke.core.settings import NO_GROUP
from unchoke.runs.database import connect, explained, transaction

T = TypeVar("T")
Status = Literal["running", "done", "failed", "interrupted"]
FINAL = -1
"""The step of a value that belongs to the run as a whole."""


@dataclass(frozen=True)
class RunRow:
    """One run. `key` is the digest of settings and data that decides whether a command resumes it."""

    number: int
    name: str
    key: str
    command: str
    status: Status
    created_at: str
    finished_at: str | None
    settings: dict[str, Any]
    data: dict[str, Any]
    encoder: str
    fingerprint: str


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""A run's name is that of its folder, and the database may be of somebody else."""
_RUN_COLUMNS = [field.name for field in fields(RunRow)]


@dataclass(frozen=True)
class MetricRow:
    """A measured value, at a step or (`FINAL`) of the whole run, with the bounds of its interval where there are any."""

    split: str
    name: str
    value: float
    step: int = FINAL
    low: float | None = None
    high: float | None = None


class ExperimentStore:
    """An open record. Use it as a context manager, or `close` it."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._connection = connection
        self.file = file
        self._verified: set[int] = set()

    @classmethod
    def open(cls, file: Path) -> Self:
        """The record in `file`, created or brought to the current version if need be."""
        return cls(connect(file), file)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start_run(
        self, *, key: str, command: str, settings: Mapping[str, Any], data: Mapping[str, Any], encoder: str, fingerprint: str
    ) -> RunRow:
        """The run with this key: a new one, the unfinished one to go on with, or the finished one (`status` says which).

        What an unfinished run recorded so far stays, and is replaced as it is recorded again.
        """
        with self._writing():
            found = self._connection.execute("SELECT id, status FROM runs WHERE key = ?", (valid_text(key),)).fetchone()
            if found is None:
                number = self._next_number()
                row = (number, f"exp_{number}", valid_text(key), valid_text(command), _now(), _json(settings), _json(data))
                self._connection.execute(
                    "INSERT INTO runs (id, name, key, command, status, created_at, settings, data, encoder, fingerprint)"
                    " VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?)",
                    (*row, valid_text(encoder), valid_text(fingerprint)),
                )
            else:
                number = found[0]
                if found[1] != "done":
                    self._connection.execute("DELETE FROM seals WHERE run = ?", (number,))
                    self._connection.execute("UPDATE runs SET status = 'running', finished_at = NULL WHERE id = ?", (number,))
        return self.run(number)

    def finish_run(self, run: RunRow, status: Status) -> RunRow:
        """Say how the run ended."""
        with self._writing():
            self._connection.execute("UPDATE runs SET status = ?, finished_at = ? WHERE id = ?", (status, _now(), run.number))
            seal = (run.number, self._digest(run.number))
            self._connection.execute("INSERT OR REPLACE INTO seals (run, sha256) VALUES (?, ?)", seal)
        return self.run(run.number)

    def record(
        self,
        run: RunRow,
        *,
        metrics: Iterable[MetricRow] = (),
        timings: Mapping[str, float] | None = None,
        memory: Iterable[tuple[str, int | None, int | None]] = (),
        artefacts: Iterable[tuple[str, str, int]] = (),
        choices: Sequence[Choice] = (),
    ) -> None:
        """Values by split, name and step; seconds by stage; bytes planned and measured; files in the run's folder with SHA-256
        and size; what was chosen and why, in order. What was recorded under the same name is replaced.
        """
        tables: dict[str, list[tuple[Any, ...]]] = {
            "metrics (run, split, name, value, step, low, high)": [astuple(row) for row in metrics],
            "timings (run, stage, seconds)": list((timings or {}).items()),
            "memory (run, what, planned_bytes, measured_bytes)": list(memory),
            "artefacts (run, path, sha256, size_bytes)": list(artefacts),
            "choices (run, name, value, reason, evidence, place)": [
                (one.name, _json(one.value), one.reason, _json(one.evidence), place) for place, one in enumerate(choices)
            ],
        }
        with self._writing():
            self._connection.execute("DELETE FROM seals WHERE run = ?", (run.number,))
            for columns, rows in tables.items():
                texts = [[valid_text(cell) if isinstance(cell, str) else cell for cell in (run.number, *row)] for row in rows]
                marks = ", ".join("?" * (columns.count(",") + 1))
                self._connection.executemany(f"INSERT OR REPLACE INTO {columns} VALUES ({marks})", texts)

    def runs(self) -> list[RunRow]:
        """Every run, oldest first."""
        found = self._select(f"SELECT id, {', '.join(_RUN_COLUMNS[1:])} FROM runs ORDER BY id")
        with making_sense(self.file):
            for row in found:
                if not _NAME.fullmatch(row[1]):
                    raise ValueError(f"{row[1]!r} is no name of a run")
            rows = [dict(zip(_RUN_COLUMNS, row, strict=True)) for row in found]
            return [RunRow(**{**row, "settings": parse_json(row["settings"]), "data": parse_json(row["data"])}) for row in rows]

    def run(self, name: str | int) -> RunRow:
        """One run by name (``exp_3``), number (``3``), ``latest`` or ``best``."""
        known = self.runs()
        if name == "best":
            recorded = (metric for metric in BEST_BY if self._values(metric, split="val"))
            return self.best(next(recorded, BEST_BY[0]))
        wanted = known[-1].name if name == "latest" and known else str(name)
        for row in known:
            if wanted in (row.name, str(row.number)):
                return row
        why, try_ = "no run has been recorded yet", "unchoke fit DATA"
        if known:
            why = f"the runs there are: {list_some([row.name for row in known[::-1]])}"
            try_ = f"use {known[-1].name}, latest or best"
        raise UsageError(f"there is no run {str(name)!r}", code="no-such-run", why=why, try_=try_)

    def best(self, metric: str, *, split: str = "val") -> RunRow:
        """The finished run with the best value among those that can be compared with the newest; the earlier one of equals."""
        metric = metric.removeprefix(f"{split}.")
        divided = divided_alike(self._values(metric, split=split), lambda pair: pair[0].settings)
        if ranked := judged_alike(divided, lambda pair: pair[0].data):
            pick = max if find_metric(metric).higher_is_better else min
            return pick(ranked, key=lambda pair: pair[1])[0]
        found = self._select(
            "SELECT DISTINCT metrics.name FROM metrics JOIN runs ON runs.id = metrics.run"
            " WHERE split = ? AND status = 'done' AND value IS NOT NULL",
            (valid_text(split),),
        )
        names = sorted((str(name) for (name,) in found), key=metric_order)
        meant = difflib.get_close_matches(metric, names, n=1) or names
        raise UsageError(
            f"no finished run has a value of {split}.{metric}",
            code="no-such-metric",
            why=f"recorded of {split} are: {list_some(names)}" if names else f"nothing has been recorded of {split} yet",
            try_=f"--metric {shlex.quote(meant[0])}" if meant else "unchoke fit DATA",
        )

    def metrics(self, run: RunRow) -> list[MetricRow]:
        """All values of a run, by split, name and step; one stored as NaN comes back as NaN."""
        found = self._select(
            "SELECT split, name, value, step, low, high FROM metrics WHERE run = ? ORDER BY 1, 2, 4", (run.number,)
        )
        return [MetricRow(split, name, math.nan if value is None else value, *rest) for split, name, value, *rest in found]

    def stored(self, name: str | int) -> StoredRun:
        """Everything about one run; `metrics` has the final ones, `history` those by step."""
        run = self.run(name)
        self._verify(run)
        rows, one = self.metrics(run), (run.number,)
        final: dict[str, dict[str, Interval]] = {}
        for row in rows:
            if row.step == FINAL:
                final.setdefault(row.split, {})[row.name] = Interval(_known(row.value), row.low, row.high)
        memory = self._select("SELECT what, planned_bytes, measured_bytes FROM memory WHERE run = ?", one)
        artefacts = self._select("SELECT path, sha256, size_bytes FROM artefacts WHERE run = ?", one)
        return StoredRun(
            **asdict(run),
            metrics=final,
            history=[
                StepValue(split=row.split, name=row.name, step=row.step, value=_known(row.value))
                for row in rows
                if row.step != FINAL
            ],
            timings=dict(self._select("SELECT stage, seconds FROM timings WHERE run = ?", one)),
            memory={what: MemoryRecord(planned_bytes=planned, measured_bytes=measured) for what, planned, measured in memory},
            artefacts=[ArtefactRecord(path=path, sha256=sha256, size_bytes=size) for path, sha256, size in artefacts],
            choices=self.choices(run),
        )

    def choices(self, run: RunRow) -> list[Choice]:
        """What the run chose, in the order it was recorded: a resumed run keeps to it."""
        found = self._select("SELECT name, value, reason, evidence FROM choices WHERE run = ? ORDER BY place", (run.number,))
        return [Choice(name, parse_json(value), reason, parse_json(evidence)) for name, value, reason, evidence in found]

    def _values(self, metric: str, *, split: str) -> list[tuple[RunRow, float]]:
        """Finished runs with their value of a metric, where they have one."""
        found = self._select(
            "SELECT run, value, step FROM metrics WHERE split = ? AND name = ?", (valid_text(split), valid_text(metric))
        )
        final: dict[int, float] = {}
        best: dict[int, float] = {}  # over the steps: what counts where a run has no final value
        pick = max if find_metric(metric).higher_is_better else min
        for number, value, step in found:
            if value is not None:
                held = final if step == FINAL else best
                held[number] = pick(value, held.get(number, value))
        values = {**best, **final}
        done = [run for run in self.runs() if run.status == "done"]
        for run in done:
            self._verify(run)
        return [(run, values[run.number]) for run in done if run.number in values]

    def _next_number(self) -> int:
        """One more than any number ever given, also than those of folders whose record was lost."""
        given = self._select("SELECT seq FROM sqlite_sequence WHERE name = 'runs'")
        folders = (name.removeprefix("exp_") for name in listing.names(self.file.parent, prefix="exp_"))
        numbers = [*(int(seq) for (seq,) in given), *(int(text) for text in folders if text.isdecimal())]
        return 1 + max(numbers, default=0)

    def _select(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with explained(self.file):
            return self._connection.execute(statement, values).fetchall()

    def _verify(self, run: RunRow) -> None:
        """Refuse to show what is not what was written when the run ended; earlier files have no seals."""
        if run.number in self._verified or not self._select("SELECT 1 FROM sqlite_master WHERE name = 'seals'"):
            return
        with explained(self.file):
            self._connection.execute("BEGIN")  # seal and rows of one moment
            try:
                sealed = self._select("SELECT sha256 FROM seals WHERE run = ?", (run.number,))
                sound = not sealed or sealed[0][0] == self._digest(run.number)
            finally:
                self._connection.execute("ROLLBACK")
        if not sound:
            fact = f"what it says of {run.name} is not what was written when that run ended"
            shown = f"unchoke runs show {self.file.parent / run.name}"
            raise damaged(self.file, fact, try_=f"put a copy of it in its place; `{shown}` reads the run's own files")
        self._verified.add(run.number)

    def _digest(self, number: int) -> str:
        """Of everything that is kept of a run."""
        tables = {"runs": "id", **dict.fromkeys(("metrics", "timings", "memory", "artefacts", "choices"), "run")}
        return digest([self._select(f"SELECT * FROM {table} WHERE {column} = ?", (number,)) for table, column in tables.items()])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with explained(self.file), transaction(self._connection):
            yield


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _now() -> str:
    return datetime.now(UTC).isoformat()


# -- which runs can be compared -----------------------------------------------------------------------------------------------


def divided_alike(rows: Sequence[T], settings_of: Callable[[T], dict[str, Any]]) -> list[T]:
    """Those of `rows`, oldest first, whose samples were divided as the newest one's were: by the same groups, folds or column."""
    if not rows:
        return []

    def division(row: T) -> list[Any]:
        settings = settings_of(row)
        group = settings.get("group")
        return [None if group == NO_GROUP else group, *(settings.get(name) for name in DIVIDING)]

    return [row for row in rows if division(row) == division(rows[-1])]


def judged_alike(rows: Sequence[T], data_of: Callable[[T], dict[str, Any]]) -> list[T]:
    """Those of `rows`, oldest first, that have no other contents or labels than the newest under the ids it was judged on."""
    newest = data_of(rows[-1]) if rows else {}

    def clashes(data: dict[str, Any]) -> bool:
        ours, theirs = stored_versions(data), stored_versions(newest)
        ids = [one.get("split_digests", {}) for one in (data, newest)]
        return any(ids[0].get(split) == ids[1].get(split) and ours[split] != theirs[split] for split in ours if split in theirs)

    return [row for row in rows if not clashes(data_of(row))]
