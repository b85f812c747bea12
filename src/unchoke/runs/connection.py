"""Opening the SQLite file, and its errors in words. What the tables mean is known elsewhere."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.errors import DataError, MachineError
from unchoke.runs.schema import migrate

_WAIT_S = 30.0
_SHARED_MEMORY_BYTES = 32_768
_REFUSALS = ("locked", "unable to open", "disk I/O", "readonly")
_DAMAGES = ("not a database", "malformed")


def connect(file: Path) -> sqlite3.Connection:
    """A connection to the current version of `file`, created or migrated if need be; transactions are begun by hand."""
    with explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(file, timeout=_WAIT_S, isolation_level=None)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection)
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
        if "disk is full" in text or ("disk I/O" in text and _is_full(file.parent)):
            raise atomic.no_room(file) from error
        if any(part in text for part in _REFUSALS):
            raise _refused(file, text) from error
        if any(part in text for part in _DAMAGES):
            raise _damaged(file, text) from error
        raise


def _is_full(folder: Path) -> bool:
    """SQLite calls it an I/O error when there is no room for its shared memory file."""
    return shutil.disk_usage(folder).free < _SHARED_MEMORY_BYTES


def _refused(file: Path, text: str) -> MachineError:
    return MachineError(
        f"{file.name} cannot be used: {text}",
        why=f"the system refused to read or write {file}",
        try_="see that no other command is using it and that the folder is writable, then run the same command again",
    )


def _damaged(file: Path, text: str) -> DataError:
    return DataError(
        f"{file.name} is damaged: {text}",
        why=f"{file} does not hold a sound SQLite database",
        try_=f"mv '{file}' '{file}.damaged', then run the same command again",
    )
