"""Does a model that was written answer as the run does: on the run's own test photos, and on pictures of many sizes.

In: answers of the run in plain float32 torch, and of the file. Out: an `ModelAgreement`, and a refusal where it is below what its
precision promises. Nothing here opens models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.units import format_count

Answers = NDArray[np.float64]
TRIED_SIZES = ((33, 33), (47, 33), (160, 120), (640, 480), (500, 750), (1024, 333), (3000, 2000))
"""Width and height, beside those of the test photos; the bench goes up to 6,000."""
_TIMED = 12


@dataclass(frozen=True)
class Limit:
    """What a precision promises: the share of photos with the same first class, and by how much a number may differ at most."""

    top1: float
    difference: float


LIMITS = {"f32": Limit(1.0, 1e-3), "f16": Limit(1.0, 1e-2), "int8": Limit(0.99, 0.1)}


@dataclass(frozen=True)
class ModelAgreement:
    """Of test photos and of pictures of other sizes. Differences are of probabilities, or of values in standard deviations of the
    truth. `recorded_top1` is beside what the run said when it was judged, by whatever engine it used then.
    """

    split: str
    num_photos: int
    top1: float | None
    difference: float
    sizes: list[list[int]]
    sizes_top1: float | None
    sizes_difference: float
    recorded_top1: float | None
    recorded_difference: float | None
    photo_s: float
    torch_photo_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def words(self) -> str:
        """``100.0 % the same first class on 42 test photos, largest difference 2.1e-06``"""
        photos = format_count(self.num_photos, f"{self.split} photo")
        same = "" if self.top1 is None else f"{100 * self.top1:.1f} % the same first class on {photos}, "
        return same + f"largest difference {self.difference:.1e}" + ("" if same else f" standard deviations on {photos}")

    def refuse_below(self, limit: Limit, *, format_: str, precision: str) -> None:
        shares = [share for share in (self.top1, self.sizes_top1) if share is not None]
        worst = max(self.difference, self.sizes_difference)
        if worst <= limit.difference and min(shares, default=1.0) >= limit.top1:
            return
        agreed = "" if not shares else f"{100 * min(shares):.1f} % the same first class and "
        wanted = f"{precision} promises {100 * limit.top1:g} % and at most {limit.difference:g}"
        raise DataError(
            f"the {format_} file does not answer as the run does, so it is not handed over",
            why=f"{agreed}a largest difference of {worst:.2g}; {wanted}",
            try_="--precision f32" if precision != "f32" else "another --format, or `unchoke runs export`",
        )


def compare(ours: Answers, theirs: Answers, *, is_class: bool, scale: Answers | float) -> tuple[float | None, float]:
    """The share of rows with the same largest number, for classes, and the largest difference in units of `scale`."""
    same = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()) if is_class else None
    difference = np.abs(ours - theirs) / scale
    return same, float(np.nan_to_num(difference, nan=np.inf).max())


def measure_photo_s(predict: Callable[[Any], Any], photos: Sequence[Any]) -> float:
    """Seconds for one photo at a time, decoded already: the median."""
    times = []
    for photo in photos[:_TIMED]:
        predict(photo)  # the first of a size may prepare something
        begun = time.perf_counter()
        predict(photo)
        times.append(time.perf_counter() - begun)
    return float(np.median(times))
