"""Intervals of shares that hold for small samples: Wilson's, and those of means of several shares.

In: hits and totals, for each class or for each unit (a photo, or a group of photos that are alike). Out: 95 % limits. Nothing is
drawn at random. Why these and not others: docs/claims.md has their coverage, measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Z = 1.959963984540054
"""The quantile of the normal distribution that leaves 2.5 % above it."""
_STUDENT = {1: 12.706205, 2: 4.302653, 3: 3.182446}


def wilson(shares: Any, sizes: Any) -> tuple[Numbers, Numbers]:
    """Wilson's score interval of shares, each seen in so many trials; sizes need not be whole. 14 of 14 is 0.785 to 1."""
    p, n = np.asarray(shares, dtype=np.float64), np.maximum(np.asarray(sizes, dtype=np.float64), 1e-9)
    centre = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return np.minimum(np.maximum(centre - half, 0), p), np.maximum(np.minimum(centre + half, 1), p)


def mean_limits(shares: Numbers, lows: Numbers, highs: Numbers) -> tuple[float, float]:
    """Limits of a mean of independent shares from the limits of each: squared distances add up (Zou and Donner's MOVER)."""
    count, mean = len(shares), float(shares.mean())
    low = mean - float(np.sqrt(((shares - lows) ** 2).sum())) / count
    high = mean + float(np.sqrt(((highs - shares) ** 2).sum())) / count
    return max(0.0, low), min(1.0, high)


def effective_sizes(hits: Any, totals: Any) -> Numbers:
    """For shares Σ hits / Σ totals over units (rows), columns apart: how many independent trials they are worth.

    Units of one trial each are worth themselves. Else the spread between units says how alike trials of one unit are (Korn and
    Graubard); where it says nothing, because all or none were hits, a unit counts once.
    """
    h, t = (np.asarray(counts, dtype=np.float64) for counts in (hits, totals))
    total = t.sum(axis=0)
    if t.max(initial=0) <= 1:
        return np.asarray(total)
    p = h.sum(axis=0) / np.maximum(total, 1)
    units = (t > 0).sum(axis=0)
    spread = units / np.maximum(units - 1, 1) * ((h - p * t) ** 2).sum(axis=0) / np.maximum(total, 1) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.where((p > 0) & (p < 1) & (units > 1), p * (1 - p) / spread, units)
    few = np.array([(Z / student_quantile(int(count) - 1)) ** 2 if count > 1 else 1.0 for count in np.atleast_1d(units)])
    return np.asarray(
        np.clip(sizes * few.reshape(np.shape(sizes)), np.minimum(units, 1), np.maximum(total, np.minimum(units, 1)))
    )


def difference_limits(better: float, worse: float, size: float) -> tuple[float, float]:
    """Limits of (better − worse) / size, of pairs of which so many went one way and the other: Bonett and Price's."""
    up, down = (better + 1) / (size + 2), (worse + 1) / (size + 2)
    half = Z * float(np.sqrt(max(0.0, up + down - (up - down) ** 2) / (size + 2)))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def student_quantile(freedom: int) -> float:
    """The quantile of Student's t that leaves 2.5 % above it, to three digits."""
    if freedom in _STUDENT or freedom < 1:
        return _STUDENT[max(1, freedom)]
    z, v = Z, float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v ** (power + 1) for power, term in enumerate(terms))
