"""Predicted patches to one picture of any size, in memory that does not grow with it.

In: a `StitchPlan` and something that predicts patches. Out: finished rectangles of the picture, one after the other. The picture
is cut into column strips, and each strip is swept from top to bottom in row bands; only the sums of one band, and of the rows its
patches reach into the next one, are held. A patch that lies across two strips is predicted for each of them: with strips of
4,096 px, patches of 256 px and an overlap of 64 px that is about 5 % more work, with narrower strips (many classes) more.

A pixel is the sum of share × value over the patches that cover it, row by row and from left to right, whatever the strips and
bands are: other plans and a sweep that was interrupted give the same bits. The weights are separable, so shares are worked out
for one axis at a time and multiplied. A value that is not a number (where a patch has nothing to say) makes its pixel none.
Nothing is read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, islice

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box, plan_starts

BandValues = NDArray[np.float32]
Predict = Callable[[list[Box]], BandValues]
"""Patches to their values (n, C, p, p). A patch may reach beyond the picture; what it says there is dropped."""

BLOCK_PX = 512
LIMIT_BYTES = 64 * 2**20
_WIDEST_STRIP_PX = 8 * BLOCK_PX
_FLOAT_BYTES = 4
_HELD_SUMS = 2  # those of a band at work, and those of the finished one that the caller still looks at


@dataclass(frozen=True)
class StitchPlan:
    """A picture, the patches that cover it, and the strips and bands it is put together in."""

    height: int
    width: int
    patch_px: int
    overlap_px: int
    num_classes: int
    strip_px: int
    band_px: int

    @property
    def block_px(self) -> int:
        """The largest square block, up to `BLOCK_PX`, of which every band that is not at the rim is made."""
        return math.gcd(BLOCK_PX, self.strip_px, self.band_px)

    @property
    def held_bytes(self) -> int:
        """What stitching holds at most, besides one batch of predictions."""
        return _HELD_SUMS * self.num_classes * (self.band_px + self.patch_px) * self.strip_px * _FLOAT_BYTES

    def bands(self) -> list[Box]:
        """Every rectangle that is finished at once, in the order they are finished: strip by strip, from top to bottom."""
        return [
            Box(top, left, self.band_px, self.strip_px).within(self.height, self.width)
            for left in range(0, self.width, self.strip_px)
            for top in range(0, self.height, self.band_px)
        ]

    def patches(self, bands: Sequence[Box]) -> Iterator[Box]:
        """The patches that cover some `bands` of one strip, row by row; those at the rim reach beyond the picture."""
        strip = bands[0]
        tops = [top for top in self._tops if any(top < band.bottom and top + self.patch_px > band.top for band in bands)]
        lefts = [left for left in self._lefts if left < strip.right and left + self.patch_px > strip.left]
        return (Box(top, left, self.patch_px, self.patch_px) for top in tops for left in lefts)

    def shares(self, patch: Box) -> tuple[BandValues, BandValues]:
        """The patch's share in each of its rows, and in each of its columns."""
        step = self.patch_px - self.overlap_px
        return self._row_shares[patch.top // step], self._column_shares[patch.left // step]

    @cached_property
    def _tops(self) -> list[int]:
        return plan_starts(self.height, self.patch_px, self.overlap_px)

    @cached_property
    def _lefts(self) -> list[int]:
        return plan_starts(self.width, self.patch_px, self.overlap_px)

    @cached_property
    def _row_shares(self) -> BandValues:
        return blend_shares(self._tops, patch_px=self.patch_px, overlap_px=self.overlap_px)

    @cached_property
    def _column_shares(self) -> BandValues:
        return blend_shares(self._lefts, patch_px=self.patch_px, overlap_px=self.overlap_px)


def plan_stitch(
    height: int, width: int, *, patch_px: int, overlap_px: int, num_classes: int, limit_bytes: int = LIMIT_BYTES
) -> StitchPlan:
    """Bands of whole blocks of `BLOCK_PX` (half of that for many classes), in strips as wide as `limit_bytes` of sums allow.

    No strip is wider than 4,096 px, so that larger pictures take no more memory; none is narrower than a block, which for very
    many classes takes more than the limit.
    """
    usual, low = (
        StitchPlan(height, width, patch_px, overlap_px, num_classes, strip_px, band_px)
        for band_px in (BLOCK_PX, BLOCK_PX // 2)
        for strip_px in [_widest_px(band_px, patch_px, num_classes, limit_bytes)]
    )
    return usual if usual.strip_px >= _WIDEST_STRIP_PX // 2 else low


def _widest_px(band_px: int, patch_px: int, num_classes: int, limit_bytes: int) -> int:
    column_bytes = _HELD_SUMS * num_classes * (band_px + patch_px) * _FLOAT_BYTES
    return min(_WIDEST_STRIP_PX, max(1, limit_bytes // column_bytes // band_px) * band_px)


def stitch(
    plan: StitchPlan, predict: Predict, *, batch: int, done: Callable[[Box], bool] | None = None
) -> Iterator[tuple[Box, BandValues]]:
    """Each band that is not `done` yet, with its values (C, h, w). `predict` is given up to `batch` patches at a time.

    Patches that reach from a band that is done into one that is not are predicted again.
    """
    todo = [band for band in plan.bands() if done is None or not done(band)]
    return blend_patches(plan, todo, ((patches, predict(patches)) for patches in plan_batches(plan, todo, batch=batch)))


def plan_batches(plan: StitchPlan, todo: Sequence[Box], *, batch: int) -> Iterator[list[Box]]:
    """The patches that the bands in `todo` need, in the order they are blended in, up to `batch` at a time."""
    patches = chain.from_iterable(plan.patches(bands) for bands in _by_strip(todo))
    while some := list(islice(patches, batch)):
        yield some


def count_patches(plan: StitchPlan, todo: Sequence[Box]) -> int:
    """How many patches the bands in `todo` need; one across two strips counts for each."""
    return sum(1 for bands in _by_strip(todo) for _ in plan.patches(bands))


def blend_patches(
    plan: StitchPlan, todo: Sequence[Box], predictions: Iterable[tuple[list[Box], BandValues]]
) -> Iterator[tuple[Box, BandValues]]:
    """The bands in `todo` with their values, from the predictions of the patches that `plan_batches` named, in that order."""
    predicted = ((patch, value) for patches, values in predictions for patch, value in zip(patches, values, strict=True))
    for bands in _by_strip(todo):
        yield from _sweep(plan, bands, predicted)


def _by_strip(todo: Sequence[Box]) -> Iterator[list[Box]]:
    return (list(bands) for _, bands in groupby(todo, key=lambda band: band.left))


def _sweep(plan: StitchPlan, bands: list[Box], predicted: Iterator[tuple[Box, BandValues]]) -> Iterator[tuple[Box, BandValues]]:
    """One strip from top to bottom: a band is finished when the next patch begins below it."""
    waiting = iter(bands)
    sums = _Sums(plan, next(waiting))
    for patch in plan.patches(bands):
        while patch.top >= sums.band.bottom:
            yield sums.band, sums.finished
            sums = _Sums(plan, next(waiting), before=sums)
        given, value = next(predicted)
        if given != patch:
            raise ValueError(f"{patch} was to be blended, and {given} was predicted")
        sums.add(patch, value)
    yield sums.band, sums.finished
    for band in waiting:  # reached by patches that begin above them alone
        sums = _Sums(plan, band, before=sums)
        yield sums.band, sums.finished


class _Sums:
    """The sums of one band, and of the rows below it that its patches reach."""

    def __init__(self, plan: StitchPlan, band: Box, *, before: _Sums | None = None) -> None:
        self.band = band
        self._plan = plan
        self._area = Box(band.top, band.left, band.height + plan.patch_px, band.width).within(plan.height, plan.width)
        self._values = np.zeros((plan.num_classes, self._area.height, self._area.width), np.float32)
        if before is not None and (both := self._area.common(before._area)):
            self._values[:, *both.slices_in(self._area)] = before._values[:, *both.slices_in(before._area)]

    @property
    def finished(self) -> BandValues:
        return self._values[:, : self.band.height]

    def add(self, patch: Box, value: BandValues) -> None:
        """The part of a patch that lies here, weighed by its shares."""
        both = self._area.common(patch)
        if both is not None:
            (rows, columns), (down, across) = self._plan.shares(patch), both.slices_in(patch)
            weights = rows[down, None] * columns[across]
            self._values[:, *both.slices_in(self._area)] += value[:, down, across] * weights


def blend_profile(patch_px: int, overlap_px: int) -> NDArray[np.float64]:
    """The window along one axis: it rises as a raised cosine over the overlap, stays at one, and falls again; never zero."""
    if not 0 <= overlap_px < patch_px:
        raise ValueError(f"patches of {patch_px} px cannot share {overlap_px}")
    profile = np.ones(patch_px)
    if overlap_px:
        ramp = np.sin(np.pi / 2 * (np.arange(overlap_px) + 0.5) / overlap_px) ** 2
        profile[:overlap_px] *= ramp
        profile[patch_px - overlap_px :] *= ramp[::-1]
    return profile


def blend_window(patch_px: int, overlap_px: int) -> NDArray[np.float32]:
    """The weight of each pixel of a patch (p, p): most in the middle, least at the rim, where a network sees one side only."""
    profile = blend_profile(patch_px, overlap_px)
    return np.outer(profile, profile).astype(np.float32)


def blend_shares(starts: Sequence[int], *, patch_px: int, overlap_px: int) -> NDArray[np.float32]:
    """What share of a pixel each patch has along one axis: (number of patches, p). Shares of one pixel add up to one.

    Where one patch alone covers a pixel its share is exactly one, so that its values pass through unchanged.
    """
    profile = blend_profile(patch_px, overlap_px)
    total = np.zeros(max(starts) + patch_px)
    for start in starts:
        total[start : start + patch_px] += profile
    return np.stack([profile / total[start : start + patch_px] for start in starts]).astype(np.float32)
