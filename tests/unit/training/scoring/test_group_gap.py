"""A random split flatters where photos of one thing look alike, and does not where they only share a name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unchoke.core.events import Event, Note, ignore
from unchoke.runs.report.summary import describe_gap
from unchoke.training.data import Problem
from unchoke.training.fit import fit
from unchoke.training.scoring.group_gap import choose_rows, measure_group_gap

GROUPS = [f"p{row // 4}" for row in range(400)]


def features(*, alike: float) -> NDArray[np.float32]:
    """Noise, of which the share `alike` is that of the whole group."""
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=(100, 64)).repeat(4, axis=0), rng.normal(size=(400, 64))
    return np.asarray(alike * shared + (1 - alike) * own, dtype=np.float32)


def classes() -> Problem:
    """The class of a group says nothing of its features: it can only be learnt by heart."""
    labels = (np.arange(100) % 3).repeat(4).astype(np.int64)
    return Problem("classification", ("a", "b", "c"), labels, {}, [str(row) for row in range(400)])


def values() -> Problem:
    rng = np.random.default_rng(1)
    targets = rng.normal(size=(100, 2)).repeat(4, axis=0).astype(np.float32)
    return Problem("regression", ("x", "y"), targets, {}, [str(row) for row in range(400)])


@pytest.mark.parametrize("problem", [classes(), values()], ids=["classes", "values"])
def test_overfitting_counts_in_random_folds_alone(problem: Problem) -> None:
    rows = choose_rows(GROUPS)
    gap = measure_group_gap(features(alike=0.8)[rows], problem, rows, GROUPS, column="patient")
    assert gap is not None
    assert (gap.column, gap.num_samples, gap.num_groups) == ("patient", 400, 100)
    assert gap.low is not None
    assert gap.random is not None
    assert gap.grouped is not None
    assert gap.low > 0.2
    assert gap.random > gap.grouped + 0.3
    assert gap.grouped < 0.45


def test_photos_that_have_nothing_in_common_leave_no_gap() -> None:
    rows = choose_rows(GROUPS)
    gap = measure_group_gap(features(alike=0.0)[rows], classes(), rows, GROUPS, column="patient")
    assert gap is not None
    assert gap.low is not None
    assert gap.high is not None
    assert gap.low < 0 < gap.high


def test_held_out_answers_are_out_of_fold() -> None:
    """Against the same ridge regression, fitted fold by fold without any short cut."""
    from unchoke.training.scoring import group_gap

    problem, feats = values(), features(alike=0.5)
    folds = np.arange(400) % 5
    wanted = (problem.targets - problem.targets.mean(axis=0)) / problem.targets.std(axis=0)
    standard = (feats - feats.mean(axis=0)) / feats.std(axis=0)
    kernel = torch.from_numpy(standard @ standard.T / 64)
    inverse = (kernel + group_gap._STRENGTH * np.eye(400, dtype=np.float32)).inverse()
    quick = group_gap._gains(inverse.float(), wanted, problem.targets, folds, False, ())
    slow = np.empty(400)
    for fold in range(5):
        seen, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        dense = kernel.numpy().astype(np.float64)
        dual = np.linalg.solve(dense[np.ix_(seen, seen)] + group_gap._STRENGTH * np.eye(len(seen)), wanted[seen])
        slow[held] = 1 - ((wanted[held] - dense[np.ix_(held, seen)] @ dual) ** 2).mean(axis=1)
    assert quick == pytest.approx(slow, abs=1e-2)


def test_too_little_to_tell_says_nothing() -> None:
    rows = np.arange(20, dtype=np.int64)
    assert measure_group_gap(features(alike=0.5)[:20], classes(), rows, GROUPS[:20], column="patient") is None
    rows = np.arange(80, dtype=np.int64)
    assert measure_group_gap(features(alike=0.5)[:80], classes(), rows, ["p", "q"] * 40, column="patient") is None


def test_rows_sampled_by_whole_groups() -> None:
    small = choose_rows([f"p{row // 4}" for row in range(4000)], most=400)
    assert len(small) == 400
    assert (np.unique(small // 4, return_counts=True)[1] == 4).all()
    large = choose_rows([f"p{row // 1000}" for row in range(5000)], most=500)
    assert np.unique(large // 1000, return_counts=True)[1].tolist() == [100] * 5
    assert choose_rows(["", "a", "", "a"]).tolist() == [1, 3]


def test_run_without_group_reports_gap(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    files = sorted(photos.rglob("*.jpg"))
    rows = [f"{file.name},{file.parent.name},p{number // 3}" for number, file in enumerate(files)]
    (tmp_path / "t.csv").write_text("\n".join(["file,label,plant_id", *rows]) + "\n")
    how = {"images": [photos], "path": "file", "label": "label", "encoder": "test_resnet", "weights": tiny_weights, "workers": 1}
    how |= {"input_px": 64, "engine": "torch", "precision": "f32"}
    events: list[Event] = []
    result = fit(tmp_path / "t.csv", out=tmp_path / "out", on_event=events.append, epochs=2, head="linear", **how)
    gap = json.loads(json.dumps(result.to_dict(), default=str))["group_gap"]
    assert (gap["column"], gap["num_samples"], gap["num_groups"], gap["metric"]) == ("plant_id", 42, 14, "accuracy")
    (finding,) = [one for one in result.run_record.findings or [] if one.code == "ungrouped"]
    assert finding.evidence["gap"] == gap
    assert result.run_record.group_gap is not None
    said = describe_gap(result.run_record.group_gap)
    assert len([event for event in events if isinstance(event, Note) and said in event.text]) == 1
    assert said in result.to_text()
    assert said.partition("'plant_id'")[0] in result.report.read_text()
    for named in ("plant_id", "none"):
        other = fit(out=tmp_path / "out", on_event=ignore, epochs=2, head="linear", group=named)
        assert "group_gap" not in other.record
        assert said not in other.to_text()
        assert "ungrouped" not in {one.code for one in other.run_record.findings or []}
