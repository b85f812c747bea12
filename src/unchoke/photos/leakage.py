"""Images that are the same, and groups that lie on several sides: what would make a test figure dishonest. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding, Severity
from unchoke.core.units import format_count
from unchoke.photos.samples.sample_set import Samples


def diagnose_duplicates(samples: Samples, contents: Sequence[str]) -> list[Finding]:
    """Samples with the same bytes: labelled differently, on several sides, or merely repeated."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, content in enumerate(contents):
        if content:
            rows_of[content].append(row)
    sets = [rows for rows in rows_of.values() if len(rows) > 1]
    if not sets:
        return []
    values = list(zip(*(samples.frame[name].tolist() for name in samples.value_columns), strict=True))
    splits = samples.frame["split"].tolist()
    conflicting = [len({values[row] for row in rows}) > 1 for rows in sets]
    leaking = [len({splits[row] for row in rows} - {""}) > 1 for rows in sets]
    conflicts = list(compress(sets, conflicting))
    leaks = list(compress(sets, leaking))
    plain = [rows for rows, bad, worse in zip(sets, conflicting, leaking, strict=True) if not bad and not worse]
    return [
        *_same(
            "duplicate-label-conflict", samples, conflicts, "with different labels", "error", "keep the copy with the right label"
        ),
        *_same(
            "duplicate-across-splits",
            samples,
            leaks,
            "on several sides of the split",
            "error",
            "keep one copy, or put all on one side",
        ),
        *_same(
            "duplicate-images",
            samples,
            plain,
            "with the same label, on the same side",
            "info",
            "keep one copy unless the weight is meant",
        ),
    ]


def _same(code: str, samples: Samples, sets: list[list[int]], how: str, severity: Severity, fix: str) -> list[Finding]:
    if not sets:
        return []
    names, paths = samples.frame["sample_id"].tolist(), samples.frame["path"].tolist()
    shown = [" = ".join(repr(names[row]) for row in rows[:4]) for rows in sets]
    concerned = tuple(paths[row] for rows in sets for row in rows)
    return [
        Finding(
            code,
            f"{format_count(len(sets), 'image')} stored several times {how}: {list_some(shown, limit=3)}",
            severity=severity,
            path=concerned[0],
            paths=concerned,
            evidence={"images": len(sets), "files": len(concerned), **_matter(code, samples, sets)},
            fix=fix,
        )
    ]


def _matter(code: str, samples: Samples, sets: Iterable[list[int]]) -> dict[str, list[list[str]]]:
    """For the first sets, what differs within them."""
    if code == "duplicate-images":
        return {}
    columns = samples.value_columns if code == "duplicate-label-conflict" else ("split",)
    frame = samples.frame[list(columns)]
    return {"differ": [sorted({str(cell) for cell in frame.iloc[rows].to_numpy().ravel()}) for rows in list(sets)[:10]]}


def diagnose_groups(samples: Samples) -> list[Finding]:
    """Groups whose samples lie on several sides of the split."""
    sides: dict[str, set[str]] = defaultdict(set)
    for group, split in zip(samples.frame["group"].tolist(), samples.frame["split"].tolist(), strict=True):
        if group and split:
            sides[group].add(split)
    torn = sorted(group for group, splits in sides.items() if len(splits) > 1)
    if not torn:
        return []
    paths = tuple(samples.frame.loc[samples.frame["group"].isin(torn), "path"].tolist())
    whose = f"{format_count(len(torn), 'group')} of {samples.group_name or 'group'!r}"
    return [
        Finding(
            "group-leakage",
            f"{whose} on several sides of the split: {list_some([repr(group) for group in torn])}",
            severity="error",
            path=paths[0],
            paths=paths,
            evidence={"groups": len(torn), "of": len(sides), "sides": {group: sorted(sides[group]) for group in torn[:10]}},
            fix="put all samples of a group on one side, or leave --split out and give --group to have it done",
        )
    ]
