"""What `curate` answers: findings as data, and as text, JSON and CSV.

A saved curation is the same for every reader: the text here, the page, the queue of a review.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.spreadsheet import as_text
from unchoke.core.units import format_count, format_seconds
from unchoke.core.workspace import out_option
from unchoke.curation.data_finding import KINDS, DataFinding, queue_of
from unchoke.runs.report.layout import columns, shorten

FINDINGS = "findings.json"
PAGE = "curation.html"
_SHOWN, _WIDEST = 10, 200
_CSV = ("place", "id", "kind", "score", "settled", "photo", "photos", "what", "value", "message")


@dataclass(frozen=True)
class Curation:
    """The answer of `curate`."""

    findings: list[DataFinding]
    """What was found, the most pressing first."""
    num_photos: int
    """How many photos were looked at."""
    num_wrong: int | None
    """How many labels are estimated to be wrong; None for values."""
    corrections: dict[str, int]
    """How many decisions were used, by kind."""
    page: Path
    """The page that shows the findings."""
    workspace: Path
    """The folder it belongs to."""
    data: str = ""
    """The data that was looked at."""
    seconds: float = 0.0
    """How long it took, measuring and extracting included."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds by stage."""
    choices: list[Choice] = field(default_factory=list)
    """What was chosen, with reasons."""
    saved_to: Path | None = None
    """The table that was written, if one was asked for."""
    noun: str = "photo"
    """What was looked at: photos, or scenes."""
    notes: list[str] = field(default_factory=list)
    """What could not be looked at, or not be judged."""

    @property
    def queue(self) -> list[str]:
        """Ids of findings that wait for a decision, in the order to decide them."""
        return queue_of(self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "num_photos": self.num_photos,
            "num_wrong": self.num_wrong,
            "findings": [finding.to_dict() for finding in self.findings],
            "queue": self.queue,
            "notes": self.notes,
            "corrections": self.corrections,
            "page": str(self.page),
            "seconds": round(self.seconds, 3),
            "timings": self.timings,
            "choices": [choice.to_dict() for choice in self.choices],
            "saved_to": self.saved_to and str(self.saved_to),
        }

    def to_text(self) -> str:
        waiting = set(self.queue)
        took = f"{format_count(self.num_photos, self.noun)} looked at in {format_seconds(self.seconds)}"
        lines = [f"{took}: {format_count(len(self.findings), 'finding')}, {len(waiting):,} of them to decide"]
        lines += [f"note    {shorten(note, _WIDEST)}" for note in self.notes]
        if self.num_wrong:
            share = self.num_wrong / max(1, self.num_photos)
            lines.append(
                f"about {format_count(self.num_wrong, 'label')} may be wrong ({100 * share:.1f} %), by confident learning"
            )
        if self.findings:
            lines += ["", self._kinds(), "", *self._first()]
        lines += ["", f"page    {self.page}"]
        if self.saved_to:
            lines.append(f"saved   {self.saved_to}")
        out = out_option(self.workspace)
        decisions = self.workspace / "corrections.csv"
        if self.noun == "photo":
            lines.append(f"next    decisions go into {decisions}; then `unchoke fit{out}` uses them")
        return "\n".join(lines)

    def _kinds(self) -> str:
        counts = Counter(finding.kind for finding in self.findings)
        photos = {kind: len({id_ for one in self.findings if one.kind == kind for id_ in one.photos}) for kind in counts}
        rows = [[kind, f"{counts[kind]:,}", f"{photos[kind]:,}", about] for kind, about in KINDS.items() if kind in counts]
        return columns(rows, header=("kind", "findings", "photos", "what it is"), right=(1, 2))

    def _first(self) -> list[str]:
        open_ = [finding for finding in self.findings if not finding.settled]
        rows = [
            [str(place), one.kind, f"{one.score:.2f}", shorten(one.message, _WIDEST)]
            for place, one in enumerate(open_[:_SHOWN], 1)
        ]
        lines = columns(rows, right=(0,)).splitlines()
        if len(open_) > _SHOWN:
            lines.append(f"… and {len(open_) - _SHOWN:,} more: the page, --csv FILE or --json has them all")
        return lines

    def to_csv(self) -> str:
        """A row for each finding; of several suggested decisions the first. Made for spreadsheets: no cell of it is a formula."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_CSV)
        for place, one in enumerate(self.findings, 1):
            first = one.suggested[0] if one.suggested else None
            decision = ("", "") if first is None else (first.what, first.value)
            photo = first.photo if first is not None else one.photos[0] if one.photos else ""
            state = "yes" if one.settled else ""
            texts = [as_text(cell) for cell in (photo, *decision, one.message)]
            writer.writerow([place, one.id, one.kind, one.score, state, texts[0], len(one.photos), *texts[1:]])
        return atomic.valid_text(text.getvalue())
