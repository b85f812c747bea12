"""A finding about the data: which photos, what the numbers are, what to decide. Plain values; shown and ranked elsewhere.

Its id depends on its kind and its photos alone, so that a page, a queue and the next `curate` mean the same by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from unchoke.core.fingerprint import digest
from unchoke.data.corrections import Correction

KINDS = {
    "next-label": "one of the photos to label next",
    "unreadable": "a file that cannot be decoded",
    "folder-copy": "a folder whose photos have copies in another",
    "copies-labels": "nearly the same photo under several labels",
    "label": "another label is likelier",
    "value": "a value far from those of photos like it",
    "scene": "a mask that a model of the other scenes contradicts",
    "copies-torn": "nearly the same photo in several splits",
    "classes": "two classes that cannot be told apart",
    "blank": "hardly anything but one shade",
    "dark": "nearly black",
    "bright": "nearly white",
    "blurred": "far less sharp than the others",
    "tiny": "far smaller than the others",
    "shape": "another shape than the others",
    "session": "taken together, but not kept together",
    "outlier": "unlike all other photos",
    "copies": "nearly the same photo, one label, one split",
}
"""What each kind is, in words."""
_LEAVES_ONE = ("copies-labels", "copies-torn", "copies", "session")
"""Kinds about photos that belong together: one of them needs no decision."""
UNDECIDABLE = ("classes", "scene")
"""Kinds that no decision about single photos settles."""


@dataclass(frozen=True)
class DataFinding:
    """One thing to look at. `photos` are sample ids, the one it is about first."""

    kind: str
    """What kind of finding it is."""
    message: str
    """What was found, in words."""
    photos: tuple[str, ...] = ()
    """Ids of the samples concerned, the one it is about first."""
    score: float = 0.0
    """How pressing it is, from 0 to 1."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The figures behind it."""
    suggested: tuple[Correction, ...] = ()
    """Decisions that would settle it, ready to be written down."""
    settled: bool = False
    """Whether somebody has decided about it."""
    about: tuple[str, ...] = ()
    """What it is about, where that is no photo: classes, or scenes."""

    @cached_property
    def id(self) -> str:
        return digest([self.kind, sorted(self.photos), list(self.about)])[:12]

    def to_dict(self) -> dict[str, Any]:
        suggested = [{"photo": one.photo, "what": one.what, "value": one.value} for one in self.suggested]
        return {"id": self.id, **asdict(self), "photos": list(self.photos), "about": list(self.about), "suggested": suggested}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> DataFinding:
        kept = {name: one for name, one in value.items() if name in cls.__dataclass_fields__}
        suggested = tuple(Correction(**one) for one in value["suggested"])
        return cls(**{**kept, "photos": tuple(value["photos"]), "about": tuple(value["about"]), "suggested": suggested})


def settle_findings(findings: Iterable[DataFinding], decided: Collection[str]) -> list[DataFinding]:
    """The findings, with those marked that somebody has decided about."""
    return [replace(one, settled=_is_settled(one, decided)) for one in findings]


def _is_settled(finding: DataFinding, decided: Collection[str]) -> bool:
    if not finding.photos:
        return False
    left = sum(photo not in decided for photo in finding.photos)
    return left <= (1 if finding.kind in _LEAVES_ONE else 0)


def rank_findings(findings: Iterable[DataFinding]) -> list[DataFinding]:
    """The most pressing first; equal ones in the order of kinds, then of photos."""
    order = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(findings, key=lambda one: (-one.score, order[one.kind], one.photos, one.about))


def queue_of(findings: Iterable[DataFinding]) -> list[str]:
    """Ids of the findings that wait for a decision, in their order."""
    return [one.id for one in findings if not one.settled and one.kind not in UNDECIDABLE]
