"""Is a trick faster than the plain way by more than noise, and does it give the same numbers?

In: two callables that each do a piece of work and return its seconds; outputs and gradients of both ways, as arrays. Out: a
`Speedup` (the ratio with its interval), a `Likeness` (equal or not, within which tolerance). What follows from it is decided in
`trials.py`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
MARGIN = 0.02
"""A gain counts from here on: two per cent are not worth another way of computing."""
MIN_PAIRS = 3
_RESAMPLES = 2_000
_MOST_PAIRS = 24
_NORMAL = 1.96
_STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
"""97.5 % points of Student's t by degrees of freedom; from eleven on, the last is close enough."""


@dataclass(frozen=True)
class Speedup:
    """How many times as fast the trick is: the ratio, its 95 % interval, and how many pairs of measurements it rests on.

    `noise` is how much the plain way's seconds varied among themselves, as a share.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    noise: float
    plain_s: float
    trick_s: float

    def is_faster(self, margin: float = MARGIN) -> bool:
        """Whether the gain exceeds the noise: the whole interval lies beyond the margin."""
        return self.low > 1 + margin

    @property
    def text(self) -> str:
        """``1.32× (1.25–1.40)``."""
        return f"{self.ratio:.2f}× ({self.low:.2f}–{self.high:.2f})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    plain: Callable[[], float],
    trick: Callable[[], float],
    *,
    budget_s: float,
    min_pairs: int = 4,
    margin: float = MARGIN,
    clock: Callable[[], float] = time.monotonic,
) -> Speedup:
    """Run both in turns (plain, trick, trick, plain, …), so that a busy moment or a warming machine hits both alike.

    At least `min_pairs` pairs, unless even those would pass `budget_s` (then as many as fit, but one); more of them until the
    answer is clear, the budget is spent, or there are enough. Both callables should be warm.
    """
    started_s = clock()
    seconds: list[tuple[float, float]] = []
    while True:
        if len(seconds) % 2:
            trick_s = trick()
            seconds.append((plain(), trick_s))
        else:
            seconds.append((plain(), trick()))
        spent_s = clock() - started_s
        found = summarise(seconds)
        if spent_s * (len(seconds) + 1) / len(seconds) > budget_s or len(seconds) >= _MOST_PAIRS:
            return found
        if len(seconds) >= min_pairs and (found.is_faster(margin) or found.high < 1 + margin):
            return found


def summarise(seconds: Sequence[tuple[float, float]]) -> Speedup:
    """The ratio of pairs of (plain, trick) seconds: their geometric mean, with a bootstrap interval."""
    plain, trick = (np.array(column, np.float64).clip(1e-9) for column in zip(*seconds, strict=True))
    logs = np.log(plain / trick)
    low, high = _interval(logs)
    noise = float(np.log(plain).std(ddof=1)) if len(plain) > 1 else math.inf
    return Speedup(float(np.exp(logs.mean())), low, high, len(logs), noise, statistics.median(plain), statistics.median(trick))


def _interval(logs: NDArray[np.float64]) -> tuple[float, float]:
    """95 %, by resampling the pairs, widened as Student's t is for so few of them: resampling four values knows only four."""
    if len(logs) < 2:
        return 0.0, math.inf
    drawn = np.random.default_rng(0).integers(0, len(logs), (_RESAMPLES, len(logs)))
    around = np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975)) - logs.mean()
    freedom = len(logs) - 1
    widened = around * _STUDENT[min(freedom, max(_STUDENT))] / _NORMAL * math.sqrt(len(logs) / freedom)
    low, high = np.exp(logs.mean() + widened)
    return float(low), float(high)


@dataclass(frozen=True)
class NumberTolerance:
    """How far numbers may be from the plain way's.

    `outputs`: the largest relative error, against how much outputs differ from sample to sample; as much may the gradient be
    longer or shorter. `gradient`: the least cosine of all gradients together. `tensor`: the least cosine of any parameter's
    gradient that makes up at least `share` of the whole.
    """

    outputs: float
    gradient: float
    tensor: float
    share: float = 0.0


