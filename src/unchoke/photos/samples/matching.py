"""Rows of a table and files of a folder, matched both ways: what is missing on either side becomes a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding
from unchoke.core.listing import FileEntry
from unchoke.core.units import format_count
from unchoke.photos.samples.image_files import FileMatcher
from unchoke.photos.samples.values import name_rows

if TYPE_CHECKING:
    import pandas as pd

NO_FILE = -1
SEVERAL_FILES = -2


@dataclass
class Matches:
    """For each row the position of its file, or `NO_FILE`, or `SEVERAL_FILES`; and the problems."""

    positions: npt.NDArray[np.int64]
    findings: list[Finding] = field(default_factory=list)

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        return self.positions >= 0

    @property
    def ambiguous(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.positions, SEVERAL_FILES)


def match_rows(table: pd.DataFrame, key: str, *, matcher: FileMatcher) -> Matches:
    """Find the file of each row by the cell in column `key`."""
    files = matcher.entries
    cells = [str(cell) for cell in table[key]]
    positions = np.empty(len(cells), dtype=np.int64)
    several: dict[str, list[int]] = {}
    for row, cell in enumerate(cells):
        hits = matcher.find(cell)
        positions[row] = hits[0] if len(hits) == 1 else SEVERAL_FILES if hits else NO_FILE
        if len(hits) > 1:
            several[cell] = hits
    matches = Matches(positions)
    matches.findings += _missing(table, cells, positions, key) + _several(several, files, key) + _shared(cells, positions, files)
    return matches


def _missing(table: pd.DataFrame, cells: list[str], positions: npt.NDArray[np.int64], key: str) -> list[Finding]:
    mask = positions == NO_FILE
    if not mask.any():
        return []
    names = [cells[row] for row in np.flatnonzero(mask)]
    shown = list_some([repr(name) for name in names])
    return [
        Finding(
            "rows-without-file",
            f"{format_count(len(names), 'row')} of {len(cells):,} without an image file: {shown}",
            severity="error",
            evidence={"count": len(names), "column": key, "cells": names[:1000], "rows": name_rows(table, mask)[:1000]},
            fix="add the files, add their folder with --images, or remove the rows",
        )
    ]


def _several(several: dict[str, list[int]], files: Sequence[FileEntry], key: str) -> list[Finding]:
    if not several:
        return []
    shown = [f"{cell!r} → {list_some([repr(files[hit].relative) for hit in hits], limit=3)}" for cell, hits in several.items()]
    paths = tuple(files[hit].path for hits in several.values() for hit in hits)
    return [
        Finding(
            "ambiguous-file",
            f"{format_count(len(several), 'cell')} of {key!r} could mean several files: {'; '.join(shown[:3])}",
            severity="error",
            path=paths[0],
            paths=paths,
            evidence={
                "count": len(several),
                "cells": {cell: [files[hit].path for hit in hits] for cell, hits in list(several.items())[:100]},
            },
            fix="write the path below the image folder in the table, or name fewer folders with --images",
        )
    ]


def _shared(cells: list[str], positions: npt.NDArray[np.int64], files: Sequence[FileEntry]) -> list[Finding]:
    """Different cells that lead to one file; equal cells are reported as duplicate ids instead."""
    counts = np.bincount(positions[positions >= 0], minlength=len(files))
    claims: dict[int, set[str]] = {int(position): set() for position in np.flatnonzero(counts > 1)}
    for row in np.flatnonzero(np.isin(positions, list(claims))) if claims else ():
        claims[int(positions[row])].add(cells[row])
    shared = {position: sorted(claim) for position, claim in claims.items() if len(claim) > 1}
    if not shared:
        return []
    paths = tuple(files[position].path for position in shared)
    shown = [
        f"{files[position].relative!r} ← {list_some([repr(cell) for cell in claim], limit=3)}"
        for position, claim in shared.items()
    ]
    return [
        Finding(
            "rows-share-file",
            f"{format_count(len(shared), 'file')} claimed by several rows: {'; '.join(shown[:3])}",
            severity="error",
            path=paths[0],
            paths=paths,
            evidence={"count": len(shared)},
            fix="give each image one row, or write the path so that it leads to one file",
        )
    ]


def diagnose_unused(files: Sequence[FileEntry], matches: Matches) -> list[Finding]:
    """Files that no row names."""
    used = np.zeros(len(files), dtype=bool)
    used[matches.positions[matches.found]] = True
    for finding in matches.findings:
        if finding.code == "ambiguous-file":
            named = set(finding.paths)
            used |= np.fromiter((entry.path in named for entry in files), dtype=bool, count=len(files))
    if used.all():
        return []
    unused = [files[int(position)] for position in np.flatnonzero(~used)]
    shown = list_some([repr(entry.relative) for entry in unused])
    return [
        Finding(
            "files-without-row",
            f"{format_count(len(unused), 'image')} of {len(files):,} that no row names: {shown}",
            path=unused[0].path,
            paths=tuple(entry.path for entry in unused),
            evidence={"count": len(unused), "files": len(files)},
            fix="they are not used: add rows for them, or name only the folders that belong to the table with --images",
        )
    ]
