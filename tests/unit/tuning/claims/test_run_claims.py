"""The run over the claims: what does not apply, what there is no time for, what an interruption leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import unchoke
from unchoke.core.errors import MachineError, UsageError
from unchoke.core.events import Event, StageDone, ignore
from unchoke.tuning.claims.claim import Claim, DoesNotApply, Measured
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.run_claims import ClaimsResult, ClaimsRun

FOUND = Measured(1.3, 1.25, 1.35, 8, 0.01, True, "the same", "it is so", {"share": 0.5})


def claim(name: str, **changes: Any) -> Claim:
    usual = Claim(name, "a trick", "20–40 % faster", (1.2, 1.4), "a step", lambda bench: FOUND, least_s=0.1)
    return replace(usual, **changes)


def stopped(bench: Bench) -> Measured:
    raise KeyboardInterrupt


def refused(bench: Bench) -> Measured:
    raise DoesNotApply("torch cannot pin memory here")


def full(bench: Bench) -> Measured:
    raise MachineError("the disk is full", why="no room", try_="another disk")


def run(bench: Bench, *claims: Claim, minutes: float = 1.0) -> ClaimsResult:
    return ClaimsRun(bench, list(claims), minutes=minutes, on_event=ignore).result()


def verdicts(result: ClaimsResult) -> dict[str, str]:
    return {outcome.claim.name: outcome.verdict for outcome in result.outcomes}


def test_what_is_measured_gets_a_verdict_and_its_evidence(bench: Bench) -> None:
    (outcome,) = run(bench, claim("fast")).outcomes
    assert outcome.verdict == "as reported"
    assert outcome.reason == "it is so"
    assert outcome.measured == FOUND


def test_what_this_machine_lacks_is_named_and_no_number_is_made_up(bench: Bench) -> None:
    lacking = (claim("card", needs=("accelerator",)), claim("geo", needs=("no_such_package",)), claim("pin", measure=refused))
    result = run(bench, *lacking)
    assert set(verdicts(result).values()) == {"does not apply"}
    assert all(outcome.measured is None for outcome in result.outcomes)
    reasons = [outcome.reason for outcome in result.outcomes]
    assert all(word in reason for word, reason in zip(("accelerator", "no_such_package", "pin"), reasons, strict=True))


def test_a_claim_that_no_longer_fits_is_left_out_with_a_word(bench: Bench) -> None:
    result = run(bench, claim("short"), claim("long", least_s=100.0), minutes=0.5)
    assert verdicts(result) == {"short": "as reported", "long": "not measured"}
    assert "100 s" in result.outcomes[1].reason


def test_one_that_cannot_be_measured_does_not_take_the_others_with_it(bench: Bench) -> None:
    result = run(bench, claim("full", measure=full), claim("fast"))
    assert verdicts(result) == {"full": "not measured", "fast": "as reported"}
    assert "the disk is full" in result.outcomes[0].reason


def test_an_interruption_keeps_what_was_measured(bench: Bench) -> None:
    result = run(bench, claim("fast"), claim("slow", measure=stopped), claim("never"))
    assert verdicts(result) == {"fast": "as reported", "slow": "not measured", "never": "not measured"}
    assert result.interrupted
    assert result.exit_code == 130


def test_the_public_function_keeps_a_file_with_machine_and_versions(bench: Bench, tmp_path: Path) -> None:
    seen: list[Event] = []
    result = unchoke.claims_run(["path-cache"], out=tmp_path / "kept", on_event=seen.append, sizes=bench.sizes)
    kept = json.loads((tmp_path / "kept" / "claims.json").read_text())
    assert kept["claims"][0]["name"] == "path-cache"
    assert kept["claims"][0]["verdict"] == result.outcomes[0].verdict
    assert kept["machine"]["cores"] >= 1
    assert {"unchoke", "python", "torch"} <= set(kept["versions"])
    assert [event.detail for event in seen if isinstance(event, StageDone)] == [result.outcomes[0].verdict]


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(UsageError):
        unchoke.claims_run(minutes=0)
