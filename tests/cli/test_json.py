"""With --json every line is an object, and the last is the result in one shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Type

EVERY_COMMAND = {
    "doctor": ["doctor"],
    "check": ["check", "PHOTOS", "--out", "OUT"],
    "curate": ["curate", "--out", "OUT"],
    "fit": ["fit", "--out", "OUT"],
    "fit --dry-run": ["fit", "--dry-run", "--out", "OUT"],
    "train": ["train", "--out", "OUT"],
    "tune --dry-run": ["tune", "--dry-run", "--out", "OUT"],
    "encoders": ["encoders", "--encoders", "test_resnet", "--out", "OUT"],
    "extract": ["extract", "--out", "OUT"],
    "extract --dry-run": ["extract", "--dry-run", "--out", "OUT"],
    "evaluate": ["evaluate", "--out", "OUT"],
    "predict": ["predict", "latest", "PHOTO", "--out", "OUT"],
    "report": ["report", "--out", "OUT"],
    "runs list": ["runs", "list", "--out", "OUT"],
    "runs show": ["runs", "show", "1", "--out", "OUT"],
    "runs compare": ["runs", "compare", "1", "latest", "--out", "OUT"],
    "runs best": ["runs", "best", "--out", "OUT"],
    "presets list": ["presets", "list"],
    "presets show": ["presets", "show", "biomass"],
    "runs export": ["runs", "export", "1", "EXPORT", "--out", "OUT"],
}


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_last_line_is_the_result(name: str, unchoke: Type, workspace: Path, photos: Path, tmp_path: Path) -> None:
    first = min(photos.rglob("*.jpg"))
    words = {"OUT": workspace, "PHOTOS": photos, "PHOTO": first, "EXPORT": tmp_path / "export"}
    answer = unchoke(*(words.get(word, word) for word in EVERY_COMMAND[name]), "--json")
    assert answer.code == 0, answer.stdout
    assert answer.stderr == ""
    assert all(line["schema"] == 1 for line in answer.lines)
    assert all("event" in line for line in answer.lines[:-1])
    assert set(answer.last) == {"schema", "command", "ok", "result"}
    assert (answer.last["command"], answer.last["ok"]) == (name.partition(" --")[0], True)
    assert answer.result


def test_fit_gives_what_a_script_needs(unchoke: Type, workspace: Path) -> None:
    for command in ("fit", "train"):
        result = unchoke(command, "--out", workspace, "--json").result
        assert (result["run"], result["workspace"], result["already_done"]) == ("exp_1", str(workspace), True)
        assert result["report"] == str(workspace / "experiments" / "exp_1" / "report.html")
        assert Path(result["report"]).is_file()
        assert isinstance(result["metrics"]["test"]["accuracy"], float)
        assert result["timings"]["extract"] > 0
        assert result["images_per_s"] > 0
        assert result["memory"].keys() >= {"planned_bytes", "measured_bytes"}


def test_check_gives_ranked_findings(unchoke: Type, own_photos: Path, tmp_path: Path) -> None:
    files = sorted(own_photos.rglob("*.jpg"))
    files[0].write_bytes(b"")
    (own_photos / "plum" / "again.jpg").write_bytes(files[1].read_bytes())
    answer = unchoke("check", own_photos, "--out", tmp_path / "out", "--json")
    assert (answer.code, answer.last["ok"]) == (1, False)
    findings = answer.last["result"]["findings"]
    keys = {"code", "message", "path", "line", "cell", "stage", "evidence", "expected_gain", "fix", "command", "severity"}
    assert all(keys <= set(finding) for finding in findings)
    ranks = [["error", "warning", "info"].index(finding["severity"]) for finding in findings]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0
    assert any(finding["path"] == str(files[0]) for finding in findings)


def test_extract_with_a_job_redoes_that_one(unchoke: Type, workspace: Path) -> None:
    from unchoke.jobs.queue import JobQueue

    job = JobQueue.load(workspace / "features").jobs()[2]
    before = set((workspace / "features").glob("*.done"))
    result = unchoke("extract", "--job", job.job_id, "--out", workspace, "--json").result
    assert (result["num_jobs"], result["num_images"], result["num_jobs_left"]) == (1, len(job.items), 0)
    after = set((workspace / "features").glob("*.done"))
    assert [job.job_id in file.name for file in after - before] == [True]


def test_predict_gives_rows_and_failures(unchoke: Type, finished: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"x")
    answer = unchoke("predict", "1", photos / "plum", tmp_path / "bad.jpg", "--out", finished, "--json")
    assert (answer.code, answer.last["ok"]) == (1, False)
    result = answer.last["result"]
    assert [bool(row["error"]) for row in result["predictions"]] == [False] * 14 + [True]
    assert set(result["predictions"][0]) == {"path", "predicted", "confidence", "error"}
    assert list(result["failed"]) == [str(tmp_path / "bad.jpg")]


def test_error_is_one_object(unchoke: Type, tmp_path: Path) -> None:
    answer = unchoke("fit", tmp_path / "nowhere", "--out", tmp_path / "out", "--json")
    assert answer.code == 2
    assert (answer.last["ok"], answer.last["command"], answer.stderr) == (False, "fit", "")
    assert set(answer.last["error"]) == {"what", "why", "try", "exit_code", "code"}
    assert (answer.last["error"]["exit_code"], answer.last["error"]["code"]) == (2, "no-such-file")


def test_doctor_gives_facts_and_choices(unchoke: Type) -> None:
    result = unchoke("doctor", "--workers", "1", "--json").result
    assert result["facts"]["cores"] >= 1
    by_name = {choice["name"]: choice for choice in result["choices"]}
    assert by_name["workers"]["value"] == 1
    assert all(choice["reason"] for choice in result["choices"])
