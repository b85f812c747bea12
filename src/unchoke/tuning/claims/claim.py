"""What a claim is, what was measured of it, and the verdict: plain values and one pure function.

A claim names a gain that is commonly reported, as a range of ratios: the plain way's time over the other way's, so that 2 is
twice as fast. A percentage is read as throughput: 20 % faster is a ratio of 1.20. How a claim is measured stands in the files
beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from unchoke.tuning.compare import MARGIN, Speedup

if TYPE_CHECKING:
    from unchoke.tuning.claims.claim_bench import Bench

ClaimVerdict = Literal["as reported", "less", "more", "opposite", "unclear", "does not apply", "not measured"]
Range = tuple[float, float | None]
"""Ratios from … to; without an end where any gain would do."""
ACCELERATOR = "accelerator"
_AROUND = 0.25
_SLOWER = 1 / (1 + MARGIN)
"""A loss counts from as little as a gain does."""


class DoesNotApply(Exception):  # noqa: N818 (a fact about the machine)
    """Raised by a measurement that finds out that this machine cannot do what the claim is about; the text is the reason."""


@dataclass(frozen=True)
class ClaimMeasurement:
    """Interleaved measurements of both ways. `low` and `high` bound the ratio with 95 % confidence, `noise` is that of the plain
    way. `equal` says whether both ways gave the same results (None: they are not meant to), `equal_figure` how far apart they
    are. `why` explains the ratio by what was measured beside it, and `details` has those figures.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    noise: float
    equal: bool | None
    equal_figure: str
    why: str
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, compared: Speedup, *, equal: bool | None, equal_figure: str, why: str, **details: Any) -> ClaimMeasurement:
        ratio, low, high, pairs, noise = compared.ratio, compared.low, compared.high, compared.pairs, compared.noise
        return cls(ratio, low, high, pairs, noise, equal, equal_figure, why, details)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Claim:
    """`reported` in words and as ratios; `timed` says what is measured, the plain way first.

    `needs` are packages, or an accelerator. `least_s` is about what the smallest honest measurement takes on two cores.
    """

    name: str
    title: str
    reported: str
    ratios: Range
    timed: str
    measure: Callable[[Bench], ClaimMeasurement]
    needs: tuple[str, ...] = ()
    least_s: float = 10.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "reported": self.reported,
            "reported_low": self.ratios[0],
            "reported_high": self.ratios[1],
            "timed": self.timed,
            "needs": list(self.needs),
        }


@dataclass(frozen=True)
class ClaimOutcome:
    """What came of one claim: a measurement, or the reason why there is none."""

    claim: Claim
    verdict: ClaimVerdict
    reason: str
    measured: ClaimMeasurement | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        measured = None if self.measured is None else self.measured.to_dict()
        return {
            **self.claim.to_dict(),
            "verdict": self.verdict,
            "reason": self.reason,
            "measured": measured,
            "seconds": self.seconds,
        }


def about(ratio: float) -> Range:
    """The range that counts as a single reported figure: a quarter of its gain to either side."""
    margin = _AROUND * (ratio - 1)
    return ratio - margin, ratio + margin


def judge(ratios: Range, *, low: float, high: float) -> ClaimVerdict:
    """What an interval says of a reported range.

    Slower for certain is the opposite. An interval that reaches from no gain at all into the range says nothing.
    """
    least, most = ratios
    if high < _SLOWER:
        return "opposite"
    if high < least or (least <= 1 and low <= 1):
        return "less"
    if most is not None and low > most:
        return "more"
    return "unclear" if low <= 1 else "as reported"


def possible_gain(share: float, times_as_fast: float) -> float:
    """The ratio that comes of a part, `share` of the whole, running so many times as fast."""
    return 1 / (1 - share + share / times_as_fast)


def spell_s(seconds: float) -> str:
    """Three digits and a unit: ``6.21 µs``, ``12.3 ms``, ``1.20 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def percent(share: float, *, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"
