"""The photos of a workspace as columns: what each is called, its class and side, what a run said of it, what was found.

In: the manifest, predictions of a run, findings. Out: positions of the photos that a filter lets through, and rows for the
page. A photo's id is a digest of its name: addresses hold ids, never paths, and an id that is not here leads nowhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.data.corrections import LABEL, USE, VALUE, Corrections
from unchoke.data.manifest import target_columns
from unchoke.page.page_sources import ReviewItem

if TYPE_CHECKING:
    import pandas as pd

UNJUDGED, RIGHT, WRONG = -1, 0, 1
_JUDGED = {"right": RIGHT, "wrong": WRONG, "unjudged": UNJUDGED}
ORDERS = ("name", "least sure", "most sure")
ANY_FINDING = "any"
Stamp = tuple[int, int] | None


def stamp_of(file: Path) -> Stamp:
    """What changes when a file is written again; None where there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def photo_id(sample_id: str) -> str:
    """The id that stands for a photo in addresses."""
    return hashlib.sha256(sample_id.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True)
class PhotoFilter:
    """Which photos, in which order. Empty values let all through."""

    label: str = ""
    split: str = ""
    judged: str = ""
    below: str = ""
    """Only photos that the run was less sure of, in per cent."""
    finding: str = ""
    name: str = ""
    order: str = ORDERS[0]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> PhotoFilter:
        """From the address; what it has no such word for is left out."""
        given = {one.name: str(query.get(one.name, one.default)).strip()[:200] for one in fields(cls)}
        given["order"] = given["order"] if given["order"] in ORDERS else ORDERS[0]
        given["judged"] = given["judged"] if given["judged"] in _JUDGED else ""
        given["below"] = given["below"] if given["below"].isdecimal() and int(given["below"]) <= 100 else ""
        return cls(**given)

    def to_query(self) -> dict[str, str]:
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}


@dataclass(frozen=True, eq=False)
class PhotoCatalogue:
    """Columns of equal length, in the order of the manifest; photos that only a finding names come last."""

    names: Sequence[str]
    paths: Sequence[str]
    labels: Sequence[str]
    splits: Sequence[str]
    predicted: Sequence[str]
    confidence: NDArray[np.float32]
    judged: NDArray[np.int8]
    kinds: Mapping[int, tuple[str, ...]]
    run: str = ""
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Where photos have values instead of classes: those of each target."""

    @classmethod
    def build(
        cls, manifest: pd.DataFrame, predictions: pd.DataFrame | None, findings: Sequence[ReviewItem], *, run: str = ""
    ) -> PhotoCatalogue:
        names, paths = manifest["sample_id"].tolist(), manifest["path"].tolist()
        labels = manifest["label"].tolist() if "label" in manifest.columns else [""] * len(names)
        splits = manifest["split"].tolist()
        values = {name: manifest[name].tolist() for name in target_columns(manifest.columns)}
        place = {name: number for number, name in enumerate(names)}
        for photo in (photo for item in findings for photo in item.photos):
            if photo not in place and Path(photo).is_absolute():
                place[photo] = len(names)
                for column, cell in ((names, photo), (paths, photo), (labels, ""), (splits, "")):
                    column.append(cell)
                for column in values.values():
                    column.append(np.nan)
        predicted = [""] * len(names)
        confidence = np.full(len(names), np.nan, np.float32)
        judged = np.full(len(names), UNJUDGED, np.int8)
        if predictions is not None and {"predicted", "truth", "confidence"} <= set(predictions.columns):
            columns = (predictions[name].tolist() for name in ("sample_id", "predicted", "truth", "confidence"))
            for name, said, truth, sure in zip(*columns, strict=True):
                if (where := place.get(name)) is not None:
                    predicted[where], confidence[where], judged[where] = said, sure, RIGHT if said == truth else WRONG
        kinds: dict[int, list[str]] = {}
        for item in findings:
            for photo in item.photos:
                if photo in place and item.kind not in kinds.setdefault(place[photo], []):
                    kinds[place[photo]].append(item.kind)
        told = {where: tuple(found) for where, found in kinds.items()}
        return cls(names, paths, labels, splits, predicted, confidence, judged, told, run, values)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ids(self) -> list[str]:
        return [photo_id(name) for name in self.names]

    @cached_property
    def _place_of_id(self) -> dict[str, int]:
        return {one: place for place, one in enumerate(self.ids)}

    @cached_property
    def _place_of_name(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def classes(self) -> list[str]:
        return sorted({*self.labels} - {""})

    @cached_property
    def sides(self) -> list[str]:
        """The sides of the split that there are, in their usual order."""
        usual = ("train", "val", "test")
        return sorted({*self.splits} - {""}, key=lambda side: (usual.index(side) if side in usual else len(usual), side))

    @cached_property
    def found_kinds(self) -> dict[str, int]:
        """Kinds of findings, and how many photos have each."""
        counts: dict[str, int] = {}
        for kinds in self.kinds.values():
            for kind in kinds:
                counts[kind] = counts.get(kind, 0) + 1
        return counts

    def place(self, one: str) -> int | None:
        """The position of an id; None for one that stands for no photo."""
        return self._place_of_id.get(one)

    def place_of(self, name: str) -> int | None:
        """The position of a sample."""
        return self._place_of_name.get(name)

    @cached_property
    def select(self) -> Any:
        """Positions of the photos that a filter lets through, in its order; the last few answers are remembered."""
        return lru_cache(maxsize=16)(self._select)

    def _select(self, wanted: PhotoFilter) -> NDArray[np.int64]:
        kept = np.ones(len(self), bool)
        if wanted.label:
            kept &= np.fromiter((label == wanted.label for label in self.labels), bool, len(self))
        if wanted.split:
            kept &= np.fromiter((side == wanted.split for side in self.splits), bool, len(self))
        if wanted.judged:
            kept &= self.judged == _JUDGED[wanted.judged]
        if wanted.below:
            kept &= np.nan_to_num(self.confidence, nan=np.inf) < int(wanted.below) / 100
        if wanted.finding:
            has = [place for place, kinds in self.kinds.items() if wanted.finding in (ANY_FINDING, *kinds)]
            there = np.zeros(len(self), bool)
            there[has] = True
            kept &= there
        if wanted.name:
            part = wanted.name.casefold()
            kept &= np.fromiter((part in name.casefold() for name in self.names), bool, len(self))
        places = np.flatnonzero(kept)
        if wanted.order == ORDERS[0]:
            return places
        sure = self.confidence[places]
        turned = sure if wanted.order == ORDERS[1] else -sure
        return places[np.argsort(turned, kind="stable")]  # photos that were not judged come last either way

    def row(self, place: int, corrections: Corrections) -> dict[str, Any]:
        """What the grid shows of a photo."""
        name, sure = self.names[place], float(self.confidence[place])
        words = {LABEL: "", USE: "", **{f"{VALUE}{target}": f"{target} " for target in self.values}}
        decided = [
            f"{word}{corrections.standing[name, what].value}"
            for what, word in words.items()
            if (name, what) in corrections.standing
        ]
        values = [f"{target} {column[place]:g}" for target, column in self.values.items() if column[place] == column[place]]
        return {
            "id": self.ids[place],
            "name": name,
            "label": self.labels[place] or ", ".join(values),
            "split": self.splits[place],
            "said": self.predicted[place],
            "sure": None if np.isnan(sure) else round(100 * sure),
            "wrong": bool(self.judged[place] == WRONG),
            "kinds": self.kinds.get(place, ()),
            "decided": ", ".join(decided),
        }
