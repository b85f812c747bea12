"""Which samples exist: DATA in, a `Scan` out.

DATA is a class-folder tree or a table with image folders. Every problem of the data is a finding in the result; only what
leaves nothing to go on with (no such file or column, no rows, no image) is raised. Reads names, sizes and times, never pixels.
"""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path

from unchoke.core import listing
from unchoke.core.errors import UsageError
from unchoke.photos.samples.folders import scan_folders
from unchoke.photos.samples.rows import scan_table
from unchoke.photos.samples.sample_set import DataSource, Samples, Scan, Task

__all__ = ["DataSource", "Samples", "Scan", "Task", "scan_samples"]


def scan_samples(source: DataSource) -> Scan:
    """Find the samples that `source` describes, with every problem on the way."""
    if not source.data.exists():
        raise _no_such(source.data)
    scan = scan_folders(source) if source.data.is_dir() else scan_table(source)
    _return_memory()
    return scan


def _return_memory() -> None:
    """Give the system back what reading and sorting needed: Arrow would keep it, several times the size of the result."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def _no_such(path: Path) -> UsageError:
    parent = path.absolute().parent
    close = difflib.get_close_matches(path.name, listing.names(parent), n=1) if parent.is_dir() else []
    why = f"{parent} holds nothing of that name" if parent.is_dir() else f"{parent} does not exist either"
    return UsageError(
        f"no such file or folder: {path}",
        why=why,
        try_=f"unchoke check {shlex.quote(str(parent / close[0]))}" if close else f"ls {shlex.quote(str(parent))}",
    )
