"""Which engine runs the frozen part here: the first on the list whose features agree with plain float32 torch on this data.

In: a list of candidates in order of preference, and a sample of the user's own photos or patches. Out: the engine, and a `Choice`
that says what was compared and how fast each was. A candidate that disagrees or is not installed is passed over and that
is said; so is one that is clearly slower than torch, unless the caller takes it even so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.features.engines import Features, FrozenEngine


@dataclass(frozen=True)
class FeatureTolerance:
    """How close an engine's features must be: mean cosine, and the worst picture's cosine after removing the mean feature."""

    mean_cosine: float
    worst_centred: float


USUAL = FeatureTolerance(mean_cosine=0.999, worst_centred=0.99)
ASKED_FOR_INT8 = FeatureTolerance(mean_cosine=0.99, worst_centred=0.95)
"""Wider, because int8 is only ever used when asked for by name."""


_SLOWER = 0.8
"""Below this share of torch's speed an engine is not worth having; nearer to it, a busy moment may be all there is to see."""


@dataclass(frozen=True)
class Agreement:
    """How two sets of features of the same pictures compare."""

    mean_cosine: float
    worst_cosine: float
    worst_centred: float

    def within(self, tolerance: FeatureTolerance) -> bool:
        return self.mean_cosine >= tolerance.mean_cosine and self.worst_centred >= tolerance.worst_centred

    def in_words(self, tolerance: FeatureTolerance) -> str:
        return (
            f"mean cosine {self.mean_cosine:.4f}, at least {tolerance.mean_cosine} wanted; "
            f"worst after centring {self.worst_centred:.4f}, at least {tolerance.worst_centred}"
        )


def compare(reference: Features, candidate: Features) -> Agreement:
    """Cosines picture by picture, plain and after removing the reference's mean (which hides most differences).

    What a picture became may have any shape; it is compared as one long vector.
    """
    centre = reference.mean(axis=0)
    pairs = list(zip(reference, candidate, strict=True))
    plain = np.array([_cosine(one, other) for one, other in pairs], np.float32)
    centred = np.array([_cosine(one - centre, other - centre) for one, other in pairs], np.float32)
    return Agreement(float(plain.mean()), float(plain.min()), float(centred.min()))


def _cosine(left: Features, right: Features) -> float:
    """Cosine of two sets of numbers; those that are (nearly) zero on both sides agree, on one side they do not."""
    left64, right64 = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
    if np.abs(left64 - right64).max() < 1e-6:
        return 1.0
    return float(left64 @ right64 / max(float(np.linalg.norm(left64) * np.linalg.norm(right64)), 1e-12))


@dataclass(frozen=True)
class Candidate:
    """An engine that may be used: its label (``openvino:bf16``), how to build it, and how close it has to be."""

    label: str
    build: Callable[[], FrozenEngine]
    tolerance: FeatureTolerance = USUAL


def choose_engine(
    reference: FrozenEngine,
    candidates: Sequence[Candidate],
    sample: NDArray[Any],
    *,
    shown: str = "pictures",
    even_slower: bool = True,
) -> tuple[FrozenEngine, Choice]:
    """The first candidate that agrees with `reference` on `sample`; `reference` itself if none does.

    One that is clearly slower is passed over without `even_slower`, as where nobody asked for it by name.
    """
    if len(sample) == 0:
        return reference, Choice("engine", "torch:f32", "no picture could be read to compare a faster engine with")
    truth, reference_s = _timed(reference, sample)
    tried: dict[str, Any] = {"torch:f32": {"images_per_s": round(len(sample) / reference_s, 1)}}
    refused: list[str] = []
    for candidate in candidates:
        try:
            engine = candidate.build()
        except MachineError as error:
            refused.append(f"{candidate.label}: {error.what}")
            continue
        features, seconds = _timed(engine, sample)
        agreement = compare(truth, features)
        figures = {name: round(value, 5) for name, value in asdict(agreement).items()}
        tried[candidate.label] = {"images_per_s": round(len(sample) / seconds, 1), **figures}
        gain = reference_s / seconds
        if not agreement.within(candidate.tolerance):
            refused.append(f"{candidate.label} disagrees: {agreement.in_words(candidate.tolerance)}")
        elif gain < _SLOWER and not even_slower:
            refused.append(f"{candidate.label} agrees but ran {gain:.1f}× as fast as torch")
        else:
            reason = f"agrees with float32 torch on {len(sample)} of your {shown} ({agreement.in_words(candidate.tolerance)})"
            reason += f" and ran {gain:.1f}× as fast on them" + (f"; not used: {'; '.join(refused)}" if refused else "")
            return engine, Choice("engine", candidate.label, reason, tried)
    reason = "plain torch in float32" + (f"; not used: {'; '.join(refused)}" if refused else ", which needs no comparison")
    return reference, Choice("engine", "torch:f32", reason, tried)


def _timed(engine: FrozenEngine, sample: NDArray[Any]) -> tuple[Features, float]:
    """Features and seconds, with as many batches at once as the engine can take."""
    parts = [sample[start : start + engine.batch] for start in range(0, len(sample), engine.batch)]
    if engine.slots == 1:  # in this thread: cuDNN's plans are kept for each, and finding them takes seconds
        engine.encode(parts[0])
        started = time.perf_counter()
        features = np.concatenate([engine.encode(part) for part in parts])
        return features, time.perf_counter() - started
    with ThreadPoolExecutor(engine.slots) as threads:
        list(threads.map(engine.encode, parts[: engine.slots]))  # the first batches pay for allocations
        started = time.perf_counter()
        features = np.concatenate(list(threads.map(engine.encode, parts)))
        return features, time.perf_counter() - started
