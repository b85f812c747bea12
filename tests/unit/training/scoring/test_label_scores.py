"""Scores of several labels, against plain definitions; thresholds; the solved head is one logistic regression for each label."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unchoke.core.events import ignore
from unchoke.data.quotas import OPEN, fill_labels
from unchoke.data.several_labels import join_labels, label_cells, label_matrix, split_cell, task_of
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import train_heads
from unchoke.training.scoring.judge import judge
from unchoke.training.scoring.label_scores import average_precision, choose_cuts
from unchoke.training.scoring.scores import score

RNG = np.random.default_rng(0)
NAMES = ("a", "b", "c")


def some(num: int = 60, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    marks = (RNG.random((num, 3)) < (0.5, 0.3, 0.1)).astype(np.float32)
    marks[:3] = np.eye(3)
    return ((marks - 0.5) * 2 + noise * RNG.standard_normal(marks.shape)).astype(np.float32), marks


def test_average_precision_is_its_definition() -> None:
    scores, marks = np.array([3.0, 2.0, 2.0, 1.0]), np.array([1, 0, 1, 0])
    once = np.ones((1, 4), np.float32)
    assert average_precision(scores, marks, once)[0] == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert average_precision(scores, marks, 3 * once)[0] == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert np.isnan(average_precision(scores, 0 * marks, once)[0])
    assert average_precision(np.zeros(4), marks, once)[0] == pytest.approx(0.5)


def test_weights_are_copies_of_samples() -> None:
    scores, marks = RNG.standard_normal(8), np.array([1, 0, 1, 0, 0, 1, 0, 0])
    counts = np.array([2, 0, 1, 3, 1, 1, 0, 1])
    copied = np.repeat(np.arange(8), counts)
    expected = average_precision(scores[copied], marks[copied], np.ones((1, len(copied)), np.float32))
    assert average_precision(scores, marks, counts[None].astype(np.float32)) == pytest.approx(expected)


def test_figures_and_their_intervals() -> None:
    logits, marks = some()
    found = score("multi_label", NAMES, logits, marks, seed=0)
    called = logits >= 0
    f1 = [2 * (called & (marks > 0))[:, i].sum() / (called[:, i].sum() + marks[:, i].sum()) for i in range(3)]
    assert found.values["macro_f1"].value == pytest.approx(np.mean(f1), abs=1e-6)
    for name in ("mean_ap", "micro_f1", "ap/c", "recall/b", "log_loss"):
        one = found.values[name]
        assert one.low is not None and one.high is not None and one.value is not None
        assert one.low <= one.value <= one.high


def test_a_label_that_does_not_occur_counts_in_no_average() -> None:
    logits, marks = some()
    marks[:, 2] = 0
    found = score("multi_label", NAMES, logits, marks, seed=0)
    assert found.values["ap/c"].value is None and "'c'" in found.notes[0]
    known = [found.values[f"ap/{name}"].value for name in "ab"]
    assert found.values["mean_ap"].value == pytest.approx(np.mean([one for one in known if one is not None]))


def test_cuts_give_the_best_f1_or_what_is_wanted() -> None:
    logits, marks = some(400, noise=1.5)

    def rates(cuts: np.ndarray, place: int) -> tuple[float, float, float]:
        called, truth = logits[:, place] >= cuts[place], marks[:, place] > 0
        hits = (called & truth).sum()
        return hits / max(1, called.sum()), hits / truth.sum(), 2 * hits / (called.sum() + truth.sum())

    best, precise, complete = choose_cuts(logits, marks), *(choose_cuts(logits, marks, (w, 0.9)) for w in ("precision", "recall"))
    for place in range(3):
        every = [rates(np.full(3, cut), place)[2] for cut in np.sort(logits[:, place])]
        assert rates(best, place)[2] == pytest.approx(max(every))
        assert rates(precise, place)[0] >= 0.9
        assert rates(complete, place)[1] >= 0.9
    assert (choose_cuts(logits, np.zeros_like(marks)) == 0).all()


def test_judging_calibrates_and_chooses_thresholds() -> None:
    logits, marks = some(200)
    splits = {"train": np.arange(0), "val": np.arange(100), "test": np.arange(100, 200)}
    problem = Problem("multi_label", NAMES, marks, splits, [str(number) for number in range(200)])
    judged = judge({"val": 5 * logits[:100], "test": 5 * logits[100:]}, problem, seed=0)
    assert judged.temperature > 2
    assert judged.thresholds is not None and ((judged.thresholds > 0) & (judged.thresholds < 1)).all()
    assert judged.calibration is not None
    assert (judged.calibration.ece_after or 0) < (judged.calibration.ece_before or 0)


def test_a_solved_head_is_a_logistic_regression_for_each_label() -> None:
    feats = RNG.standard_normal((300, 8)).astype(np.float16)
    marks = (feats[:, :3] + 0.5 * RNG.standard_normal((300, 3)) > (0, 0.5, 1)).astype(np.float32)
    where, cpu = np.arange(300), torch.device("cpu")
    config = HeadConfig("linear", solver="lbfgs", epochs=1, weight_decay=0.01)

    def solve(columns: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
        problem = Problem("multi_label", names, columns, {"train": where}, [str(one) for one in where])
        source = ArraySource(feats)
        return train_heads(source, problem, [config], device=cpu, on_event=ignore).best.predict(source, where, device=cpu)

    together = solve(marks, NAMES)
    alone = np.concatenate([solve(marks[:, [place]], (NAMES[place],)) for place in range(3)], axis=1)
    assert np.abs(together - alone).max() < 0.3
    slope = feats.astype(np.float64).T @ (1 / (1 + np.exp(-together.astype(np.float64))) - marks) / 300
    assert np.abs(slope).max() < 0.05


def test_every_label_gets_its_share_of_each_split() -> None:
    marks = (RNG.random((200, 6)) < (0.5, 0.3, 0.2, 0.1, 0.05, 0.04)).astype(np.float64)
    everything, order = np.full(200, OPEN), RNG.random(200)
    splits = fill_labels(marks, np.ones(200, np.int64), everything, order, (0.7, 0.15, 0.15))
    for label in range(6):
        of_label = marks[:, label] > 0
        for split, share in enumerate((0.7, 0.15, 0.15)):
            assert abs((splits[of_label] == split).sum() - share * of_label.sum()) <= 1.6
    kept = np.where(np.arange(200) < 20, 1, OPEN)
    again = fill_labels(marks, np.ones(200, np.int64), kept, order, (0.7, 0.15, 0.15))
    assert (again[:20] == 1).all() and (again == 1).sum() <= 33


def test_cells_and_marks_are_the_same() -> None:
    cells = ["a|c", "none", "b"]
    task = task_of("multi_label", cells)
    assert task.names == NAMES
    assert label_cells(label_matrix(cells, NAMES), NAMES) == cells
    assert join_labels(["c", " a", ""]) == "a|c" and split_cell("none") == ()
