"""`lint` and the doctor's command line: exit codes, streams, formats, and what is refused."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.doctor.conftest import SLOW, Typed, book_of

CODE, LINE = "no-workers", 7
ROOT = Path(__file__).resolve().parents[2]
BROKEN = "def broken(:\n    pass\n"


def test_findings_exit_1_on_stdout(doctor: Typed, slow_script: Path) -> None:
    answer = doctor("lint", slow_script, "--select", CODE)
    assert (answer.code, answer.stderr) == (1, "")
    assert f"{slow_script}:{LINE}:" in answer.stdout


def test_nothing_found_exits_0(doctor: Typed, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("import os\n\nprint(os.getcwd())\n")
    marked = SLOW.replace("shuffle=True)", f"shuffle=True)  # noqa: {CODE}")
    (tmp_path / "marked.py").write_text(marked)
    assert doctor("lint", tmp_path, "--select", CODE).code == 0


def test_broken_code_is_named(doctor: Typed, tmp_path: Path) -> None:
    (tmp_path / "book.ipynb").write_text(book_of("import os", BROKEN))
    answer = doctor("lint", tmp_path / "book.ipynb", "--json")
    assert answer.code == 0
    assert [(one["cell"], one["line"]) for one in answer.last["result"]["problems"]] == [(2, 1)]
    (tmp_path / "broken.py").write_text(BROKEN)
    assert doctor("lint", tmp_path / "broken.py").code == 1


@pytest.mark.parametrize("typed", [["--json"], ["--format", "json"]])
def test_json_is_one_line(doctor: Typed, slow_script: Path, typed: list[str]) -> None:
    answer = doctor("lint", slow_script, "--select", CODE, *typed)
    assert (answer.code, answer.stdout.count("\n"), answer.last["command"], answer.last["ok"]) == (1, 1, "lint", False)
    (finding,) = answer.last["result"]["findings"]
    wanted = {"code", "message", "path", "line", "cell", "stage", "evidence", "expected_gain", "fix", "command", "kind", "basis"}
    assert (finding["code"], finding["line"], wanted - finding.keys()) == (CODE, LINE, set())


def test_sarif_and_github(doctor: Typed, slow_script: Path) -> None:
    log = json.loads(doctor("lint", slow_script, "--select", CODE, "--format", "sarif").stdout)
    run = log["runs"][0]
    assert ([rule["id"] for rule in run["tool"]["driver"]["rules"]], len(run["results"])) == ([CODE], 1)
    github = doctor("lint", slow_script, "--select", CODE, "--format", "github").stdout
    assert github.startswith("::warning ")
    assert f"line={LINE}" in github


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_report_to_a_file(doctor: Typed, slow_script: Path, tmp_path: Path, form: str) -> None:
    to = tmp_path / "reports" / "lint.out"
    answer = doctor("lint", slow_script, "--select", CODE, "--format", form, "--output", to)
    assert (answer.code, str(to) in answer.stdout, CODE in to.read_text()) == (1, True, True)
    if form in ("json", "sarif"):
        assert json.loads(to.read_text())


def test_workspace_keeps_findings(doctor: Typed, slow_script: Path, tmp_path: Path) -> None:
    doctor("lint", slow_script, "--select", CODE, "--out", tmp_path / "out")
    kept = json.loads((tmp_path / "out" / "logs" / "lint.json").read_text())
    assert [one["code"] for one in kept["findings"]] == [CODE]


def test_select_and_ignore(doctor: Typed, slow_script: Path) -> None:
    def codes(*typed: str) -> set[str]:
        return {one["code"] for one in doctor("lint", slow_script, *typed, "--json").last["result"]["findings"]}

    assert codes("--select", CODE) == {CODE}
    assert CODE in codes("--select", "loading")
    assert CODE not in codes("--select", "loading", "--ignore", CODE)


def test_rules_and_pages(doctor: Typed) -> None:
    rules = {rule["code"] for rule in doctor("lint", "--list-rules", "--json").last["result"]["rules"]}
    assert CODE in rules
    assert 12 <= len(rules) <= 16
    assert "When this is fine" in doctor("lint", "--explain", CODE).stdout


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("lint", "nothing-to-lint"),
        ("lint nowhere.py", "no-such-file"),
        ("lint . --select no-worker", "unknown-rule"),
        ("lint --explain nothing", "unknown-rule"),
        ("lint . --fix --diff", "options-conflict"),
        ("lint - --fix", "options-conflict"),
        ("lint . --format sarif --diff", "options-conflict"),
        ("lint . --format sarif --json", "options-conflict"),
        ("lint . --format xml", "bad-options"),
        ("lint . --slect x", "no-such-option"),
        ("profile", "nothing-to-profile"),
        ("profile --steps 0 -- python x.py", "bad-options"),
        ("profile -- python nowhere.py", "no-such-file"),
        ("notebook nowhere.ipynb", "no-such-file"),
    ],
)
def test_wrong_usage_exits_2(doctor: Typed, typed: str, code: str) -> None:
    answer = doctor(*typed.split())
    assert answer.code == 2, answer.stderr
    assert f"[{code}]" in answer.stderr or answer.last["error"]["code"] == code


def test_unwritable_report_exits_2(doctor: Typed, slow_script: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for to in (tmp_path, slow_script, pipe, "x" * 300):
        assert "[output-not-writable]" in doctor("lint", slow_script, "--output", to).stderr
    assert slow_script.read_text() == SLOW


def test_stdin_is_a_script(doctor: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SLOW.encode())))
    answer = doctor("lint", "-", "--select", CODE)
    assert answer.code == 1
    assert answer.stdout.startswith("stdin:")


def test_changed_files_only(doctor: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("no git")

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, capture_output=True
        )

    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.py").write_text(SLOW)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    assert doctor("lint", ".", "--changed", "--select", CODE).code == 0
    (tmp_path / "new.py").write_text(SLOW)
    found = doctor("lint", ".", "--changed", "--select", CODE, "--json").last["result"]["findings"]
    assert [Path(one["path"]).name for one in found] == ["new.py"]


def test_trainer_hands_the_words_on(slow_script: Path) -> None:
    from typer.testing import CliRunner

    from unchoke.cli.main import app

    done = CliRunner().invoke(app, ["lint", str(slow_script), "--select", CODE, "--json"])
    assert (done.exit_code, json.loads(done.stdout)["result"]["findings"][0]["line"]) == (1, LINE)
    helped = CliRunner().invoke(app, ["notebook", "--help"])
    assert (helped.exit_code, "--steps" in helped.stdout) == (0, True)


def test_control_characters_are_shown(doctor: Typed, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLOW.replace("shuffle=True)", "shuffle=True)  # \x1b[2J"))
    answer = doctor("lint", tmp_path / "train.py", "--select", CODE)
    assert answer.code == 1
    assert "\x1b" not in answer.stdout
