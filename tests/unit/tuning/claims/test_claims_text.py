"""Claims as text: a table, a reason for every line, and no number where nothing was measured."""

from __future__ import annotations

from typing import Any

from unchoke.tuning.claims.claims_text import render_claim_list, render_claims

CLAIM: dict[str, Any] = {
    "name": "turbo-jpeg", "title": "another decoder", "reported": "10–20 % faster training", "reported_low": 1.1,
    "reported_high": 1.2, "timed": "an epoch", "needs": ["simplejpeg"], "verdict": "less", "seconds": 3.0,
    "reason": "decoding is 12 % of an epoch",
    "measured": {"ratio": 1.06, "low": 1.04, "high": 1.08, "pairs": 8, "noise": 0.01, "equal": True,
                 "equal_figure": "same pixels", "why": "", "details": {}},
}  # fmt: skip
ABSENT = {**CLAIM, "name": "accelerator", "verdict": "does not apply", "reason": "torch sees no accelerator", "measured": None}
RECORD: dict[str, Any] = {
    "claims": [CLAIM, ABSENT], "machine": {"processor": "a processor", "cores": 2, "accelerators": []},
    "versions": {"torch": "2.13.0"}, "seconds": 75.0, "interrupted": False, "file": None, "date": "2026-11-15", "minutes": 4.0,
}  # fmt: skip


def test_the_table_sets_the_measured_beside_the_reported() -> None:
    line = next(line for line in render_claims(RECORD).splitlines() if line.startswith("turbo-jpeg "))
    assert [part.strip() for part in line.split("  ") if part.strip()] == [
        "turbo-jpeg", "10–20 % faster training (1.10–1.20×)", "1.06×", "1.04–1.08×", "yes", "less",
    ]  # fmt: skip


def test_every_claim_has_its_reason_and_what_was_not_measured_has_no_figure() -> None:
    text = render_claims(RECORD)
    assert "decoding is 12 % of an epoch (same pixels; 8 pairs)" in text
    assert "torch sees no accelerator" in text
    line = next(line for line in text.splitlines() if line.startswith("accelerator "))
    assert "×" not in line.partition(")")[2]


def test_results_that_differ_are_shouted_and_one_pair_has_no_interval() -> None:
    measured = {**CLAIM["measured"], "equal": False, "low": 0.0, "high": None, "pairs": 1}
    text = render_claims({**RECORD, "claims": [{**CLAIM, "measured": measured}]})
    assert "NO" in text
    assert "one pair" in text


def test_the_list_says_what_is_reported_and_what_is_timed() -> None:
    text = render_claim_list([CLAIM])
    assert "10–20 % faster training (1.10–1.20×)" in text
    assert "timed: an epoch" in text
    assert "simplejpeg" in text
