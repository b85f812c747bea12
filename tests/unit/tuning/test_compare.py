"""Faster by more than noise, and equal within a stated tolerance: both decided on plain numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from unchoke.tuning.compare import TOLERANCES, Numbers, Speedup, compare, equal_outputs, summarise


class Machine:
    """A clock that moves when work is done, with noise that hits neighbours alike."""

    def __init__(self, *, noise: float = 0.0, seed: int = 0) -> None:
        self.now_s, self._noise, self._random = 0.0, noise, np.random.default_rng(seed)
        self.order: list[str] = []

    def work(self, name: str, seconds: float) -> Callable[[], float]:
        def run() -> float:
            spent_s = seconds * float(np.exp(self._noise * self._random.standard_normal()))
            self.now_s += spent_s
            self.order.append(name)
            return spent_s

        return run

    def compare(self, plain_s: float, trick_s: float, *, budget_s: float = 100.0, min_pairs: int = 4) -> Speedup:
        plain, trick = self.work("plain", plain_s), self.work("trick", trick_s)
        return compare(plain, trick, budget_s=budget_s, min_pairs=min_pairs, clock=lambda: self.now_s)


def test_a_clear_gain_is_found_in_few_pairs_and_in_turns() -> None:
    machine = Machine(noise=0.02)
    found = machine.compare(1.0, 0.5)
    assert found.is_faster()
    assert found.low < found.ratio < found.high
    assert found.ratio == pytest.approx(2, rel=0.1)
    assert found.pairs == 4
    assert machine.order == ["plain", "trick", "trick", "plain"] * 2


def test_a_gain_within_the_noise_does_not_count() -> None:
    accepted = [Machine(noise=0.1, seed=seed).compare(1.0, 1.0).is_faster() for seed in range(60)]
    assert sum(accepted) <= 4


@pytest.mark.parametrize(("trick_s", "faster"), [(1.5, False), (0.995, False), (0.9, True)])
def test_slower_and_hardly_faster_are_not_faster(trick_s: float, faster: bool) -> None:
    assert Machine(noise=0.005).compare(1.0, trick_s).is_faster() is faster


def test_the_budget_is_kept_even_if_the_answer_is_open() -> None:
    machine = Machine(noise=0.3)
    assert machine.compare(1.0, 1.0, budget_s=9.0).pairs <= 5
    assert machine.now_s <= 12.0
    alone = Machine().compare(1.0, 0.5, budget_s=0.1)
    assert (alone.pairs, alone.is_faster(), alone.low) == (1, False, 0.0)


def test_few_pairs_give_a_wide_interval() -> None:
    pairs = [(1.0, 0.52), (1.02, 0.5), (0.98, 0.49)]
    few, many = summarise(pairs), summarise(pairs * 6)
    assert few.high - few.low > 3 * (many.high - many.low)
    assert few.text.startswith("1.99× (1.")


RANDOM = np.random.default_rng(0)
PLAIN = Numbers(
    RANDOM.standard_normal((8, 5)).astype(np.float32),
    {"a": RANDOM.standard_normal((6, 6)).astype(np.float32), "tiny": 1e-6 * np.ones(3, np.float32)},
)


def moved(by: float, *, only: str = "") -> Numbers:
    """The same numbers, each a little off."""

    def shifted(values: np.ndarray, name: str) -> np.ndarray:
        size = by if only in ("", name) else 0.0
        return (values * (1 + size * RANDOM.standard_normal(values.shape))).astype(np.float32)

    return Numbers(shifted(PLAIN.outputs, "outputs"), {name: shifted(values, name) for name, values in PLAIN.gradients.items()})


@pytest.mark.parametrize(
    ("by", "equal"),
    [
        (0.0, {"f32", "tf32", "f16", "bf16"}),
        (1e-5, {"f32", "tf32", "f16", "bf16"}),
        (0.01, {"tf32", "f16", "bf16"}),
        (0.05, {"bf16"}),
        (0.6, set()),
    ],
)
def test_each_precision_has_its_tolerance(by: float, equal: set[str]) -> None:
    assert {rounding for rounding in TOLERANCES if equal_outputs(PLAIN, moved(by), rounding).equal} == equal


def test_in_float32_every_tensor_must_agree() -> None:
    wrong = moved(0.5, only="tiny")
    assert not equal_outputs(PLAIN, wrong, "f32").equal
    assert equal_outputs(PLAIN, wrong, "bf16").equal


def test_gradients_of_other_length_or_tensors_are_unequal() -> None:
    longer = Numbers(PLAIN.outputs, {name: 2 * values for name, values in PLAIN.gradients.items()})
    fewer = Numbers(PLAIN.outputs, {"a": PLAIN.gradients["a"]})
    assert not equal_outputs(PLAIN, longer, "bf16").equal
    assert not equal_outputs(PLAIN, fewer, "bf16").equal


def test_nan_is_unequal_and_figures_are_given() -> None:
    broken = Numbers(np.full((8, 5), np.nan, np.float32), PLAIN.gradients)
    assert not equal_outputs(PLAIN, broken, "bf16").equal
    found = equal_outputs(PLAIN, moved(0.01), "bf16")
    assert found.figures.keys() == {"outputs", "gradient_cosine", "worst_tensor_cosine", "gradient_length"}
    assert "at most 0.1" in found.text
    assert equal_outputs(Numbers(PLAIN.outputs), Numbers(PLAIN.outputs), "f32").figures == {"outputs": 0.0}
