from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.data import ArraySource, Problem, fit_standardiser
from unchoke.training.scoring.learning_curve import RidgeRefit, measure_curve

NAMES = ("a", "b")


def problem(train: int = 160, judged: int = 200) -> Problem:
    targets = np.arange(train + judged) % 2
    splits = {"train": np.arange(train), "test": np.arange(train, train + judged)}
    return Problem("classification", NAMES, targets, splits, [f"s{n}" for n in range(train + judged)])


class Answers:
    """Is right for a share of the judged photos that grows with the photos it is given, the same ones first."""

    def __init__(self, task: Problem, share, *, cost: float = 1.0) -> None:
        self.task, self.share, self.price, self.parts = task, share, cost, []
        self.judged = task.positions("test")

    fixed_cost = 0.0

    def cost(self, count: int) -> float:
        return self.price * count

    def __call__(self, positions):
        self.parts.append(positions)
        targets = self.task.targets[self.judged]
        right = np.arange(len(targets)) < self.share(len(positions)) * len(targets)
        if self.task.kind == "regression":
            return (targets + np.where(right, 0.1, 1.0)[:, None]).astype(np.float32)
        return np.eye(2, dtype=np.float32)[np.where(right, targets, 1 - targets)]


def measured(task: Problem, share, groups=None, **options):
    refit = Answers(task, share, **options)
    return measure_curve(refit, task, groups or [""] * len(task.targets), seed=0), refit


def test_curve_has_figure_per_share():
    task = problem()
    found, refit = measured(task, lambda count: 0.5 + 0.1 * np.log2(count / 20))
    assert [point.num_photos for point in found.points] == [20, 40, 80, 160]
    assert [point.value for point in found.points] == pytest.approx([0.5, 0.6, 0.7, 0.8], abs=0.01)
    assert [point.num_repeats for point in found.points] == [8, 8, 6, 1]
    assert (found.metric, found.num_judged) == ("accuracy", 200)
    assert found.gain.value == pytest.approx(0.1, abs=0.01)
    assert 0 < found.next_gain.low < found.next_gain.value < found.gain.value
    train = set(task.positions("train").tolist())
    assert all(set(part.tolist()) <= train for part in refit.parts)
    assert len({tuple(part) for part in refit.parts if len(part) == 20}) == 8


def test_errors_that_fall_by_a_power_go_on_falling_by_it():
    found, _ = measured(problem(judged=1000), lambda count: 1 - 0.8 * (count / 20) ** -0.5)
    assert found.next_gain.value == pytest.approx(0.8 * (8**-0.5 - 16**-0.5), abs=0.005)
    assert found.next_gain.low / found.next_gain.value == pytest.approx(found.gain.low / found.gain.value)


def test_flat_curve_promises_nothing():
    found, _ = measured(problem(), lambda count: 0.8)
    assert found.gain.value == 0
    assert found.next_gain is None


def test_few_judged_photos_leave_it_open():
    found, _ = measured(problem(judged=30), lambda count: 0.8 if count < 160 else 0.84)
    assert found.next_gain is None
    assert found.gain.low < 0 < found.gain.value < found.gain.high


def test_photos_of_few_groups_tell_less():
    task = problem()
    groups = [f"g{n // 20}" for n in range(len(task.targets))]
    alone, together = (measured(task, lambda count: 0.6 + 0.2 * (count == 160), g)[0].gain for g in (None, groups))
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_a_group_is_in_a_part_or_not():
    task = problem()
    groups = [f"g{n // 4}" for n in range(len(task.targets))]
    _, refit = measured(task, lambda count: 0.8, groups)
    for part in refit.parts:
        torn = [name for name in {groups[n] for n in part} if sum(groups[n] == name for n in part) < 4]
        assert len(torn) <= 1


def test_values_have_a_curve_of_r2():
    generator = np.random.default_rng(0)
    targets = generator.normal(size=(360, 1)).astype(np.float32)
    splits = {"train": np.arange(160), "test": np.arange(160, 360)}
    task = Problem("regression", ("x",), targets, splits, [str(n) for n in range(360)])
    found, _ = measured(task, lambda count: 0.5 + 0.1 * np.log2(count / 20))
    assert found.metric == "r2"
    assert found.points[0].value < found.points[-1].value
    assert found.next_gain is not None


def test_a_head_that_learns_nothing_says_nothing_of_photos():
    found, _ = measured(problem(), lambda count: 0.51)
    assert "hardly better than one answer" in found.skipped
    assert found.gain is None


def test_too_small_or_slow_is_left_out():
    assert "too few" in measured(problem(train=30), lambda count: 0.8)[0].skipped
    assert "too few" in measured(problem(judged=10), lambda count: 0.8)[0].skipped
    dear, refit = measured(problem(), lambda count: 0.8, cost=1e9)
    assert "would take long" in dear.skipped
    assert refit.parts == []
    once, _ = measured(problem(), lambda count: 0.8, cost=9e7)
    assert [point.num_repeats for point in once.points] == [1, 1, 1, 1]


def made(kind: str, *, count: int = 300, dim: int = 24, with_val: bool = True):
    generator = np.random.default_rng(0)
    feats = generator.normal(size=(count, dim)).astype(np.float16)
    signal = feats.astype(np.float32) @ generator.normal(size=(dim, 3)) + generator.normal(size=(count, 3))
    targets = signal.argmax(axis=1) if kind == "classification" else signal[:, :2].astype(np.float32) * [1, 100] + [0, 5000]
    names = ("a", "b", "c") if kind == "classification" else ("x", "y")
    splits = {"train": np.arange(200), "val": np.arange(200, 250 if with_val else 200), "test": np.arange(250, count)}
    return ArraySource(feats), Problem(kind, names, targets, splits, [str(n) for n in range(count)])


def expected(source: ArraySource, problem: Problem, part: np.ndarray, strength: float) -> np.ndarray:
    scale = fit_standardiser(source, problem.positions("train"))
    feats = (source.rows(np.arange(source.num_samples)).astype(np.float64) - scale.mean) / scale.std
    wanted = np.eye(3)[problem.targets] if problem.kind == "classification" else problem.targets
    from sklearn.linear_model import Ridge

    return Ridge(alpha=strength * source.dim).fit(feats[part], wanted[part]).predict(feats[problem.positions("test")])


@pytest.mark.parametrize("part", [np.arange(200), np.arange(0, 200, 4), np.arange(12)])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_part_of_the_photos_gives_scikit_learns_ridge(kind, part):
    source, problem = made(kind, with_val=False)
    outputs = RidgeRefit(source, problem, problem.positions("test"))(part)
    assert outputs == pytest.approx(expected(source, problem, part, 0.3), rel=1e-3, abs=2e-3)


def test_the_strength_is_the_one_that_does_best_on_val():
    source, problem = made("classification")
    refit = RidgeRefit(source, problem, problem.positions("test"))
    refit(np.arange(50))
    val = problem.positions("val")
    by_hand = {}
    for strength in (0.03, 0.1, 0.3, 1.0, 3.0):
        moved = Problem(problem.kind, problem.names, problem.targets, {**problem.splits, "test": val}, problem.sample_ids)
        outputs = expected(source, moved, np.arange(200), strength)
        wanted = np.eye(3)[problem.targets]
        by_hand[strength] = (((outputs - wanted[val]) ** 2).mean(axis=0) / wanted[:200].var(axis=0)).sum()
    assert refit.strength == min(by_hand, key=lambda strength: by_hand[strength])
