"""Findings, choices and runs as plain text."""

from __future__ import annotations

from typing import Any

from records import as_record
from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.record import StoredRun
from unchoke.runs.report.html import render_report
from unchoke.runs.report.text import (
    render_comparison,
    render_findings,
    render_fit_result,
    render_run,
    render_runs_table,
)


def test_errors_come_first_with_place_fix_and_command() -> None:
    text = render_findings(
        [
            Finding("sizes", "all images have one size", "info"),
            Finding(
                "truncated",
                "7 files end early",
                "error",
                paths=tuple(f"p/{k}.jpg" for k in range(7)),
                fix="copy again",
                command="unchoke check p",
            ),
        ]
    )
    lines = text.splitlines()
    assert lines[0] == "error    truncated: 7 files end early"
    assert "p/0.jpg, p/1.jpg, p/2.jpg and 4 more" in lines[1]
    assert "fix   copy again" in text
    assert "run   unchoke check p" in text
    assert lines[-1] == "1 error, 1 note"


def test_saved_findings_read_like_fresh_ones() -> None:
    finding = Finding("slow-loop", "a loop over pixels", "warning", path="train.ipynb", cell=3, line=12)
    assert render_findings([finding.to_dict()]) == render_findings([finding])
    assert "train.ipynb cell 3:12" in render_findings([finding])


def test_hostile_names_cannot_steer_the_terminal() -> None:
    text = render_findings([Finding("x", "bad \x1b]0;title\x07", path="a\x1b[2J\nerror  forged.jpg")])
    assert "\x1b" not in text
    assert not any(line.startswith("error") for line in text.splitlines())


def test_fit_ends_with_result_report_and_next_command(groceries: dict[str, Any]) -> None:
    text = render_fit_result(as_record(groceries), report="out/report.html", next_command="unchoke predict exp_1 new/")
    assert text.startswith("exp_1: test accuracy 83.6 % (95 % interval 80.2–86.5 %) on 311 images it was not trained on")
    for words in ("Also: balanced accuracy", "macro F1", "most of it extract", "312 images/s", "report  out/report.html"):
        assert words in text
    assert text.splitlines()[-1] == "next    unchoke predict exp_1 new/"


def test_targets_stand_in_a_table_with_their_sums(network: dict[str, Any]) -> None:
    lines = [line.split("  ") for line in render_fit_result(as_record(network)).splitlines()]
    rows = {cells[0]: [cell.strip() for cell in cells[1:] if cell.strip()] for cells in lines}
    assert rows["test target"] == ["R²", "mean absolute error"]
    assert rows["total = green + dead"] == ["0.500 (0.400 to 0.600)", "0.500 (0.400 to 0.600)"]
    order = [cells[0] for cells in lines]
    assert order.index("green") < order.index("dead") < order.index("total = green + dead")


def test_runs_stand_in_one_table(groceries: dict[str, Any], pasture: dict[str, Any]) -> None:
    stored = {"name": "exp_3", "status": "running", "created_at": "2026-11-15T10:00:00+00:00", "encoder": "resnet50"}
    running = StoredRun(number=3, key="k", **stored)
    lines = render_runs_table([as_record(groceries), as_record(pasture), running]).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["exp_1", "exp_2", "exp_3"]
    assert "83.6 %" in lines[2]
    assert "0.742" in lines[3]
    assert "running" in lines[4]
    assert "unchoke fit" in render_runs_table([])


def test_list_says_what_each_run_trained(groceries: dict[str, Any]) -> None:
    stored = {"status": "done", "created_at": "2026-11-15T10:00:00+00:00", "encoder": "resnet50"}
    picked = Choice("configuration", "mlp, lr 0.001", "the best of 8", {"kind": "mlp"})
    left_out = Choice("unscored", 4, "images are left out of the score")
    heads = StoredRun(number=1, name="exp_1", key="k", settings={"epochs": 7}, choices=[picked, left_out], **stored)
    network = StoredRun(number=2, name="exp_2", key="l", settings={"cut": "-4"}, metrics={"test": {"r2": 0.5}}, **stored)
    lines = render_runs_table([heads, network]).splitlines()
    assert lines[0].split() == ["run", "status", "started", "encoder", "cut", "head", "epochs", "metric", "result"]
    assert lines[2].split()[-3:] == ["end", "mlp", "7"]
    assert lines[3].split()[5:] == ["-4", "20", "test", "R²", "0.500"]
    assert lines[-1] == "exp_1: 4 images are left out of the score"


