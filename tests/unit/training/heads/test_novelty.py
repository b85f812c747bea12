"""Photos of a class that was not trained on are stranger than others, and few known ones are called strange."""

from __future__ import annotations

import numpy as np

from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.novelty import Novelty, fit_novelty


def problem_of(seed: int = 0) -> tuple[ArraySource, Problem, np.ndarray]:
    """Features of five classes; the last one is in no split."""
    random = np.random.default_rng(seed)
    middles = random.normal(size=(5, 40))
    targets = np.arange(1000) % 5
    common = np.exp(random.normal(size=(1000, 1)))  # light, say: it differs from photo to photo
    feats = (middles[targets] + 0.4 * random.normal(size=(1000, 40)) + common).astype(np.float16)
    known = np.flatnonzero(targets < 4)
    splits = {"train": known[:560], "val": known[560:680], "test": known[680:]}
    return ArraySource(feats), Problem("classification", tuple("abcd"), targets % 4, splits, [""] * 1000), targets


def test_new_classes_are_strange_and_known_ones_are_not() -> None:
    source, problem, targets = problem_of()
    novelty = fit_novelty(source, problem)
    assert novelty is not None
    found = novelty.score(source.rows(np.arange(1000)))
    assert (found[problem.positions("test")] > 1).mean() < 0.05
    assert (found[targets == 4] > 1).mean() > 0.9
    again = Novelty(**novelty.to_dict())
    assert (again.score(source.rows(np.arange(1000))) == found).all()


def test_few_validation_photos_and_values_have_no_scale() -> None:
    source, problem, _ = problem_of()
    few = {**problem.splits, "val": problem.positions("val")[:5]}
    assert fit_novelty(source, Problem("classification", problem.names, problem.targets, few, problem.sample_ids)) is None
    values = np.zeros((1000, 1), np.float32)
    assert fit_novelty(source, Problem("regression", ("height",), values, problem.splits, problem.sample_ids)) is None
