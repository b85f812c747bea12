"""Decisions about photos: the queue, and what each key comes to in `corrections.csv`.

In: findings, and what a person pressed. Out: lines of the file, on the disk before the answer leaves. What was decided is read
from that file alone: a server that is killed and started again knows the same.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from unchoke.core.errors import UsageError
from unchoke.core.workspace import Workspace
from unchoke.data.corrections import (
    DROP,
    KEEP,
    LABEL,
    USE,
    VALUE,
    Correction,
    Corrections,
    append_corrections,
    load_corrections,
)
from unchoke.page.page_answers import PageAnswers
from unchoke.page.page_sources import ReviewItem

NUM_KEYS = 9


@dataclass(frozen=True)
class QueuePlace:
    """Where a review stands: the finding that is shown, its neighbours in the queue, its number there, and how many wait."""

    item: ReviewItem | None
    before: str
    after: str
    num_waiting: int
    num_all: int
    number: int = 0


@dataclass(frozen=True)
class StandingDecision:
    """What holds of a photo and a `what`, and the line that taking it back comes to: the decision before it, as it was."""

    last: Correction
    before: Correction


def standing_decisions(lines: Sequence[Correction]) -> list[StandingDecision]:
    """What holds, in the order it was decided. A line that repeats an earlier one, its time included, went back to that one."""
    stacks: dict[tuple[str, str], list[tuple[int, Correction]]] = {}
    for place, line in enumerate(lines):
        stack = stacks.setdefault((line.photo, line.what), [])
        again = [height for height, (_, one) in enumerate(stack) if _is_again(one, line)]
        if not line.value:
            stack.clear()
        elif again:
            del stack[again[-1] + 1 :]
        else:
            stack.append((place, line))
    tops = sorted(((*stack[-1], stack) for stack in stacks.values() if stack), key=lambda top: top[0])
    return [
        StandingDecision(line, stack[-2][1] if len(stack) > 1 else Correction(line.photo, line.what, ""))
        for _, line, stack in tops
    ]


def _is_again(one: Correction, line: Correction) -> bool:
    return (one.value, one.who) == (line.value, line.who) and one.when in ("", line.when)


class Review:
    """The queue of a workspace. Safe to call from several threads."""

    def __init__(self, workspace: Workspace, sources: PageAnswers) -> None:
        self._file: Path = workspace.corrections_file
        self._sources = sources
        self._writing = Lock()
        self._known: tuple[tuple[int, int], Corrections] | None = None
        self.num_written = 0
        """Lines that were added here, not by others."""

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
        return QueuePlace(shown, order[place - 1] if place else "", after, len(queue), len(order), place + 1)

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
                    "nothing is suggested here",
                    code="nothing-suggested",
                    why="the finding has no decision to take over",
                    try_="d, k or a label",
                )
            return list(item.suggested)
        decisions = {"drop": (USE, DROP), "keep": (USE, KEEP), "label": (LABEL, value)}
        if act.startswith(VALUE):
            decisions[act] = (act, value)
        if act not in decisions or not decisions[act][1]:
            raise UsageError(
                f"{act!r} is no decision",
                code="bad-decision",
                why="there are label, value, drop, keep and accept",
                try_="press one of the keys",
            )
        return [Correction(sample_id, *decisions[act])]

    def undo(self) -> str:
        """Take back what this person decided last and stands; the sample it was about, "" where there is nothing."""
        with self._writing:
            lines, who = self.corrections().lines, _who()
            unsigned = not any(line.who for line in lines)  # a file without that column
            mine = [one for one in standing_decisions(lines) if unsigned or one.last.who == who]
            if not mine:
                return ""
            last = mine[-1].last
            together = [one for one in mine if last.when and one.last.when == last.when] or mine[-1:]
            self._write([one.before for one in together])
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
        append_corrections(self._file, [one if one.when else replace(one, who=one.who or who, when=when) for one in lines])
        self._known = None
        self.num_written += len(lines)


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
