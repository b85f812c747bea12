"""Does a model that was written answer as the run does: on the run's own test photos, and on pictures of many sizes.

In: answers of the run in plain float32 torch, and of the file. Out: a `ModelAgreement`, and a refusal where it is below what its
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


@dataclass(frozen=True)
class Limit:
    """What a precision promises: the share with the same answer, by how much a number may differ at most, and on average
    the largest one of a photo."""

    top1: float
    difference: float
    mean_difference: float

    def words(self, *, is_class: bool) -> str:
        """``at least 100 % the same answer, differences of at most 0.001 and 0.001 on average``"""
        same = f"at least {100 * self.top1:g} % the same answer, " if is_class else ""
        return f"{same}differences of at most {self.difference:g} and {self.mean_difference:g} on average"


LIMITS = {"f32": Limit(1.0, 1e-3, 1e-3), "f16": Limit(0.995, 0.05, 0.01), "int8": Limit(0.97, 0.3, 0.05)}
PIXEL_LIMITS = {name: Limit(min(limit.top1, 0.9999), limit.difference, limit.mean_difference) for name, limit in LIMITS.items()}
"""Of masks: among millions of pixels some lie on the very border between two classes."""


@dataclass(frozen=True)
class AnswerLikeness:
    """How two sets of answers compare: the share with the same first class or the same labels (None of values), the largest
    difference of all, and the mean over photos of each one's largest."""

    top1: float | None
    difference: float
    mean_difference: float

    def words(self) -> str:
        """``100.0 % the same answer, largest difference 2.1e-06, 1.0e-07 on average``"""
        if self.top1 is None:
            return f"largest difference {self.difference:.1e} standard deviations, {self.mean_difference:.1e} on average"
        same = f"{_percent(self.top1)} the same answer"
        return f"{same}, largest difference {self.difference:.1e}, {self.mean_difference:.1e} on average"

    def keeps(self, limit: Limit) -> bool:
        """Whether it is as good as `limit`."""
        top1 = 1.0 if self.top1 is None else self.top1
        return top1 >= limit.top1 and self.difference <= limit.difference and self.mean_difference <= limit.mean_difference


@dataclass(frozen=True)
class ModelSpeed:
    """Seconds for a photo, from its file to the answer (of masks: for a window, read already). `predict_s` is what `unchoke
    predict` takes with `engine`, many photos at a time; `torch_s` is the very graph of the file in torch, one at a time."""

    file_s: float
    predict_s: float
    engine: str
    torch_s: float

    def words(self, unit: str) -> str:
        """What a photo or window takes."""
        command = "segment predict" if unit == "window" else "predict"
        file_ms, predict_ms, torch_ms = (1000 * one for one in (self.file_s, self.predict_s, self.torch_s))
        return f"{file_ms:.1f} ms; `unchoke {command}` {predict_ms:.1f} ms ({self.engine}), this graph in torch {torch_ms:.1f} ms"


@dataclass(frozen=True)
class ModelAgreement:
    """Of test photos (or windows of scenes: `unit`) and of pictures of other sizes. Differences are of probabilities, or of
    values in standard deviations of the truth. `recorded` is beside what the run said when it was judged, by its own engine.
    """

    split: str
    unit: str
    num_compared: int
    photos: AnswerLikeness
    sizes: list[list[int]]
    other_sizes: AnswerLikeness
    recorded: AnswerLikeness | None
    speed: ModelSpeed

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def words(self) -> str:
        """``100.0 % the same answer, largest difference 2.1e-06, 1.0e-07 on average, on 42 test photos``"""
        return f"{self.photos.words()}, on {format_count(self.num_compared, f'{self.split} {self.unit}')}"

    @property
    def limits(self) -> dict[str, Limit]:
        """What each precision promises."""
        return PIXEL_LIMITS if self.unit == "window" else LIMITS

    def promise(self, precision: str) -> str:
        """What `precision` promises of such a model."""
        return self.limits[precision].words(is_class=self.photos.top1 is not None)

    def refuse_below(self, *, format_: str, precision: str) -> None:
        """Refuse what does not keep the promise, with the figures."""
        limit = self.limits[precision]
        same = limit.top1 if precision == "f32" else 0.0  # a handful of one photo's odd sizes make no share
        if self.photos.keeps(limit) and self.other_sizes.keeps(Limit(same, limit.difference, limit.difference)):
            return
        promised = f"{precision} promises {self.promise(precision)}"
        raise DataError(
            f"the {format_} file in {precision} does not answer as the run does, so it is not handed over",
            code="export-disagrees",
            why=f"{self.words()}; on pictures of other sizes {self.other_sizes.words()}; {promised}",
            try_=_TRY[precision],
        )


_TRY = {
    "f32": "another --format, or `unchoke runs export`",
    "f16": "--precision f32",
    "int8": "--precision f16",
}


def _percent(share: float) -> str:
    """Never rounded up to all."""
    return f"{100 * share:.1f} %" if share in (0.0, 1.0) else f"{min(100 * share, 99.9999):.4g} %"


def compare(
    ours: Answers, theirs: Answers, *, is_class: bool, scale: Answers | float = 1.0, cuts: Sequence[float] = ()
) -> AnswerLikeness:
    """Rows (n, numbers): for classes, whether the same number is the largest; for several labels, whether the same numbers reach
    `cuts`. Differences are in units of `scale`.
    """
    same = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()) if is_class else None
    if cuts:
        same = float(((ours >= np.array(cuts)) == (theirs >= np.array(cuts))).all(axis=1).mean())
    difference = np.nan_to_num(np.abs(ours - theirs) / scale, nan=np.inf).max(axis=1)
    return AnswerLikeness(same, float(difference.max()), float(difference.mean()))


def measure_each_s(predict: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Seconds for one at a time: the median."""
    times = []
    for item in items:
        predict(item)  # the first of a size may prepare something
        begun = time.perf_counter()
        predict(item)
        times.append(time.perf_counter() - begun)
    return float(np.median(times))
