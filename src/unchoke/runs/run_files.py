"""The files of a finished run: which of them the run vouches for, and whether they are still as it left them.

In: a run's folder. Out: its record, where every file it vouches for is there and as it was written. The report is not among them
(it can be written again), nor are checkpoints, which have sums of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from unchoke.core import checksums
from unchoke.core.errors import DataError
from unchoke.core.record import RunRecord
from unchoke.runs.report.json import load_record

RECORD = "record.json"
_KEPT = (
    "checkpoints/best_head.pt",
    *(f"checkpoints/model_{number}.pt" for number in range(1, 9)),
    *("history.json", "loop.json", "memory.json", "predictions.csv", RECORD),
)
"""Models have numbers in a run that blends several."""


def seal_run(folder: Path, others: Iterable[str] = ()) -> None:
    """Vouch for the files of a run that is finished, and for `others` beside them."""
    checksums.add_checksums(folder, (*_KEPT, *others))


def unseal_run(folder: Path) -> None:
    """What the run is made of is about to be written again; how it began stays as it is."""
    checksums.drop_checksums(folder, set(_KEPT) - {"loop.json", "memory.json"})


def files_to_share(folder: Path) -> dict[str, Path]:
    """The files of a finished run that another machine needs to predict with it, by their names in the folder, and its report."""
    named = {name: folder / name for name in (*_KEPT, checksums.CHECKSUMS, "report.html")}
    return {name: file for name, file in named.items() if file.is_file()}


def is_of(folder: Path, record: RunRecord) -> bool:
    """Whether a record is that of the run whose folder in a workspace it lies in."""
    return record.run in ("", folder.resolve().name)


def recall_record(folder: Path, warn: Callable[[str], object]) -> RunRecord | None:
    """The record of a finished run; None, with a warning, where one of its files has changed."""
    try:
        for name in _KEPT:
            file = folder / name
            if file.exists():
                checksums.verify(file)
            elif checksums.has_checksum(file):
                raise checksums.damaged(file, "it is not there")
        record = load_record(folder / RECORD)
        if not is_of(folder, record):
            raise checksums.damaged(folder / RECORD, f"it is that of {record.run}")
        return record
    except DataError as error:
        warn(f"{error.what} ({error.why}): {folder.name} is finished again from what is sound")
        return None
