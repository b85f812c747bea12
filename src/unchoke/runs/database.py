"""The SQLite file of runs: its tables, how an older file becomes a current one, opening it, and its errors in words.

`PRAGMA user_version` is the number of migrations applied. A migration that was released is never edited: add another. What the
rows mean is known elsewhere.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unchoke.core import atomic, listing
from unchoke.core.errors import DamagedFile, MachineError

_WAIT_S = 30.0
_SHARED_MEMORY_BYTES = 32_768
_REFUSALS = ("locked", "unable to open", "disk I/O", "readonly")
_UNWRITABLE = ("unable to open", "readonly")
_DAMAGES = ("not a database", "malformed", "already exists", "no such", "Could not decode")
_FIRST = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        key TEXT NOT NULL UNIQUE,
        command TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'interrupted')),
        created_at TEXT NOT NULL,
        finished_at TEXT,
        settings TEXT NOT NULL,
        data TEXT NOT NULL,
        encoder TEXT NOT NULL,
        fingerprint TEXT NOT NULL)""",
    """CREATE TABLE metrics (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        split TEXT NOT NULL,
        name TEXT NOT NULL,
        step INTEGER NOT NULL,
        value REAL,
        low REAL,
        high REAL,
        PRIMARY KEY (run, split, name, step)) WITHOUT ROWID""",
    """CREATE TABLE timings (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        stage TEXT NOT NULL,
        seconds REAL NOT NULL,
        PRIMARY KEY (run, stage)) WITHOUT ROWID""",
    """CREATE TABLE memory (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        what TEXT NOT NULL,
        planned_bytes INTEGER,
        measured_bytes INTEGER,
        PRIMARY KEY (run, what)) WITHOUT ROWID""",
    """CREATE TABLE artefacts (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        PRIMARY KEY (run, path)) WITHOUT ROWID""",
    """CREATE TABLE choices (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        reason TEXT NOT NULL,
        evidence TEXT NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (run, name)) WITHOUT ROWID""",
)
_SECOND = ("CREATE INDEX metrics_by_name ON metrics (split, name)",)

_THIRD = ("CREATE TABLE seals (run INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE, sha256 TEXT NOT NULL)",)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD)
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, *, to_version: int = VERSION) -> None:
    """Apply the migrations a file still lacks, each wholly or not at all."""
    if _version(connection) > VERSION:
        raise MachineError(
            f"experiments.db has version {_version(connection)}, and this unchoke knows versions up to {VERSION}",
            code="newer-database",
            why="a newer unchoke has written it",
            try_="pip install --upgrade unchoke",
        )
    while _version(connection) < to_version:
        with transaction(connection):
            version = _version(connection)  # another process may have been faster
            if version < to_version:
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1:d}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements inside, or none; the right to write is taken at the start, so that two writers wait for each other."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def connect(file: Path) -> sqlite3.Connection:
    """A connection to the current version of `file`, created or migrated if need be; transactions are begun by hand.

    What cannot be written is opened to be read, as it is.
    """
    with explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file() and file.stat().st_size == 0 and listing.names(file.parent, prefix="exp_"):
            raise _damaged(file, "it is empty")  # which SQLite takes for a new database; runs beside it say that it was lost
        try:
            return _prepared(sqlite3.connect(file, timeout=_WAIT_S, isolation_level=None), to_version=VERSION)
        except sqlite3.OperationalError as error:
            if not (file.is_file() and any(part in str(error) for part in _UNWRITABLE)):
                raise
            # a connection that writes nothing, not even beside the file; what others write meanwhile it sees where it can
            how = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "immutable=1"
            reader = sqlite3.connect(f"{file.resolve().as_uri()}?{how}", uri=True, timeout=_WAIT_S, isolation_level=None)
            return _prepared(reader, to_version=0)


def _prepared(connection: sqlite3.Connection, *, to_version: int) -> sqlite3.Connection:
    """The connection, of a sound file that others may read while one writes; migrated, unless it is only to be read."""
    try:
        if (found := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"malformed: {found}")
        connection.execute("PRAGMA foreign_keys = ON")
        if to_version and connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, to_version=to_version)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def explained(file: Path) -> Iterator[None]:
    """Translate SQLite's errors about the machine or the file; errors in our statements stay ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        # it is called an I/O error when there is no room for its shared memory file
        no_room = "disk I/O" in text and shutil.disk_usage(file.parent).free < _SHARED_MEMORY_BYTES
        if no_room or "disk is full" in text:
            raise atomic.no_room(file) from error
        if any(part in text for part in _REFUSALS):
            raise MachineError(
                f"{file.name} cannot be used: {text}",
                code="database-refused",
                why=f"the system refused to read or write {file}",
                try_="see that no other command is using it and that the folder is writable, then run the same command again",
            ) from error
        if any(part in text for part in _DAMAGES):
            raise _damaged(file, text) from error
        raise
    except (UnicodeDecodeError, OverflowError, MemoryError) as error:  # of sizes and texts that nobody wrote
        raise _damaged(file, str(error) or type(error).__name__) from error


def _damaged(file: Path, text: str) -> DamagedFile:
    return DamagedFile(
        f"{file.name} is damaged: {text}",
        code="damaged-database",
        why=f"{file} does not hold a sound SQLite database",
        try_=f"mv '{file}' '{file}.damaged', then run the same command again",
    )
