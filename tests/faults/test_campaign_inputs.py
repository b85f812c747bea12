"""A small sample of `benches/campaign_inputs.py`: cases run, are judged by rule, and are not run again once they were ok."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parents[2] / "benches"
SAMPLE = (
    *("strip of 1x20000, predict", "pipe, predict", "link to /dev/zero, predict", "b.heic, predict", "jpeg turned by 5, predict"),
    *("a constant target, fit", "negatives with --positive, fit", "a sum that is none, fit", "RED beside 'red ', fit"),
    *("a single group, fit", "a band shifted by half, tile", "predict --to a link to a file", "predict --to /dev/zero"),
    *("a preset of an encoder nobody knows", "tune --minutes 'nan'", "--sweep '999999999999', fit", "stdout full, doctor"),
    *("files of 1000 bytes, check", "50 MB more addresses, check"),
)

FEW = SAMPLE[1:2] + SAMPLE[5:6] + SAMPLE[10:12]
"""One each of pictures, tables, scenes and outputs."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, limits and devices as Linux has them")


def campaign(work: Path, *words: str) -> tuple[dict[str, Any], str]:
    command = [sys.executable, str(BENCHES / "campaign_inputs.py"), "--work", str(work), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told, done.stderr


@pytest.mark.parametrize("names", [pytest.param(FEW, id="few"), pytest.param(SAMPLE, id="all", marks=pytest.mark.campaign)])
def test_bad_inputs_are_refused_or_named(tmp_path: Path, names: tuple[str, ...]) -> None:
    told, _ = campaign(tmp_path, "--name", "|".join(names))
    assert told["bad"] == []
    assert told["table"]["all"]["ok"] == len(names)
    again, said = campaign(tmp_path, "--name", "|".join(names))
    assert again["table"] == told["table"]
    assert "predict: ok" not in said, "a case that was ok ran again"


def test_the_rule_tells_crashes_silence_and_wrong_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHES))
    from bad_case import BadCase, Due
    from campaign_inputs import judge

    def verdict(due: Due, code: int, said: str, *, says: str = "", peak_bytes: int = 0, timed_out: bool = False) -> str:
        case = BadCase("images", "x", lambda stage, folder: [], due, says)
        return judge(case, code, "", said, timed_out=timed_out, peak_bytes=peak_bytes, as_json=False)[0]

    lines = "error  what\nwhy    fact\ntry    this\n"
    assert verdict("refused", 2, lines) == "ok"
    assert verdict("refused", 0, "") == "silent"
    assert verdict("named", 0, "", says="bad") == "silent"
    assert verdict("named", 0, "warning  bad.jpg", says="bad") == "ok"
    assert verdict("fine", 1, lines) == "wrong"
    assert verdict("handled", 2, "something") == "wrong"
    assert verdict("handled", 70, lines) == "crash"
    assert verdict("handled", -11, "") == "crash"
    assert verdict("handled", 1, f"{lines}Traceback (most recent call last)") == "crash"
    assert verdict("handled", 0, "", peak_bytes=10**11) == "crash"
    assert verdict("handled", 0, "", timed_out=True) == "crash"
    assert verdict("handled", 5, lines) == "wrong"


def test_cases_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHES))
    from bad_inputs import CASES, KINDS

    names = [(case.kind, case.name) for case in CASES]
    assert len(set(names)) == len(names) >= 600
    assert {kind for kind, _ in names} == set(KINDS)
