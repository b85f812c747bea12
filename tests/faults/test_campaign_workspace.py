"""A small sample of `benches/campaign_workspace.py`: the campaign itself runs, goes on where it was, and judges by its rules."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parents[2] / "benches"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHES))
    import campaign_workspace

    return campaign_workspace


def run(work: Path, num: int) -> tuple[dict[str, Any], str]:
    words = [sys.executable, str(BENCHES / "campaign_workspace.py"), "--only", "tiles", "--work", str(work), "--json"]
    done = subprocess.run([*words, "--num", str(num)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told, done.stderr


@pytest.mark.campaign
def test_damaged_files_are_noticed_and_it_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("rasterio")
    first, _ = run(tmp_path, 5)
    assert first["table"]["all"]["cases"] == 5
    assert first["wrong"] == []
    more, said = run(tmp_path, 6)
    assert more["table"]["all"]["cases"] == 6
    assert len(said.splitlines()) == 1, "a finished case ran again"


def test_another_answer_without_a_word_is_silent(campaign: Any) -> None:
    told, judge = campaign.Told, campaign.judge
    sound = told(0, {"accuracy": 1.0}, ["usual"])
    assert judge(told(0, {"accuracy": 1.0}, ["usual"]), sound, "w/a.bin") == "harmless"
    assert judge(told(0, {"accuracy": 0.5}, ["usual"]), sound, "w/a.bin") == "SILENT"
    assert judge(told(0, {"accuracy": 0.5}, ["usual", "a.bin is damaged"]), sound, "w/a.bin") == "noticed"
    assert judge(told(1, None, ["a.bin is damaged"]), sound, "w/a.bin") == "refused"
    assert judge(told(70, None, [], "Traceback"), sound, "w/a.bin") == "CRASH"
    assert judge(told(-1, None, [], "HANG"), sound, "w/a.bin") == "HANG"


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "delete", "folder"])
def test_every_harm_changes_its_file(campaign: Any, tmp_path: Path, harm: str) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"some bytes of a file")
    campaign.do_harm(file, harm, random.Random(0))
    assert not file.is_file() or file.read_bytes() != b"some bytes of a file"
