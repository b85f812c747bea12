"""Photos that are nearly the same: resized, recompressed, brighter, mirrored or cropped copies, found by how they look.

In: small grey pictures of the photos, and what is known of their neighbours in feature space. Out: pairs. Candidates are the
nearest by looks, mirrored or not, and by features. Each is checked by the correlation of details (a band of frequencies): once as
they are, and once without what the photos of this data have in common, so that X-rays of two people are no copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.features.nearest import NearestRows, find_nearest
from unchoke.pixels.image import DecodeError, Pixels, decode_image, read_bytes
from unchoke.pixels.resize import resize

LOOK_PX = 64
_GREY = np.array([0.299, 0.587, 0.114], np.float32)
NEAREST = 4
_SMALL_PX = 16
_BLOCK = 1024
_ALIKE, _ALIKE_APART = 0.9, 0.75
"""Least correlation of details: as they are, and without what is common to the data (benches/bench_curate.py, copies)."""
_LEAST_LOOK = 0.6
_LEAST_COSINE, _LEAST_PROFILE, _LOOK_ALIKE, _CROPPED = 0.7, 1.2, 0.9, 0.88
_MOST_COMMON, _COMMON_ROWS = 64, 4096
_CUTS = np.arange(0.01, 0.161, 0.01)
Looks = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class CopyPairs:
    """Pairs of rows that show the same, the first below the second, with the agreement of their looks, from -1 to 1."""

    rows: NDArray[np.int64]
    looks: NDArray[np.float32]


def make_look(image_hwc: Pixels) -> Looks:
    """A small grey picture, stretched to a square."""
    look: Looks = (
        (resize(image_hwc, LOOK_PX, LOOK_PX, interpolation="bilinear").astype(np.float32) @ _GREY).round().astype(np.uint8)
    )
    return look


def read_looks(paths: Sequence[str], *, threads: int) -> Looks:
    """The look of every photo; of one that cannot be read it is black, and like no other."""

    def read(path: str) -> Looks:
        try:
            return make_look(decode_image(read_bytes(path), cover_px=LOOK_PX))
        except DecodeError:
            return np.zeros((LOOK_PX, LOOK_PX), np.uint8)

    looks = np.empty((len(paths), LOOK_PX, LOOK_PX), np.uint8)
    for row, look in enumerate(map_ahead(read, paths, threads=threads, ahead=4 * threads)):
        looks[row] = look
    return looks


def find_pairs(looks: Looks, contents: Sequence[str], nearest: NearestRows | None) -> CopyPairs:
    """Pairs alike in their details; files with the same bytes are one, whatever else they are. `nearest` are those by features,
    without which cropped copies are not looked for.
    """
    same = _same_bytes(contents)
    if len(looks) < 2:
        return CopyPairs(same, np.ones(len(same), np.float32))
    pairs = _ordered(find_nearest(_unmirrored(looks), num=NEAREST), least=_LEAST_LOOK)
    cropped = np.empty((0, 2), np.int64)
    if nearest is not None:
        first = NearestRows(nearest.rows[:, :NEAREST], nearest.cosines[:, :NEAREST])
        cropped = _ordered(first, least=_LEAST_COSINE)
        pairs = np.unique(np.concatenate([pairs, cropped]), axis=0)
    details = _Details(looks)
    agreement, alike = details.compare(pairs)
    # Photos that agree as they are, and yet are no copies, look alike: no part of one says more about them.
    settled = {tuple(pair) for pair in pairs[agreement >= _LOOK_ALIKE].tolist()}
    cropped = np.array([pair for pair in cropped.tolist() if tuple(pair) not in settled], np.int64).reshape(-1, 2)
    inside = details.compare_cropped(cropped)
    rows = np.concatenate([pairs[alike], cropped[inside >= _CROPPED], same])
    found = np.concatenate([agreement[alike], inside[inside >= _CROPPED], np.ones(len(same), np.float32)])
    return CopyPairs(rows, found)


def _ordered(nearest: NearestRows, *, least: float) -> NDArray[np.int64]:
    near = nearest.cosines >= least
    left, right = np.repeat(np.arange(len(near)), near.sum(axis=1)), nearest.rows[near]
    return np.unique(np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1), axis=0)


def _unmirrored(looks: Looks) -> NDArray[np.float16]:
    """Rows that are the same for a picture and its mirror image: what is symmetric, and how far the rest is from it."""
    step = LOOK_PX // _SMALL_PX
    small = looks.reshape(len(looks), _SMALL_PX, step, _SMALL_PX, step).mean(axis=(2, 4), dtype=np.float32)
    small -= small.mean(axis=(1, 2), keepdims=True)
    small /= np.maximum(small.std(axis=(1, 2), keepdims=True), 1.0)
    left, right = small[:, :, : _SMALL_PX // 2], small[:, :, : _SMALL_PX // 2 - 1 : -1]
    found: NDArray[np.float16] = (
        np.concatenate([left + right, np.abs(left - right)], axis=2).reshape(len(looks), -1).astype(np.float16)
    )
    return found


class _Details:
    """Looks without their light and their coarse shapes, and without what is common to all of them."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        some = self._detail(np.arange(0, len(looks), max(1, len(looks) // _COMMON_ROWS)))
        self._mean = some.mean(dim=0)
        num = min(_MOST_COMMON, len(some) // 20)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._common = torch.svd_lowrank(some - self._mean, q=num)[2] if num else some.new_zeros(some.shape[1], 0)

    def _shown(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(self._looks[rows].astype(np.float32))

    def _detail(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return _unit(_band(self._shown(rows)))

    def compare(self, pairs: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """How well details agree, the second picture as it is or mirrored, and whether that makes them copies."""
        found, alike = np.empty(len(pairs), np.float32), np.zeros(len(pairs), bool)
        for start in range(0, len(pairs), _BLOCK):
            part = slice(start, start + _BLOCK)
            left, right = self._detail(pairs[part, 0]), self._detail(pairs[part, 1])
            mirrored = right.reshape(-1, LOOK_PX, LOOK_PX).flip(2).flatten(1)
            whole, how = torch.stack([(left * one).sum(dim=1) for one in (right, mirrored)]).max(dim=0)
            near = torch.nonzero(whole >= _ALIKE).flatten()
            other = torch.where(how[near, None] == 0, right[near], mirrored[near])
            apart = (self._apart(left[near]) * self._apart(other)).sum(dim=1)
            found[part] = whole.numpy()
            alike[start + near[apart >= _ALIKE_APART].numpy()] = True
        return found, alike

    def _apart(self, details: torch.Tensor) -> torch.Tensor:
        rest = details - self._mean
        return torch.nn.functional.normalize(rest - (rest @ self._common) @ self._common.T)

    def compare_cropped(self, pairs: NDArray[np.int64]) -> NDArray[np.float32]:
        """How well details agree where one picture shows a part of the other."""
        found = np.full(len(pairs), -1.0, np.float32)
        for start in range(0, len(pairs), _BLOCK):
            part = pairs[start : start + _BLOCK]
            one, other = self._shown(part[:, 0]), self._shown(part[:, 1])
            found[start : start + _BLOCK] = torch.maximum(self._inside(one, other), self._inside(other, one)).numpy()
        return found

    def _inside(self, whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """The windows of `whole` whose rows and columns have the profile of `part`; then how well these windows agree with it."""
        windows = _windows()
        scores = []
        for axis in (2, 1):
            cut = torch.einsum("kij,nj->nki", windows, whole.mean(dim=axis))
            scores.append((_profile(cut) * _profile(part.mean(dim=axis))[:, None]).sum(dim=2).topk(2, dim=1))
        found = torch.full((len(whole),), -1.0)
        open_ = torch.nonzero(scores[0].values[:, 0] + scores[1].values[:, 0] >= _LEAST_PROFILE).flatten()
        goal = _unit(_even(_band(part[open_])))
        for rows in range(2):
            for columns in range(2):
                across, down = (windows[scores[at].indices[open_, place]] for at, place in ((1, columns), (0, rows)))
                shown = _unit(_even(_band(down @ whole[open_] @ across.transpose(1, 2))))
                found[open_] = torch.maximum(found[open_], (shown * goal).sum(dim=1))
        return found


def _band(shown: torch.Tensor) -> torch.Tensor:
    """Details of a few pixels: neither noise nor light."""
    fine, coarse = _blur(1.0), _blur(4.0)
    return fine @ shown @ fine.T - coarse @ shown @ coarse.T


def _even(details: torch.Tensor) -> torch.Tensor:
    """Strong lines count no more than fine texture: two pictures in the same frame are not the same picture."""
    around = _blur(4.0) @ details.abs() @ _blur(4.0).T
    evened: torch.Tensor = 20 * details / (around + 2.0)
    return evened


def _unit(shown: torch.Tensor) -> torch.Tensor:
    """As rows of length one; a plain surface agrees with nothing."""
    rows = shown.flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    unit: torch.Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=LOOK_PX / 4)
    return unit


def _profile(lines: torch.Tensor) -> torch.Tensor:
    rest = lines @ (_blur(1.0) - _blur(6.0)).T
    return torch.nn.functional.normalize(rest - rest.mean(dim=-1, keepdim=True), dim=-1)


@cache
def _blur(sigma: float) -> torch.Tensor:
    """A matrix that blurs columns, with edges continued."""
    place = torch.arange(LOOK_PX, dtype=torch.float32)
    found = torch.exp(-((place[:, None] - place) ** 2) / (2 * sigma**2))
    blur: torch.Tensor = found / found.sum(dim=1, keepdim=True)
    return blur


@cache
def _windows() -> torch.Tensor:
    """Matrices that stretch a part of a line to its full length: what is left when 1 to 16 % are cut off, wherever."""
    found = [np.eye(LOOK_PX, dtype=np.float32)]
    for cut in _CUTS:
        for offset in (0.0, 0.25, 0.5, 0.75, 1.0):
            centres = (np.arange(LOOK_PX) + 0.5) * (1 - cut) + offset * cut * LOOK_PX - 0.5
            below = np.clip(np.floor(centres).astype(int), 0, LOOK_PX - 2)
            share = np.clip(centres - below, 0, 1).astype(np.float32)
            window = np.zeros((LOOK_PX, LOOK_PX), np.float32)
            window[np.arange(LOOK_PX), below] = 1 - share
            window[np.arange(LOOK_PX), below + 1] = share
            found.append(window)
    return torch.from_numpy(np.stack(found))


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
