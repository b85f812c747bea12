"""Do 95 % intervals hold the truth 95 times in a hundred, on samples as small as people have?

Samples are drawn from populations whose figures are known (from 200,000 samples of each), scored as any run is, and counted: how
often the interval holds the population's figure, and how wide it is. Without groups, and with groups whose samples are alike.

    python benches/bench_intervals.py              # about 8 minutes on two cores
    python benches/bench_intervals.py --rounds 50  # a minute or so
    python benches/bench_intervals.py --temperature --rounds 60

The last compares temperatures fitted on small val splits, as they are fitted now and by the lowest log loss alone, on 20,000 new
samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from common import say
from numpy.typing import NDArray

from unchoke.training.scoring.figures import fit_temperature, log_losses, log_softmax
from unchoke.training.scoring.scores import score

SIZES = (10, 14, 30, 100, 200)
CLASS_FIGURES = ("accuracy", "balanced_accuracy", "macro_f1", "log_loss", "ece")
VALUE_FIGURES = ("r2", "mae", "rmse")
POPULATION = 200_000
RESAMPLES = 400


@dataclass(frozen=True)
class Classes:
    """Gaussian clouds of `num` classes, `apart` deviations apart, the rarest e^-skew as frequent as the commonest; `sharp` logits
    are that many times too sure. In groups of `per_group`, the class is shared, and what else is makes `alike` of the noise.
    """

    name: str
    num: int
    apart: float
    skew: float = 0.0
    sharp: float = 1.0
    per_group: int = 1
    alike: float = 0.0
    kind = "classification"
    figures = CLASS_FIGURES

    def sample(self, generator: np.random.Generator, count: int) -> tuple[NDArray, NDArray, NDArray]:
        prior = np.exp(-self.skew * np.arange(self.num) / max(1, self.num - 1))
        prior /= prior.sum()
        groups = np.arange(count) // self.per_group
        classes = generator.choice(self.num, size=int(groups[-1]) + 1, p=prior)[groups]
        own, shared = (generator.normal(size=(size, self.num)) for size in (count, int(groups[-1]) + 1))
        clouds = own * np.sqrt(1 - self.alike) + shared[groups] * np.sqrt(self.alike)
        clouds[np.arange(count), classes] += self.apart
        return ((self.apart * clouds + np.log(prior)) * self.sharp).astype(np.float32), classes, groups


@dataclass(frozen=True)
class Values:
    """Values of one target with errors: normal, heavy-tailed (`t4`), or larger where a skewed target is (`skewed`)."""

    name: str
    shape: str
    r2: float
    per_group: int = 1
    alike: float = 0.0
    kind = "regression"
    figures = VALUE_FIGURES

    def sample(self, generator: np.random.Generator, count: int) -> tuple[NDArray, NDArray, NDArray]:
        groups = np.arange(count) // self.per_group
        own, shared = (generator.normal(size=(size, 2)) for size in (count, int(groups[-1]) + 1))
        both = own * np.sqrt(1 - self.alike) + shared[groups] * np.sqrt(self.alike)
        truth, noise = both[:, 0], both[:, 1] * np.sqrt(1 - self.r2)
        if self.shape == "t4":
            noise = noise / np.sqrt(generator.chisquare(4, size=count) / 2)
        elif self.shape == "skewed":
            truth = (np.exp(0.8 * truth) - 1) / 1.3
            noise = noise * (0.3 + np.abs(truth))
        return (truth + noise).astype(np.float32)[:, None], truth.astype(np.float32)[:, None], groups


CASES = (
    Classes("2 classes, 92 % right", 2, 2.0),
    Classes("5 uneven classes, 82 % right", 5, 2.0, skew=2.0),
    Classes("5 uneven classes, 82 % right, twice too sure", 5, 2.0, skew=2.0, sharp=2.0),
    Classes("5 uneven classes, 99 % right", 5, 4.0, skew=2.0),
    Classes("20 classes, 85 % right", 20, 3.0, skew=1.0),
    Classes("5 uneven classes, in alike groups of 5", 5, 2.0, skew=2.0, per_group=5, alike=0.5),
    Values("R² 0.9, normal errors", "normal", 0.9),
    Values("R² 0.3, heavy-tailed errors", "t4", 0.3),
    Values("R² 0.85, skewed target", "skewed", 0.9),
    Values("R² 0.7, in alike groups of 5", "normal", 0.7, per_group=5, alike=0.5),
)


def truth_of(case: Classes | Values) -> dict[str, float]:
    outputs, targets, _ = case.sample(np.random.default_rng(0), POPULATION)
    found = score(case.kind, names_of(case), outputs, targets, seed=0, bootstrap=0)
    return {name: found.values[name].value for name in case.figures}


def names_of(case: Classes | Values) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(case.num)) if isinstance(case, Classes) else ("value",)


def cover(case: Classes | Values, count: int, *, rounds: int, grouped: bool) -> dict[str, tuple[float, float]]:
    """Per figure: the share of samples of `count` whose interval holds the truth, and the mean width."""
    truth, generator = truth_of(case), np.random.default_rng(count)
    held: dict[str, list[bool]] = {name: [] for name in case.figures}
    widths: dict[str, list[float]] = {name: [] for name in case.figures}
    for number in range(rounds):
        outputs, targets, groups = case.sample(generator, count)
        options = {"seed": number, "bootstrap": RESAMPLES, "groups": groups if grouped else None}
        found = score(case.kind, names_of(case), outputs, targets, **options).values
        for name in case.figures:
            one = found[name]
            if one.low is not None and one.high is not None:
                held[name].append(one.low - 1e-6 <= truth[name] <= one.high + 1e-6)
                widths[name].append(one.high - one.low)
    return {name: (float(np.mean(held[name])), float(np.mean(widths[name]))) for name in case.figures if held[name]}


def rows(rounds: int) -> Iterator[tuple[str, int, dict[str, tuple[float, float]]]]:
    for case in CASES:
        for count in SIZES:
            if case.per_group == 1:
                yield case.name, count, cover(case, count, rounds=rounds, grouped=False)
            elif count >= 5 * case.per_group:
                for grouped in (False, True):
                    told = f"{case.name}, {'told' if grouped else 'not told'}"
                    yield told, count, cover(case, count, rounds=rounds, grouped=grouped)


def plain_temperature(logits: NDArray, targets: NDArray) -> float:
    """The temperature with the lowest log loss, and nothing else: by halving."""
    wide, low, high = logits.astype(np.float64), 1 / 20, 20.0
    wanted = np.take_along_axis(wide, targets[:, None], axis=1).mean()
    for _ in range(60):
        middle = np.sqrt(low * high)
        slope = (np.exp(log_softmax(wide * middle)) * wide).sum(axis=1).mean() - wanted
        low, high = (middle, high) if slope < 0 else (low, middle)
    return float(1 / low)


def temperatures(rounds: int) -> None:
    """Mean and worst log loss of new samples, with temperatures from val splits of several sizes."""
    table = []
    for num, apart in ((3, 2.0), (3, 4.0), (10, 3.5), (10, 5.0)):
        for count in (20, 50, 200, 1000):
            case, generator = Classes("", num, apart), np.random.default_rng(count)
            new, truth, _ = case.sample(generator, 20_000)
            losses: dict[str, list[float]] = {"now": [], "plain": [], "left at 1": []}
            for _ in range(rounds):
                logits, targets, _ = case.sample(generator, count)
                found = {
                    "now": fit_temperature(logits, targets)[0],
                    "plain": plain_temperature(logits, targets),
                    "left at 1": 1.0,
                }
                for name, temperature in found.items():
                    losses[name].append(float(log_losses(new / temperature, truth).mean()))
            row = {name: (round(float(np.mean(values)), 4), round(max(values), 3)) for name, values in losses.items()}
            print(f"{num} classes, {apart} apart, {count} val samples: mean and worst {row}", flush=True)
            table.append({"num_classes": num, "apart": apart, "num_val": count, "log_loss": row})
    say("temperatures", rounds=rounds, rows=table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--temperature", action="store_true")
    given = parser.parse_args()
    if given.temperature:
        temperatures(given.rounds)
        return
    table = []
    for name, count, found in rows(given.rounds):
        shown = "  ".join(f"{figure} {held * 100:.0f} ({width:.2f})" for figure, (held, width) in found.items())
        print(f"{name:<48} n {count:>4}  {shown}", flush=True)
        table.append({"case": name, "num_samples": count, "covered": found})
    say("intervals", rounds=given.rounds, rows=table)


if __name__ == "__main__":
    main()