def test_blend_is_listed_as_one() -> None:
    stored = {"created_at": "2026-11-15T10:00:00+00:00", "encoder": "resnet50", "settings": {"minutes": 2.0}}
    choices = [Choice("configuration", "linear", "alone", {"kind": "linear"}), Choice("blend", "70 % heads", "lowest loss")]
    done = StoredRun(number=1, name="exp_1", key="k", status="done", choices=choices, **stored)
    stopped = StoredRun(number=2, name="exp_2", key="l", status="stopped", **stored)
    lines = render_runs_table([done, stopped]).splitlines()
    assert [line.split()[4:] for line in lines[2:]] == [["resnet50", "blend"]] * 2


def test_the_configuration_that_was_picked_is_said(groceries: dict[str, Any]) -> None:
    sweep = [
        {"config": {"kind": "linear", "lr": 0.003, "epochs": 20}, "val_metric": 0.8, "picked": False},
        {
            "config": {"kind": "mlp", "lr": 0.001, "epochs": 20},
            "val_metric": 0.9,
            "best_epoch": 4,
            "num_epochs": 9,
            "picked": True,
        },
    ]
    record = as_record({**groceries, "sweep": sweep, "selection_metric": "accuracy"})
    sentence = "Picked of 2 configurations by validation accuracy 90.0 %, epoch 4 of 9: mlp, lr 0.001."
    assert sentence in render_fit_result(record)
    assert sentence in render_run(record)
    assert "Picked of" not in render_fit_result(as_record({**groceries, "sweep": sweep[1:]}))
    solved = [sweep[0], {**sweep[1], "config": {"kind": "linear", "epochs": 11, "solver": "lbfgs"}}]
    words = "penalty 4 of 9: linear, solved for one penalty after the other, from strong to weak."
    assert words in render_fit_result(as_record({**groceries, "sweep": solved, "selection_metric": "accuracy"}))


def test_a_score_that_counts_what_was_trained_on_says_so(groceries: dict[str, Any]) -> None:
    leak = {"code": "duplicate-across-splits", "message": "11 images stored several times", "severity": "error"}
    before = as_record({**groceries, "findings": [leak]})
    assert "The score counts what was trained on: 11 images stored several times." in render_fit_result(before)
    assert "it was not trained on" not in render_fit_result(before)
    assert "it was not trained on" in render_fit_result(as_record(groceries))
    row = {"sample_id": "a", "split": "test", "code": "duplicate-across-splits", "reason": "a copy"}
    since = render_run(as_record({**groceries, "findings": [leak], "unscored": [row]}))
    assert "counts what was trained on" not in since
    assert "Left out of the score: 1 image, 1 with a copy in another split." in since


def test_comparison_shows_only_differing_settings(groceries: dict[str, Any]) -> None:
    other = {
        **groceries,
        "run": "exp_9",
        "encoder": {**groceries["encoder"], "precision": "f32"},
        "metrics": {"test": {"accuracy": 0.5}},
    }
    lines = render_comparison([as_record(groceries), as_record(other)]).splitlines()
    rows = {line.split("  ")[0]: line for line in lines}
    assert "83.6 %" in rows["test accuracy"]
    assert "50.0 %" in rows["test accuracy"]
    assert rows["encoder precision"].split()[-2:] == ["bf16", "f32"]
    assert "encoder dim" not in rows


def test_an_empty_record_still_has_a_text() -> None:
    assert "no score" in render_fit_result(as_record({}))
    assert "no score" in render_run(as_record({}))
    assert render_comparison([as_record({})] * 2)


CHOKES = [
    Finding(
        "decoded-every-epoch",
        "decoded <4,000> times",
        stage="decode",
        evidence={"saved_s": 36.0, "gain_share": 0.4},
        expected_gain="about 36 s",
        command="unchoke x",
    ),
    Finding("slow-copy", "copying takes 4%", severity="info", stage="copy"),
]


def test_what_held_a_run_back(groceries: dict[str, Any]) -> None:
    record = as_record({**groceries, "chokes": [choke.to_dict() for choke in CHOKES]})
    text, page = render_fit_result(record), render_report(record)
    assert "what held this run back\nwarning  decoded-every-epoch: decoded <4,000> times" in text
    assert "gain  about 36 s" in text and "run   unchoke x" in text
    assert "slow-copy" not in text and "slow-copy" in render_run(record)
    assert all(words in page for words in ("What held this run back", "decoded &lt;4,000&gt; times", "gain: about 36 s"))
    small = CHOKES[0].to_dict() | {"evidence": {"saved_s": 20.0, "gain_share": 0.4}}
    assert "held this run back" not in render_fit_result(as_record({**groceries, "chokes": [small]})), "nobody would run it again"
    assert "held this run back" not in render_run(as_record(groceries)) + render_report(as_record(groceries))
