"""A small sample of `benches/campaign_kills.py`: the campaign itself runs, notices what differs, and goes on where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parents[2] / "benches"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")


def campaign(work: Path, *, num: int) -> tuple[dict[str, Any], str]:
    words = [sys.executable, str(BENCHES / "campaign_kills.py"), "--only", "tile", "--work", str(work), "--json"]
    done = subprocess.run([*words, "--num", str(num)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told, done.stderr


@pytest.mark.campaign
def test_killed_tiling_and_a_campaign_that_goes_on(tmp_path: Path) -> None:
    first, _ = campaign(tmp_path, num=2)
    counts = first["table"]["all"]
    assert counts["kills"] >= 2
    assert counts["equal"] == counts["rounds"] >= 1
    assert first["wrong"] == []
    more, said = campaign(tmp_path, num=counts["kills"] + 1)
    assert more["table"]["all"]["rounds"] > counts["rounds"]
    assert "tile 0:" not in said, "a finished round ran again"


def test_the_outcome_holds_bytes_and_leaves_out_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHES))
    from kill_cases import outcome

    def made(name: str, seconds: float, pixels: bytes) -> dict[str, str]:
        features = tmp_path / name / "w" / "features"
        features.mkdir(parents=True)
        record = {"job_id": "a-0", "inputs": "x", "sha256": "y", "seconds": seconds}
        (features / f"job_a-0_20260101T00000{int(seconds)}.5Z.done").write_text(json.dumps(record))
        (features / "img.npz").write_bytes(pixels)
        return outcome(tmp_path / name)

    assert made("one", 1.0, b"same") == made("two", 2.0, b"same")
    assert made("three", 3.0, b"same") != made("four", 3.0, b"other")
