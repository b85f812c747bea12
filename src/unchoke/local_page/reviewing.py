"""Decisions about photos: the queue, and what each key comes to in `corrections.csv`.

In: findings, and what a person pressed. Out: lines of the file, on the disk before the answer leaves. What was decided is read
from that file alone: a server that is killed and started again knows the same.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from unchoke.core.errors import UsageError
from unchoke.core.workspace import Workspace
from unchoke.local_page.page_sources import PageSources, ReviewItem
from unchoke.photos.corrections import DROP, KEEP, LABEL, USE, Correction, Corrections, append_corrections, load_corrections

NUM_KEYS = 9


@dataclass(frozen=True)
class QueuePlace:
    """Where a review stands: the finding that is shown, its neighbours in the queue, and how many wait."""

    item: ReviewItem | None
    before: str
    after: str
    num_waiting: int
    num_all: int


class Review:
    """The queue of a workspace. Safe to call from several threads."""

    def __init__(self, workspace: Workspace, sources: PageSources) -> None:
        self._file: Path = workspace.corrections_file
        self._sources = sources
        self._writing = Lock()
        self._known: tuple[tuple[int, int], Corrections] | None = None

    def corrections(self) -> Corrections:
        """What stands in the file; it is read again when it has changed."""
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return Corrections(self._file)
        stamp = (found.st_mtime_ns, found.st_size)
        if self._known is None or self._known[0] != stamp:
            self._known = (stamp, load_corrections(self._file))
        return self._known[1]

    def items(self) -> list[ReviewItem]:
        return self._sources.findings(self.corrections().decided)

    def at(self, wanted: str = "") -> QueuePlace:
        """The finding of that id, or the first that waits."""
        items = self.items()
        queue = [item for item in items if item.waits and not item.settled]
        shown = next((item for item in items if item.id == wanted), queue[0] if queue else None)
        if shown is None:
            return QueuePlace(None, "", "", 0, len(items))
        order = [item.id for item in items if item.waits or item.id == shown.id]
        place = order.index(shown.id)
        waiting = {item.id for item in queue}
        after = next((one for one in [*order[place + 1 :], *order[:place]] if one in waiting and one != shown.id), "")
        return QueuePlace(shown, order[place - 1] if place else "", after, len(queue), len(items))

    def decide(self, act: str, sample_id: str, value: str = "", *, finding: str = "") -> str:
        """Write a decision down; the id of the finding to show next: the same one until nothing of it waits any more."""
        self._append(self._lines(act, sample_id, value, finding))
        if not finding:
            return ""
        place = self.at(finding)
        return place.after if place.item is None or place.item.settled or place.item.id != finding else finding

    def _lines(self, act: str, sample_id: str, value: str, finding: str) -> list[Correction]:
        if act == "accept":
            item = next((one for one in self.items() if one.id == finding), None)
            if item is None or not item.suggested:
                raise UsageError(
                    "nothing is suggested here", why="the finding has no decision to take over", try_="d, k or a label"
                )
            return list(item.suggested)
        decisions = {"drop": (USE, DROP), "keep": (USE, KEEP), "label": (LABEL, value)}
        if act not in decisions or (act == "label" and not value):
            raise UsageError(
                f"{act!r} is no decision", why="there are label, drop, keep and accept", try_="press one of the keys"
            )
        return [Correction(sample_id, *decisions[act])]

    def undo(self) -> str:
        """Take back the decision that was made last and stands; the sample it was about, "" where there is none."""
        with self._writing:
            corrections = self.corrections()
            standing = [line for line in corrections.lines if corrections.standing.get((line.photo, line.what)) is line]
            if not standing:
                return ""
            last = standing[-1]
            together = [line for line in standing if last.when and line.when == last.when and line.who == last.who] or [last]
            self._write([Correction(line.photo, line.what, "") for line in together])
        return last.photo

    def finding_of(self, sample_id: str) -> str:
        """The first finding in the queue that a photo belongs to."""
        return next((one.id for one in self.items() if one.waits and not one.settled and sample_id in one.photos), "")

    def _append(self, lines: Sequence[Correction]) -> None:
        with self._writing:
            self._write(lines)

    def _write(self, lines: Sequence[Correction]) -> None:
        """Lines of one decision have one time, to the microsecond: by it they are taken back together."""
        when, who = datetime.now(UTC).isoformat(timespec="microseconds"), _who()
        append_corrections(self._file, [Correction(one.photo, one.what, one.value, who, when) for one in lines])
        self._known = None


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return ""


def label_choices(classes: Sequence[str], likely: Sequence[str]) -> list[str]:
    """The classes behind the keys: all in their order where the keys suffice, else the likeliest first."""
    if len(classes) <= NUM_KEYS:
        return list(classes)
    return list(dict.fromkeys([*(name for name in likely if name), *classes]))[:NUM_KEYS]
