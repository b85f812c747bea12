"""Where the time went, in words, in numbers and as a picture."""

from __future__ import annotations

from typing import Any

import pytest

from records import as_record
from unchoke.runs.report import timeline_bars as timeline
from unchoke.runs.report.html import render_report
from unchoke.runs.report.text import render_run


def test_stages_add_up_with_before_and_after(groceries: dict[str, Any]) -> None:
    found = timeline.stages(as_record(groceries))
    assert [part.label for part in found] == ["waiting for data", "forward", "backward", "other", "beginning and ending"]
    assert sum(part.share for part in found) == pytest.approx(1, abs=1e-3)
    assert sum(part.seconds for part in found) == pytest.approx(1.62, abs=1e-3)
    assert all(part.meaning for part in found)


def test_run_is_shown_with_stages_and_readers(groceries: dict[str, Any]) -> None:
    text = render_run(as_record(groceries))
    assert "training: where the time went" in text
    assert "making features: inside loading, 2 threads added up" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["decode", "75.0", "%", "1.5", "s", "1,393"] in rows
    assert ["waiting", "for", "data", "9.3", "%", "150", "ms", "90"] in rows


def test_report_draws_bars_for_work_and_loading(groceries: dict[str, Any]) -> None:
    page = render_report(as_record(groceries))
    for words in ("Inside training", "Inside making features", "It spent 9 % waiting for data", "2 threads added up"):
        assert words in page
    assert "bytes to pixels" in page  # every number is explained
    assert "<title>decode: 1.5 s, 75 %</title>" in page
    assert "Epoch by epoch" in page


def test_unknown_stage_is_shown_by_its_name(groceries: dict[str, Any]) -> None:
    groceries["timeline"]["train"]["stages"].append({"stage": "polish", "seconds": 1.0, "share": 0.4, "calls": 3})
    assert "polish" in timeline.render_timeline(as_record(groceries))
    del groceries["timeline"]
    assert timeline.picture(as_record(groceries)) is None
    assert timeline.render_timeline(as_record(groceries)) == ""


def test_a_step_is_told_with_how_it_was_timed() -> None:
    stages = [{"stage": "wait", "seconds": 0.0005}, {"stage": "forward", "seconds": 0.0095}]
    text = timeline.render_step({"num_steps": 3, "seconds": 0.01, "stages": stages}, undisturbed=True)
    assert text.startswith("a step takes 10.0 ms: the mean of 3 steps without the profiler")
    assert ["waiting", "for", "data", "5.0", "%", "0.50", "ms"] in [line.split()[:7] for line in text.splitlines()]
