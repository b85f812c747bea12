"""What held a run back is shown at its end, in `runs show` and in the report; small gains only in the last two."""

from __future__ import annotations

from typing import Any

from records import as_record
from unchoke.core.findings import Finding
from unchoke.runs.report.html import render_report
from unchoke.runs.report.text import render_fit_result, render_run

CHOKES = [
    Finding(
        "decoded-every-epoch",
        "decoded <4,000> times",
        stage="decode",
        expected_gain="about 36 s",
        command="unchoke x",
    ),
    Finding("slow-copy", "copying takes 4%", severity="info", stage="copy"),
]


def test_a_run_ends_with_what_is_worth_changing(groceries: dict[str, Any]) -> None:
    record = {**groceries, "chokes": [choke.to_dict() for choke in CHOKES]}
    text = render_fit_result(as_record(record))
    assert "what held this run back\nwarning  decoded-every-epoch: decoded <4,000> times" in text
    assert "gain  about 36 s" in text
    assert "run   unchoke x" in text
    assert "slow-copy" not in text


def test_all_of_it_is_shown_in_full(groceries: dict[str, Any]) -> None:
    record = {**groceries, "chokes": [choke.to_dict() for choke in CHOKES]}
    page = render_report(as_record(record))
    assert "slow-copy" in render_run(as_record(record))
    assert "What held this run back" in page
    assert "decoded &lt;4,000&gt; times" in page
    assert "gain: about 36 s" in page


def test_records_without_it_say_nothing_of_it(groceries: dict[str, Any]) -> None:
    assert "held this run back" not in render_run(as_record(groceries))
    assert "held this run back" not in render_report(as_record(groceries))
