"""Photos that are stored several times: the same bytes under several names. Pure: samples and digests in, findings out.

Copies of one picture are no test of a model that was trained on another of them, and copies with different labels cannot all be
right. Where splits were given or made before, such copies may lie on several sides: they keep their side, and are not scored.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding, Severity
from unchoke.core.units import format_count
from unchoke.core.urls import is_url
from unchoke.data.sample_set import Samples
from unchoke.data.splits import SIDES

if TYPE_CHECKING:
    import pandas as pd

CONFLICT = "duplicate-label-conflict"
ACROSS = "duplicate-across-splits"
PLAIN = "duplicate-images"
COPY_CODES = (CONFLICT, ACROSS, PLAIN)
_ALIKE_SETS = 3
"""From so many copies between the same folders on, the folders are named instead of the files."""


@dataclass(frozen=True)
class UnscoredSample:
    """A sample of the val or test side that no score may count, and why."""

    row: int
    sample_id: str
    path: str
    split: str
    code: str
    reason: str


@dataclass(frozen=True)
class CopySets:
    """Sets of rows with the same bytes: labelled differently, on several sides (possibly both), or merely repeated."""

    conflicts: list[list[int]]
    across: list[list[int]]
    plain: list[list[int]]


def find_copies(samples: Samples, contents: Sequence[str]) -> CopySets:
    """The rows that share a digest; "" is not known and like no other."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, content in enumerate(contents):
        if content:
            rows_of[content].append(row)
    found = CopySets([], [], [])
    sets = [rows for rows in rows_of.values() if len(rows) > 1]
    if not sets:
        return found
    values = list(zip(*(samples.frame[name].tolist() for name in samples.value_columns), strict=True))
    splits = samples.frame["split"].tolist()
    for rows in sets:
        conflicts, torn = len({values[row] for row in rows}) > 1, len({splits[row] for row in rows} - {""}) > 1
        for kind, belongs in ((found.conflicts, conflicts), (found.across, torn), (found.plain, not conflicts and not torn)):
            if belongs:
                kind.append(rows)
    return found


def find_unscored(samples: Samples, contents: Sequence[str]) -> list[UnscoredSample]:
    """Samples of val and test that have copies labelled otherwise, or a copy on an earlier side: a picture counts on the first
    side that has it, and is no test of what was trained on it or chosen by it.
    """
    found, reasons = find_copies(samples, contents), dict[int, tuple[str, str]]()
    names, splits = samples.frame["sample_id"].tolist(), samples.frame["split"].tolist()
    for rows in found.across:
        first = min((row for row in rows if splits[row]), key=lambda row: SIDES.index(splits[row]))
        for row in rows:
            if splits[row] not in ("", splits[first]):
                reasons[row] = (ACROSS, f"a copy of {names[first]!r}, which is on the {splits[first]} side")
    for rows in found.conflicts:
        for row in rows:
            other = next(one for one in rows if one != row)
            if splits[row] not in ("", "train"):
                reasons.setdefault(row, (CONFLICT, f"the same picture has another label as {names[other]!r}"))
    if not reasons:
        return []
    paths = samples.frame["path"].tolist()
    return [UnscoredSample(row, names[row], paths[row], splits[row], *reasons[row]) for row in sorted(reasons)]


def keep_one_copy(samples: Samples, contents: Sequence[str], previous: pd.DataFrame | None = None) -> list[bool]:
    """Which samples stay when copies go: of copies with one label the one on the first side, given or of the earlier manifest,
    else the first by name. Copies with different labels all stay: which of them is right is not ours to say.
    """
    found = find_copies(samples, contents)
    names, given = samples.frame["sample_id"].tolist(), samples.frame["split"].tolist()
    earlier = {} if previous is None else dict(zip(previous["sample_id"].tolist(), previous["split"].tolist(), strict=True))
    kept = [True] * len(samples)
    conflicting = {row for rows in found.conflicts for row in rows}
    for rows in (rows for rows in (*found.across, *found.plain) if rows[0] not in conflicting):
        sides = {row: given[row] or earlier.get(names[row], "") for row in rows}
        first = min(rows, key=lambda row: SIDES.index(sides[row]) if sides[row] in SIDES else len(SIDES))
        for row in rows:
            kept[row] = row == first
    return kept


