"""Two classes: what finding more of the rarer one costs; and what picked the epoch."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from records import as_record
from unchoke.core.record import RunRecord
from unchoke.runs.report.html import learning_curves, render_report
from unchoke.runs.report.two_classes import load_threshold_curves, threshold_curves

NAMES = ["nv", "<mel>"]


def scores(num: int = 300, *, coarse: bool = False) -> tuple[list[bool], list[float]]:
    rng = np.random.default_rng(0)
    truth = rng.random(num) < 0.2
    found = np.clip(rng.normal(0.35 + 0.3 * truth, 0.2), 0, 1)
    return truth.tolist(), (found.round(1) if coarse else found).tolist()


@pytest.mark.parametrize("coarse", [False, True], ids=["distinct", "ties"])
def test_areas_are_those_of_scikit_learn(coarse: bool) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    truth, found = scores(coarse=coarse)
    curves = threshold_curves(list(zip(found, truth, strict=True)), "<mel>", "test")
    assert curves.roc_area == pytest.approx(roc_auc_score(truth, found))
    assert curves.average_precision == pytest.approx(average_precision_score(truth, found))
    assert curves.roc[0] == (0, 0) and curves.roc[-1] == (1, 1)
    assert curves.precision_recall[-1] == (1, sum(truth) / len(truth))


def write_predictions(folder: Path, split: str = "test") -> None:
    with (folder / "predictions.csv").open("w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        rows.writerow(["sample_id", "split", "truth", "predicted", "confidence", "p/nv", "p/<mel>"])
        for number, (is_mel, score) in enumerate(zip(*scores(), strict=True)):
            rows.writerow([f"{number}.jpg", split, NAMES[is_mel], NAMES[score > 0.5], max(score, 1 - score), 1 - score, score])


def record(names: list[str] = NAMES, **more: Any) -> RunRecord:
    return RunRecord.of({"run": "exp_1", "task": {"kind": "classification", "names": names}, **more})


@pytest.mark.parametrize("split", ["test", "val"])
def test_report_draws_both_curves_for_the_rarer_class(tmp_path: Path, split: str) -> None:
    write_predictions(tmp_path, split)
    found = load_threshold_curves(tmp_path, record())
    assert found is not None
    assert (found.positive, found.split, found.num_samples) == ("<mel>", split, 300)
    page = render_report(record(), tmp_path)
    assert "ROC curve, area 0.8" in page and "average precision 0." in page and "&lt;mel&gt;" in page
    assert "ROC curve" not in render_report(record())


def test_nothing_is_drawn_for_other_runs_or_odd_files(tmp_path: Path) -> None:
    assert load_threshold_curves(tmp_path, record()) is None
    write_predictions(tmp_path)
    assert load_threshold_curves(tmp_path, record(["nv", "<mel>", "bkl"])) is None
    assert load_threshold_curves(tmp_path, record(["a", "b"])) is None
    for text in ("", "split,truth\ntest,nv\ntest,<mel>\n", "split,truth,p/nv\ntest,nv,x\ntest,<mel>,0.1\n", "\0\xff"):
        (tmp_path / "predictions.csv").write_text(text)
        assert load_threshold_curves(tmp_path, record()) is None


def test_what_picked_the_epoch_is_drawn_first(groceries: dict[str, Any]) -> None:
    for row in groceries["history"]:
        row["val_log_loss"] = 0.1 * row["epoch"]
    by_loss, by_accuracy = (
        [title for title, _ in learning_curves(as_record({**groceries, "selection_metric": name}))]
        for name in ("log_loss", "accuracy")
    )
    assert by_loss[0] == "Validation log loss (lower is better)"
    assert by_accuracy[0] == "Validation accuracy"
    assert "best one by the first chart, log loss." in render_report(as_record({**groceries, "selection_metric": "log_loss"}))
    assert "Loss (lower is better)" in by_loss and "Loss (lower is better)" in by_accuracy


def test_mixup_explains_a_training_loss_above_the_other(groceries: dict[str, Any]) -> None:
    mixed = [{"config": {"kind": "mlp", "mixup": 0.2}, "picked": True}, {"config": {"kind": "linear"}, "picked": False}]
    assert "Mixup 0.2 trains on blends of two images" in render_report(as_record({**groceries, "sweep": mixed}))
    assert "Mixup" not in render_report(as_record({**groceries, "sweep": mixed[1:]}))


def test_confusions_of_rare_classes_first() -> None:
    uneven = [[900, 60, 0], [4, 6, 0], [1, 0, 9]]
    even = [[90, 9, 1], [4, 96, 0], [1, 0, 99]]
    first = {}
    for name, counts in (("uneven", uneven), ("even", even)):
        page = render_report(record(["nv", "mel", "bkl"], confusion={"test": counts}))
        rows = page[page.index("Most confused") :].split("<tbody>")[1].split("</tr>")
        first[name] = rows[0]
    assert ">mel<" in first["uneven"] and "40 %" in first["uneven"]
    assert ">nv<" in first["even"] and "9 %" in first["even"]
