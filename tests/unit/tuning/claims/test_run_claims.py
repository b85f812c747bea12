"""The run over the claims: what does not apply, what there is no time for, what an interruption leaves; and all of it as text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from errors import refused
from unchoke.core.errors import MachineError
from unchoke.core.events import Event, StageDone, ignore
from unchoke.tuning.claims.claim import Claim, ClaimMeasurement, DoesNotApply
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.run_claims import ClaimsResult, ClaimsRun, claims_run, render_claim_list, render_claims

FOUND = ClaimMeasurement(1.3, 1.25, 1.35, 8, 0.01, True, "the same", "it is so", {"share": 0.5})


def claim(name: str, **changes: Any) -> Claim:
    usual = Claim(name, "a trick", "20–40 % faster", (1.2, 1.4), "a step", lambda bench: FOUND, least_s=0.1)
    return replace(usual, **changes)


def stopped(bench: Bench) -> ClaimMeasurement:
    raise KeyboardInterrupt


def unusable(bench: Bench) -> ClaimMeasurement:
    raise DoesNotApply("torch cannot pin memory here")


def full(bench: Bench) -> ClaimMeasurement:
    raise MachineError("the disk is full", code="disk-full", why="no room", try_="another disk")


def run(bench: Bench, *claims: Claim, minutes: float = 1.0) -> ClaimsResult:
    return ClaimsRun(bench, list(claims), minutes=minutes, on_event=ignore).result()


def verdicts(result: ClaimsResult) -> dict[str, str]:
    return {outcome.claim.name: outcome.verdict for outcome in result.outcomes}


def test_what_is_measured_gets_a_verdict_and_its_evidence(bench: Bench) -> None:
    (outcome,) = run(bench, claim("fast")).outcomes
    assert outcome.verdict == "as reported"
    assert outcome.reason == "it is so"
    assert outcome.measured == FOUND


def test_what_this_machine_lacks_has_no_number(bench: Bench) -> None:
    lacking = (claim("card", needs=("accelerator",)), claim("geo", needs=("no_such_package",)), claim("pin", measure=unusable))
    result = run(bench, *lacking)
    assert set(verdicts(result).values()) == {"does not apply"}
    assert all(outcome.measured is None for outcome in result.outcomes)
    reasons = [outcome.reason for outcome in result.outcomes]
    assert all(word in reason for word, reason in zip(("accelerator", "no_such_package", "pin"), reasons, strict=True))


def test_claim_without_time_is_left_out(bench: Bench) -> None:
    result = run(bench, claim("short"), claim("long", least_s=100.0), minutes=0.5)
    assert verdicts(result) == {"short": "as reported", "long": "not measured"}
    assert "100 s" in result.outcomes[1].reason


def test_failing_claim_spares_the_others(bench: Bench) -> None:
    result = run(bench, claim("full", measure=full), claim("fast"))
    assert verdicts(result) == {"full": "not measured", "fast": "as reported"}
    assert "the disk is full" in result.outcomes[0].reason


def test_an_interruption_keeps_what_was_measured(bench: Bench) -> None:
    result = run(bench, claim("fast"), claim("slow", measure=stopped), claim("never"))
    assert verdicts(result) == {"fast": "as reported", "slow": "not measured", "never": "not measured"}
    assert result.interrupted
    assert result.exit_code == 130


def test_result_file_names_machine_and_versions(bench: Bench, tmp_path: Path) -> None:
    seen: list[Event] = []
    result = claims_run(["path-cache"], out=tmp_path / "kept", on_event=seen.append, sizes=bench.sizes)
    kept = json.loads((tmp_path / "kept" / "claims.json").read_text())
    assert kept["claims"][0]["name"] == "path-cache"
    assert kept["claims"][0]["verdict"] == result.outcomes[0].verdict
    assert kept["machine"]["cores"] >= 1
    assert {"unchoke", "python", "torch"} <= set(kept["versions"])
    assert [event.detail for event in seen if isinstance(event, StageDone)] == [result.outcomes[0].verdict]


def test_no_time_at_all_is_refused() -> None:
    with refused("out-of-range", "0"):
        claims_run(minutes=0)


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


def test_unmeasured_claim_has_a_reason_and_no_figure() -> None:
    text = render_claims(RECORD)
    assert "decoding is 12 % of an epoch (same pixels; 8 pairs)" in text
    assert "torch sees no accelerator" in text
    line = next(line for line in text.splitlines() if line.startswith("accelerator "))
    assert "×" not in line.partition(")")[2]


def test_unequal_results_and_single_pairs_are_marked() -> None:
    measured = {**CLAIM["measured"], "equal": False, "low": 0.0, "high": None, "pairs": 1}
    text = render_claims({**RECORD, "claims": [{**CLAIM, "measured": measured}]})
    assert "NO" in text
    assert "one pair" in text


def test_the_list_says_what_is_reported_and_what_is_timed() -> None:
    text = render_claim_list([CLAIM])
    assert "10–20 % faster training (1.10–1.20×)" in text
    assert "timed: an epoch" in text
    assert "simplejpeg" in text
