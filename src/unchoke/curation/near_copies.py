"""Photos that are nearly the same, and whole folders that are: by features first, then by how they look.

In: the nearest rows of every photo, their small pictures, contents, labels, sides and folders. Out: pairs, sets of photos that
belong together, and findings. A set that a copied folder explains is not told again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from unchoke.core.units import format_count
from unchoke.curation.data_finding import DataFinding
from unchoke.curation.nearest import NearestRows, UnitRows, find_nearest
from unchoke.curation.photo_measures import LOOK_PX
from unchoke.data.corrections import DROP, GROUP, USE, Correction

_RULES = ((0.985, 0.3), (0.95, 0.6), (0.92, 0.72), (0.9, 0.85))
"""Looks that agree so well, and features that do: any of these pairs is enough. Of photos that were scaled down to a third,
features differ far more than looks; of photos that were cut, looks do.
"""
_NEAREST_LOOKS = 4
_BLOCK = 2048
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


@dataclass(frozen=True, eq=False)
class CopyPairs:
    """Pairs of rows that show the same, the first below the second, with the cosine of features and the agreement of looks."""

    rows: NDArray[np.int64]
    cosines: NDArray[np.float32]
    looks: NDArray[np.float32]


def find_pairs(
    feats_nd: NDArray[np.float16], nearest: NearestRows, looks: NDArray[np.uint8], contents: Sequence[str]
) -> CopyPairs:
    """Pairs alike in features and in looks; files with the same bytes are one, whatever else they are.

    Candidates are the nearest by features and the nearest by looks.
    """
    by_look = find_nearest(_as_features(looks), num=_NEAREST_LOOKS)
    pairs = np.unique(np.concatenate([_candidates(nearest, _RULES[1][1]), _candidates(by_look, _RULES[1][0])]), axis=0)
    cosines = UnitRows(feats_nd).cosines(pairs)
    pairs, cosines = pairs[cosines >= _RULES[0][1]], cosines[cosines >= _RULES[0][1]]
    agreement = compare_looks(looks, pairs)
    alike = np.zeros(len(pairs), bool)
    for least_look, least_cosine in _RULES:
        alike |= (agreement >= least_look) & (cosines >= least_cosine)
    same = _same_bytes(contents)
    rows = np.concatenate([pairs[alike], same])
    ones = np.ones(len(same), np.float32)
    return CopyPairs(rows, np.concatenate([cosines[alike], ones]), np.concatenate([agreement[alike], ones]))


def _candidates(nearest: NearestRows, least: float) -> NDArray[np.int64]:
    near = nearest.cosines >= least
    left, right = np.repeat(np.arange(len(near)), near.sum(axis=1)), nearest.rows[near]
    return np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1)


def _as_features(looks: NDArray[np.uint8]) -> NDArray[np.float16]:
    """Small pictures as rows, each without its own light and contrast."""
    found = np.empty((len(looks), looks[0].size if len(looks) else 1), np.float16)
    for start in range(0, len(looks), _BLOCK):
        rows = looks[start : start + _BLOCK].reshape(-1, found.shape[1]).astype(np.float32)
        rows -= rows.mean(axis=1, keepdims=True)
        found[start : start + _BLOCK] = rows / np.maximum(rows.std(axis=1, keepdims=True), 1.0)
    return found


def _same_bytes(contents: Sequence[str]) -> NDArray[np.int64]:
    """Each row with the first one of the same content."""
    first: dict[str, int] = {}
    pairs = [(first.setdefault(content, row), row) for row, content in enumerate(contents) if content]
    return np.array([pair for pair in pairs if pair[0] != pair[1]], np.int64).reshape(-1, 2)


def join_pairs(pairs: NDArray[np.int64]) -> list[list[int]]:
    """Sets of rows that hang together, each in order."""
    parent: dict[int, int] = {}

    def root(row: int) -> int:
        while (above := parent.setdefault(row, row)) != row:
            parent[row] = parent[above]
            row = above
        return row

    for left, right in pairs.tolist():
        first, second = sorted((root(left), root(right)))
        parent[second] = first
    members: dict[int, list[int]] = defaultdict(list)
    for row in sorted(parent):
        members[root(row)].append(row)
    return list(members.values())


def find_copies_of(pairs: CopyPairs, facts: CopyFacts) -> list[DataFinding]:
    """Copied folders first, each in one finding; then sets of photos that they do not explain."""
    sets = join_pairs(pairs.rows)
    folders = copied_folders(sets, facts.folders)
    found = [_folder_finding(one, facts) for one in folders]
    explained = {row for one in folders for row in one.copies}
    worst: dict[int, tuple[float, float]] = {}
    for (row, other), cosine, look in zip(pairs.rows.tolist(), pairs.cosines.tolist(), pairs.looks.tolist(), strict=True):
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


Looks = NDArray[np.float32]
_CUTS = (0.03, 0.06, 0.1)
_SURE, _HOPELESS = 0.985, 0.3
_CHUNK = 4096


def compare_looks(looks: NDArray[np.uint8], pairs: NDArray[np.int64]) -> NDArray[np.float32]:
    """The best agreement of each pair of rows, from -1 to 1."""
    found = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _CHUNK):
        part = pairs[start : start + _CHUNK]
        left, right = (looks[part[:, side]].astype(np.float32) for side in (0, 1))
        found[start : start + len(part)] = _agreement(left, right)
    return found


def _agreement(left: Looks, right: Looks) -> NDArray[np.float32]:
    whole = (_normed(left), _normed(right))
    best: NDArray[np.float32] = (whole[0] * whole[1]).sum(axis=(1, 2))
    open_ = np.flatnonzero((best < _SURE) & (best > _HOPELESS))
    if not len(open_):
        return best
    for shown, other in ((left, whole[1]), (right, whole[0])):
        for rows, columns in _windows():
            cut = _normed((rows @ shown[open_] @ columns.T).astype(np.float32))
            best[open_] = np.maximum(best[open_], (cut * other[open_]).sum(axis=(1, 2)))
    return best


def _normed(looks: Looks) -> Looks:
    """Without their mean, and of length one; a plain surface agrees with nothing."""
    centred = looks - looks.mean(axis=(1, 2), keepdims=True)
    length = np.sqrt((centred**2).sum(axis=(1, 2), keepdims=True))
    found: Looks = np.where(length > LOOK_PX, centred / np.maximum(length, 1e-6), 0.0).astype(np.float32)
    return found


@cache
def _windows() -> tuple[tuple[Looks, Looks], ...]:
    """Resampling of rows and columns that shows a part of a picture at its full size."""
    shown = []
    for cut in _CUTS:
        ways = [_resampling(cut, offset) for offset in (0.0, 0.5, 1.0)]
        shown += list(product(ways, ways))
    return tuple(shown)


def _resampling(cut: float, offset: float) -> Looks:
    """A matrix that stretches what is left after `cut` of the length is gone, `offset` of it at the beginning."""
    centres = (np.arange(LOOK_PX) + 0.5) * (1 - cut) + offset * cut * LOOK_PX - 0.5
    below = np.clip(np.floor(centres).astype(int), 0, LOOK_PX - 2)
    share = np.clip(centres - below, 0, 1)
    found = np.zeros((LOOK_PX, LOOK_PX), np.float32)
    found[np.arange(LOOK_PX), below] = 1 - share
    found[np.arange(LOOK_PX), below + 1] += share
    return found
