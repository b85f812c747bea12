"""`quarantine.csv`: the files that were set aside, each with its reason. Never silently dropped, never replaced."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from unchoke.core import atomic


@dataclass(frozen=True)
class Quarantined:
    """`times` counts the different states in which this file was tried and failed."""

    sample_id: str
    path: str
    stage: str
    reason: str
    times: int = 1

    def to_dict(self) -> dict[str, str | int]:
        return {"sample_id": self.sample_id, "path": self.path, "stage": self.stage, "reason": self.reason, "times": self.times}


def save_quarantine(file: Path, entries: Iterable[Quarantined]) -> list[Quarantined]:
    """Write today's entries, counting on from what the file said; no entries, no file."""
    before = {entry.sample_id: entry for entry in load_quarantine(file)}
    counted = [_counted(entry, before.get(entry.sample_id)) for entry in entries]
    if not counted:
        file.unlink(missing_ok=True)
        return []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # a bare "\r" would end a row
    writer.writerow([field.name for field in fields(Quarantined)])
    writer.writerows(astuple(entry) for entry in counted)
    atomic.write_text(file, text.getvalue())
    return counted


def load_quarantine(file: Path) -> list[Quarantined]:
    """The entries of the file; none if it does not exist."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    return [Quarantined(row["sample_id"], row["path"], row["stage"], row["reason"], int(row["times"])) for row in rows]


def _counted(entry: Quarantined, before: Quarantined | None) -> Quarantined:
    if before is None:
        return entry
    times = before.times if before.reason == entry.reason else before.times + 1
    return Quarantined(entry.sample_id, entry.path, entry.stage, entry.reason, times)