TOLERANCES = {
    "f32": NumberTolerance(outputs=1e-3, gradient=0.9999, tensor=0.999),
    "tf32": NumberTolerance(outputs=0.02, gradient=0.995, tensor=0.95, share=0.01),
    "f16": NumberTolerance(outputs=0.02, gradient=0.995, tensor=0.95, share=0.01),
    "bf16": NumberTolerance(outputs=0.1, gradient=0.98, tensor=0.75, share=0.01),
}
"""By what multiplications are rounded to. In float32 nothing but the order of sums may differ; the others lose what they must."""


@dataclass(frozen=True)
class Numbers:
    """What a way of computing gave for some samples: outputs (n, …), and where something trains, gradients by parameter."""

    outputs: Array
    gradients: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Likeness:
    """Whether numbers are those of the plain way: the figures behind the answer, and the answer in words."""

    equal: bool
    text: str
    figures: dict[str, float] = field(default_factory=dict)


def equal_outputs(plain: Numbers, trick: Numbers, rounding: str) -> Likeness:
    """Compare outputs and gradients under the tolerance for `rounding` (a key of `TOLERANCES`)."""
    tolerance = TOLERANCES[rounding]
    if not all(np.isfinite(values).all() for values in (trick.outputs, *trick.gradients.values())):
        return Likeness(False, "some numbers are infinite or not numbers at all")
    figures = {"outputs": _relative_error(plain.outputs, trick.outputs)}
    within = [figures["outputs"] <= tolerance.outputs]
    said = [f"outputs differ by {figures['outputs']:.2g} (at most {tolerance.outputs:g})"]
    if plain.gradients:
        whole, worst = _gradient_cosines(plain.gradients, trick.gradients, tolerance.share)
        length = _norm(trick.gradients) / max(_norm(plain.gradients), 1e-30)
        figures |= {"gradient_cosine": whole, "worst_tensor_cosine": worst, "gradient_length": length}
        within += [whole >= tolerance.gradient, worst >= tolerance.tensor, abs(length - 1) <= tolerance.outputs]
        said.append(f"cosine of gradients {whole:.4f} (at least {tolerance.gradient:g})")
        said.append(
            f"of the worst tensor {worst:.4f} (at least {tolerance.tensor:g}), their length {length:.3f} of the plain one"
        )
    return Likeness(all(within), ", ".join(said), figures)


def _relative_error(plain: Array, trick: Array) -> float:
    """The difference as a share of how much samples differ among themselves, which is what outputs are for."""
    expected, found = (values.astype(np.float64).reshape(len(values), -1) for values in (plain, trick))
    spread = float(np.linalg.norm(expected - expected.mean(axis=0)))
    difference = float(np.linalg.norm(found - expected))
    return 0.0 if difference == 0 else difference / max(spread, 1e-12)


def _gradient_cosines(plain: Mapping[str, Array], trick: Mapping[str, Array], share: float) -> tuple[float, float]:
    """Of all gradients as one long vector, and the worst among the tensors that count."""
    if plain.keys() != trick.keys():
        return 0.0, 0.0
    total = _norm(plain)
    counted = [name for name, values in plain.items() if _norm({name: values}) >= share * total]
    worst = min((_cosine(plain[name], trick[name]) for name in counted), default=1.0)
    whole, other = (np.concatenate([values.ravel() for values in tensors.values()]) for tensors in (plain, trick))
    return _cosine(whole, other), worst


def _norm(tensors: Mapping[str, Array]) -> float:
    return math.hypot(*(float(np.linalg.norm(values.astype(np.float64))) for values in tensors.values()))


def _cosine(left: Array, right: Array) -> float:
    """Cosine of two tensors; two that are both nothing agree."""
    one, other = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
    norm = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / norm if norm > 0 else float(np.array_equal(one, other))
