"""Everything that is looked for in the data, over what is cached of it. Material in, findings out, ranked.

Order: neighbours, copies, then heads in folds that keep groups and copies together, then what measures and files say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unchoke.core.units import format_count
from unchoke.curation.data_finding import DataFinding, rank_findings
from unchoke.curation.measure_photos import MeasureTable
from unchoke.curation.near_copies import CopyFacts, find_copies_of
from unchoke.curation.odd_photos import find_odd_photos
from unchoke.curation.odd_values import find_odd_values
from unchoke.curation.sessions import find_sessions
from unchoke.curation.wrong_labels import (
    HeldOutClasses,
    count_wrong,
    find_twin_classes,
    find_wrong_labels,
    find_wrong_marks,
    hold_out_classes,
)
from unchoke.data.several_labels import MULTI_LABEL, label_cells
from unchoke.features.near_copies import find_pairs, join_pairs
from unchoke.features.nearest import NearestRows, UnitRows, find_nearest
from unchoke.training.heads.linear_path import NUM_FOLDS, deal_folds

_FEWEST = 2 * NUM_FOLDS


@dataclass(frozen=True, eq=False)
class CurationMaterial:
    """What is known of each photo, row by row: `targets` are numbers of classes (n), values (n, T) or 0 and 1 (n, L)."""

    kind: Literal["classification", "multi_label", "regression"]
    names: tuple[str, ...]
    ids: Sequence[str]
    paths: Sequence[str]
    targets: NDArray[Any]
    feats_nd: NDArray[np.float16]
    measures: MeasureTable
    sizes: NDArray[np.int64]
    """Width and height."""
    sides: Sequence[str]
    groups: Sequence[str]
    folders: Sequence[str]
    contents: Sequence[str]

    @property
    def label_texts(self) -> list[str]:
        """What is learnt of each photo, as text: equal for photos that agree."""
        if self.kind == "classification":
            return [self.names[number] for number in self.targets.tolist()]
        if self.kind == MULTI_LABEL:
            return label_cells(self.targets, self.names)
        return [" ".join(f"{value:g}" for value in row) for row in self.targets.tolist()]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Findings, the most pressing first; what heads said of classes; how many labels are estimated to be wrong."""

    findings: list[DataFinding]
    held: HeldOutClasses | None = None
    num_wrong: int | None = None
    unjudged: str = ""
    """Which labels or values nothing was said of, and why."""


def diagnose_data(material: CurationMaterial) -> Diagnosis:
    """Look for everything."""
    nearest = find_nearest(material.feats_nd)
    pairs = find_pairs(material.measures.looks, material.contents, nearest)
    facts = CopyFacts(
        material.ids,
        material.label_texts,
        material.sides,
        material.folders,
        material.groups,
        material.contents,
        material.sizes.prod(axis=1).tolist(),
    )
    found = find_copies_of(pairs, UnitRows(material.feats_nd).cosines(pairs.rows), facts)
    found += find_odd_photos(material.ids, material.measures, material.sizes, nearest)
    found += find_sessions(material.ids, material.measures, material.groups, material.sides)
    folds = keep_together(material, join_pairs(pairs.rows))
    if folds is None:
        return Diagnosis(rank_findings(found), unjudged=_why_unjudged(material))
    if material.kind == "regression":
        values = find_odd_values(material.ids, material.names, material.targets, material.feats_nd, nearest, folds)
        return Diagnosis(rank_findings(found + values))
    if material.kind == MULTI_LABEL:
        wrong = find_wrong_marks(material.ids, material.names, material.targets, material.feats_nd, folds)
        return Diagnosis(rank_findings(found + wrong))
    return _with_classes(material, nearest, folds, found)


def _with_classes(
    material: CurationMaterial, nearest: NearestRows, folds: NDArray[np.int64], found: list[DataFinding]
) -> Diagnosis:
    held = hold_out_classes(material.feats_nd, material.targets, material.names, folds)
    found = found + find_wrong_labels(material.ids, held, nearest) + find_twin_classes(held)
    lone = [held.names[number] for number in np.flatnonzero(np.bincount(held.targets, minlength=len(held.names)) == 1).tolist()]
    unjudged = f"labels of {format_count(len(lone), 'class', 'classes')} with one photo each were not judged" if lone else ""
    return Diagnosis(rank_findings(found), held, count_wrong(held), unjudged)


def _why_unjudged(material: CurationMaterial) -> str:
    what = "values" if material.kind == "regression" else "labels"
    if material.kind == "classification" and len(material.names) < 2:
        return f"{what} were not judged: there is one class alone"
    fewest = f"at least {_FEWEST} photos that are no copies of each other and not of one group"
    return f"{what} were not judged: that takes {fewest}, and there are {format_count(len(material.ids), 'photo')}"


def keep_together(material: CurationMaterial, copies: Sequence[Sequence[int]]) -> NDArray[np.int64] | None:
    """The fold of each photo: a group or a set of copies in one, classes in proportion. None where there are too few photos."""
    classes = material.kind == "classification"
    if len(material.ids) < _FEWEST or (classes and len(material.names) < 2):
        return None
    units = [f"group {group}" if group else f"photo {name}" for name, group in zip(material.ids, material.groups, strict=True)]
    for rows in copies:
        for row in rows:
            units[row] = units[rows[0]]
    strata: Sequence[Any] = material.targets.tolist() if classes else [0] * len(units)
    if material.kind == MULTI_LABEL:
        strata = material.label_texts
    folds = deal_folds(strata, units)
    return folds if len(np.unique(folds)) > 1 else None
