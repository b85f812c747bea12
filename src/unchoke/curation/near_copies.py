"""Photos that are nearly the same, and whole folders that are, as findings.

In: pairs (features/near_copies.py), and contents, labels, splits and folders of the photos. Out: findings. A set that a copied
folder explains is not told again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unchoke.core.units import format_count
from unchoke.curation.data_finding import DataFinding
from unchoke.data.corrections import DROP, GROUP, USE, Correction
from unchoke.features.near_copies import CopyPairs, join_pairs

_FOLDER_SHARE, _FEWEST_IN_FOLDER = 0.9, 5
_SCORES = {"copies-labels": 0.97, "copies-torn": 0.8, "copies": 0.4}


@dataclass(frozen=True)
class CopyFacts:
    """What is known of each photo, row for row; `labels` are texts, also of values."""

    ids: Sequence[str]
    labels: Sequence[str]
    sides: Sequence[str]
    folders: Sequence[str]
    groups: Sequence[str]
    contents: Sequence[str]
    pixels: Sequence[int]


def find_copies_of(pairs: CopyPairs, cosines: NDArray[np.float32], facts: CopyFacts) -> list[DataFinding]:
    """Copied folders first, each in one finding; then sets of photos that they do not explain."""
    sets = join_pairs(pairs.rows)
    folders = copied_folders(sets, facts.folders)
    found = [_folder_finding(one, facts) for one in folders]
    explained = {row for one in folders for row in one.copies}
    worst: dict[int, tuple[float, float]] = {}
    for (row, other), cosine, look in zip(pairs.rows.tolist(), cosines.tolist(), pairs.looks.tolist(), strict=True):
        for one in (row, other):
            worst[one] = min(worst.get(one, (2.0, 2.0)), (cosine, look))
    for rows in sets:
        left = [row for row in rows if row not in explained]
        if len(left) > 1:
            found.append(_set_finding(left, facts, min(worst[row] for row in left)))
    return found


@dataclass(frozen=True)
class FolderCopy:
    """Folders whose photos have copies in `original`: their names, the rows that do, and how many photos they hold."""

    original: str
    folders: tuple[str, ...]
    copies: tuple[int, ...]
    num_photos: int


def copied_folders(sets: Iterable[Sequence[int]], folder_of: Sequence[str]) -> list[FolderCopy]:
    """Folders of which nearly all photos have a copy in one other folder; of folders that hold one another, all but the first."""
    shared: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rows in sets:
        inside = {folder_of[row] for row in rows}
        for row in rows if len(inside) > 1 else ():
            for other in inside - {folder_of[row]}:
                shared[folder_of[row], other].append(row)
    sizes = Counter(folder_of)
    within = {pair: rows for pair, rows in shared.items() if len(rows) >= max(_FEWEST_IN_FOLDER, _FOLDER_SHARE * sizes[pair[0]])}
    originals: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    taken: set[str] = set()
    for copy, original in sorted(within, key=lambda pair: (pair[1], pair[0])):
        mutual = (original, copy) in within
        if copy in taken or original in taken or (mutual and copy < original):
            continue
        taken.add(copy)
        originals[original].append((copy, within[copy, original]))
    return [
        FolderCopy(
            original,
            tuple(copy for copy, _ in copies),
            tuple(row for _, rows in copies for row in rows),
            sum(sizes[copy] for copy, _ in copies),
        )
        for original, copies in originals.items()
    ]


def _folder_finding(one: FolderCopy, facts: CopyFacts) -> DataFinding:
    folders = [repr(folder) for folder in one.folders]
    subject = f"Folder {folders[0]} is a copy" if len(folders) == 1 else f"Folders {' and '.join(folders)} are copies"
    message = f"{subject} of {one.original!r}: {len(one.copies):,} of {one.num_photos:,}"
    inside = [row for row, folder in enumerate(facts.folders) if folder == one.original]
    labels = {facts.labels[row] for row in inside}
    others = sorted({facts.labels[row] for row in one.copies} - labels)
    if others:
        message += f", under other labels ({', '.join(map(repr, others[:3]))})"
    evidence = {"original": one.original, "folders": list(one.folders), "copies": len(one.copies), "photos": one.num_photos}
    photos = tuple(facts.ids[row] for row in one.copies)
    return DataFinding(
        "folder-copy",
        message,
        photos,
        0.99,
        evidence | {"other_labels": others},
        tuple(Correction(id_, USE, DROP) for id_ in photos),
    )


def _set_finding(rows: list[int], facts: CopyFacts, least: tuple[float, float]) -> DataFinding:
    """One set; the photo with the most pixels is the one to keep."""
    kept = max(rows, key=lambda row: (facts.pixels[row], -row))
    rows = [kept, *(row for row in rows if row != kept)]
    labels, sides = sorted({facts.labels[row] for row in rows}), sorted({facts.sides[row] for row in rows} - {""})
    one_group = len({facts.groups[row] or f"photo {row}" for row in rows}) == 1
    kind = "copies-labels" if len(labels) > 1 else "copies-torn" if len(sides) > 1 else "copies"
    ids = tuple(facts.ids[row] for row in rows)
    same_bytes = len({facts.contents[row] for row in rows}) == 1
    how = "the same file" if same_bytes else "nearly the same photo"
    where = {
        "copies-labels": f"labelled {' and '.join(map(repr, labels[:3]))}",
        "copies-torn": f"in the splits {', '.join(sides)}",
        "copies": f"labelled {labels[0]!r}" if labels[0] else "of one split",
    }[kind]
    message = f"{how}, {format_count(len(ids), 'time')}, {where}: {', '.join(map(repr, ids[:3]))}"
    message += f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    evidence = {
        "labels": labels,
        "sides": sides,
        "cosine": round(least[0], 4),
        "look": round(least[1], 4),
        "same_bytes": same_bytes,
    }
    if kind == "copies-torn" and not one_group:
        suggested = tuple(Correction(one, GROUP, ids[0]) for one in ids[1:])
    else:
        suggested = tuple(Correction(one, USE, DROP) for one in ids[1:])
    return DataFinding(kind, message, ids, _SCORES[kind] + (0.01 if same_bytes else 0.0), evidence, suggested)
