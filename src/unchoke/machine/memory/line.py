"""How something grows with the batch: measured points in, a straight line and its worst error out. Arithmetic only.

Between measured points their neighbours are the better guide, so there the line is bent to go through them; beyond the last one
it goes on straight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

_CLOSE_SHARE = 0.02  # points this near to a line lie on it: allocators hand out memory in blocks


@dataclass(frozen=True)
class Line:
    """`fixed` plus `per_sample` for each sample, through the measured `points` (batch, value) where there are some.

    `worst_residual` is the largest distance of a point from the straight line, as a share of what was measured there.
    """

    fixed: float
    per_sample: float
    worst_residual: float = 0.0
    points: tuple[tuple[int, float], ...] = ()

    def at(self, batch: int) -> float:
        """The expected value. Never less than for a smaller batch."""
        if not self.points:
            return self.straight(batch)
        if batch <= self.points[0][0]:
            return min(self.points[0][1], max(self.straight(batch), self.points[0][1] * batch / self.points[0][0]))
        for (low, low_value), (high, high_value) in pairwise(self.points):
            if batch <= high:
                return min(high_value, low_value + (high_value - low_value) * (batch - low) / (high - low))
        last, last_value = self.points[-1]
        return last_value + self.per_sample * (batch - last)

    def straight(self, batch: int) -> float:
        return self.fixed + self.per_sample * batch

    def largest(self, room: float, *, at_most: int) -> int:
        """The largest batch up to `at_most` that stays within `room`; 0 if not even one does."""
        low, high = 0, at_most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.at(middle) <= room else (low, middle - 1)
        return low

    def to_dict(self) -> dict[str, Any]:
        return {"fixed": self.fixed, "per_sample": self.per_sample, "worst_residual": self.worst_residual, "points": self.points}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Line:
        return cls(**{**values, "points": tuple((batch, value) for batch, value in values["points"])})


def fit_line(points: Sequence[tuple[int, float]]) -> Line:
    """The line through measured (batch, value) points.

    Where they do not lie on one line, the two largest batches say what a further sample takes: a small batch may peak elsewhere,
    in the optimizer's step for one, which does not grow. From a single point nothing is known of what is fixed, so all of it is
    taken to grow, which errs on the safe side for larger batches.
    """
    if not points:
        raise ValueError("a line needs at least one point")
    batches, values = zip(*sorted(points), strict=True)
    rising = tuple(zip(batches, accumulate(values, max), strict=True))  # more samples never take less: anything else is noise
    if len(rising) == 1:
        return Line(0.0, values[0] / batches[0], points=rising)
    fixed, per_sample = _least_squares(rising)
    if _worst_residual(fixed, per_sample, rising) > _CLOSE_SHARE:
        fixed, per_sample = _least_squares(rising[-2:])
    return Line(fixed, per_sample, _worst_residual(fixed, per_sample, rising), rising)


def _worst_residual(fixed: float, per_sample: float, points: Sequence[tuple[int, float]]) -> float:
    return max(abs(fixed + per_sample * batch - value) / value if value else 0.0 for batch, value in points)


def _least_squares(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Intercept and slope."""
    mean_batch = math.fsum(batch for batch, _ in points) / len(points)
    mean_value = math.fsum(value for _, value in points) / len(points)
    spread = math.fsum((batch - mean_batch) ** 2 for batch, _ in points)
    slope = math.fsum((batch - mean_batch) * (value - mean_value) for batch, value in points) / spread
    return mean_value - slope * mean_batch, max(0.0, slope)
