"""Is a trick faster than the plain way by more than noise, and does it give the same numbers?

In: two callables that each do a piece of work and return its seconds; outputs and gradients of both ways. Out: a `Speedup` (the
ratio with its interval) and a `Likeness` (equal or not, within which tolerance). `trials.py` decides what follows.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
    """How many times as fast the trick is, with its 95 % interval; `noise` is the spread of the plain way's seconds, a share."""

    ratio: float
    low: float
    high: float
    pairs: int
    noise: float
    plain_s: float
    trick_s: float

    def is_faster(self) -> bool:
        """Whether the gain exceeds the noise: the whole interval lies beyond the margin."""
        return self.low > 1 + MARGIN

    @property
    def text(self) -> str:
        """``1.32× (1.25–1.40)``."""
        return f"{self.ratio:.2f}× ({self.low:.2f}–{self.high:.2f})"


def compare(
    plain: Callable[[], float],
    trick: Callable[[], float],
    *,
    budget_s: float,
    min_pairs: int = 4,
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
        spent_s, found = clock() - started_s, summarise(seconds)
        if spent_s * (len(seconds) + 1) / len(seconds) > budget_s or len(seconds) >= _MOST_PAIRS:
            return found
        if len(seconds) >= min_pairs and (found.is_faster() or found.high < 1 + MARGIN):
            return found


def summarise(seconds: Sequence[tuple[float, float]]) -> Speedup:
    """The ratio of pairs of (plain, trick) seconds: their geometric mean, with a bootstrap interval.

    The interval is widened as Student's t is for so few pairs: resampling four values knows only four.
    """
    plain, trick = (np.array(column, np.float64).clip(1e-9) for column in zip(*seconds, strict=True))
    logs = np.log(plain / trick)
    low, high, noise, freedom = 0.0, math.inf, math.inf, len(logs) - 1
    if freedom:
        drawn = np.random.default_rng(0).integers(0, len(logs), (_RESAMPLES, len(logs)))
        around = np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975)) - logs.mean()
        widened = around * _STUDENT[min(freedom, max(_STUDENT))] / _NORMAL * math.sqrt(len(logs) / freedom)
        low, high = np.exp(logs.mean() + widened).tolist()
        noise = float(np.log(plain).std(ddof=1))
    return Speedup(float(np.exp(logs.mean())), low, high, len(logs), noise, statistics.median(plain), statistics.median(trick))


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
    expected, found = (one.outputs.astype(np.float64).reshape(len(one.outputs), -1) for one in (plain, trick))
    spread, difference = (float(np.linalg.norm(values)) for values in (expected - expected.mean(axis=0), found - expected))
    error = difference / max(spread, 1e-12) if difference else 0.0  # as a share of how much samples differ among themselves
    figures, within = {"outputs": error}, [error <= tolerance.outputs]
    text = f"outputs differ by {error:.2g} (at most {tolerance.outputs:g})"
    if plain.gradients:
        whole = worst = 0.0
        norms = {name: float(np.linalg.norm(values.astype(np.float64))) for name, values in plain.gradients.items()}
        total = math.hypot(*norms.values())
        length = math.hypot(*(float(np.linalg.norm(values.astype(np.float64))) for values in trick.gradients.values()))
        length /= max(total, 1e-30)
        if plain.gradients.keys() == trick.gradients.keys():
            pairs = {name: (plain.gradients[name], trick.gradients[name]) for name in plain.gradients}
            worst = min((_cosine(*pairs[name]) for name in pairs if norms[name] >= tolerance.share * total), default=1.0)
            whole = _cosine(*(np.concatenate([pair[side].ravel() for pair in pairs.values()]) for side in (0, 1)))
        figures |= {"gradient_cosine": whole, "worst_tensor_cosine": worst, "gradient_length": length}
        within += [whole >= tolerance.gradient, worst >= tolerance.tensor, abs(length - 1) <= tolerance.outputs]
        text += f", cosine of gradients {whole:.4f} (at least {tolerance.gradient:g})"
        text += f", of the worst tensor {worst:.4f} (at least {tolerance.tensor:g}), their length {length:.3f} of the plain one"
    return Likeness(all(within), text, figures)


def _cosine(left: Array, right: Array) -> float:
    """Cosine of two tensors; two that are both nothing agree."""
    one, other = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
    norm = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / norm if norm > 0 else float(np.array_equal(one, other))