def diagnose_copies(samples: Samples, contents: Sequence[str], *, failure_rate: float) -> list[Finding]:
    """What is said of copies. Those that spoil a score are errors of the data; up to the failure rate training can do without."""
    found, unscored = find_copies(samples, contents), find_unscored(samples, contents)
    rows = {one.row for one in unscored}
    share = len(rows.union(*found.conflicts)) / max(len(samples), 1)
    place = "within" if share <= failure_rate else "above"
    limit = f"{share:.1%} of all files are such copies, which is {place} the limit of {failure_rate:.0%}"
    told = [
        *_told(
            CONFLICT, samples, found.conflicts, "with different labels", "error", _unscored_text(found.conflicts, rows, limit)
        ),
        *_told(
            ACROSS, samples, found.across, "on several sides of the split", "error", _unscored_text(found.across, rows, limit)
        ),
        *_told(PLAIN, samples, found.plain, "with the same label, on the same side", "info", ""),
    ]
    return [replace(one, evidence={**one.evidence, "failed_share": round(share, 5), "limit_share": failure_rate}) for one in told]


_FIXES = {
    CONFLICT: "keep the copy with the right label",
    ACROSS: "keep one copy, or put all on one side",
    PLAIN: "keep one copy unless the weight is meant",
}


def _unscored_text(sets: list[list[int]], unscored: set[int], limit: str) -> str:
    left_out = sum(row in unscored for rows in sets for row in rows)
    return (f"; {format_count(left_out, 'file')} of val and test left out of the score" if left_out else "") + f"; {limit}"


def _told(code: str, samples: Samples, sets: list[list[int]], how: str, severity: Severity, ending: str) -> list[Finding]:
    if not sets:
        return []
    paths = samples.frame["path"].tolist()
    concerned = tuple(paths[row] for rows in sets for row in rows)
    return [
        Finding(
            code,
            f"{format_count(len(sets), 'image')} stored several times {how}: {list_some(_shown(samples, sets), limit=3)}{ending}",
            severity=severity,
            path=concerned[0],
            paths=concerned,
            evidence={"images": len(sets), "files": len(concerned), **_matter(code, samples, sets)},
            fix=_FIXES[code],
        )
    ]


def _shown(samples: Samples, sets: list[list[int]]) -> list[str]:
    """The sets in words: folders where many sets lie in the same ones, else files."""
    folders = _folders(samples)
    sizes = Counter(folders)
    places = [tuple(dict.fromkeys(folders[row] for row in rows)) for rows in sets]
    counts = Counter(place for place in places if len(place) > 1)
    alike = {place: count for place, count in counts.most_common() if count >= _ALIKE_SETS}
    shown = [
        f"folder {' = '.join(repr(folder) for folder in place)}, {count:,} of {max(sizes[folder] for folder in place):,}"
        for place, count in alike.items()
    ]
    names = samples.frame["sample_id"].tolist()
    single = (rows for rows, place in zip(sets, places, strict=True) if place not in alike)
    return shown + [" = ".join(repr(names[row]) for row in rows[:4]) for rows in single]


def _folders(samples: Samples) -> list[str]:
    """The folder of each sample, below the one that holds them all."""
    folders = [os.path.dirname(path) for path in samples.frame["path"].tolist()]  # noqa: PTH120 (text, for every file)
    common = os.path.commonpath(folders) if folders and len({is_url(folder) for folder in folders}) == 1 else ""
    return [folder[len(common) :].strip("/") or "." for folder in folders]


def _matter(code: str, samples: Samples, sets: Iterable[list[int]]) -> dict[str, list[list[str]]]:
    """For the first sets, what differs within them."""
    if code == PLAIN:
        return {}
    columns = samples.value_columns if code == CONFLICT else ("split",)
    frame = samples.frame[list(columns)]
    return {"differ": [sorted({str(cell) for cell in frame.iloc[rows].to_numpy().ravel()}) for rows in list(sets)[:10]]}
