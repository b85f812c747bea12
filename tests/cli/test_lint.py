"""`unchoke lint` as it is typed: exit codes, streams, formats, fixes, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.linted import BAD, BROKEN, CODE, GOOD, folder_of_three, notebook

if TYPE_CHECKING:
    from tests.cli.conftest import Type

SCRIPT = Path(sys.executable).with_name("unchoke")
ROOT = Path(__file__).resolve().parents[2]
SPECIMENS = ROOT / "tests" / "specimens" / "lint"


def test_findings_are_1_and_on_stdout(unchoke: Type, tmp_path: Path) -> None:
    answer = unchoke("lint", folder_of_three(tmp_path), "--select", CODE)
    assert (answer.code, answer.stderr) == (1, "")
    assert f"{tmp_path / 'train.py'}:10:12: {CODE}: " in answer.stdout
    assert f"{tmp_path / 'leaves.ipynb'}:cell 3:10:12: {CODE}: " in answer.stdout


def test_nothing_found_is_0(unchoke: Type, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "marked.py").write_text(BAD.replace("loc[name]", f"loc[name]  # noqa: {CODE}"))
    answer = unchoke("lint", tmp_path)
    assert answer.code == 0, answer.stdout
    assert answer.stdout.startswith("found    nothing\n")


def test_what_does_not_parse(unchoke: Type, tmp_path: Path) -> None:
    (tmp_path / "book.ipynb").write_text(notebook(GOOD, BROKEN))
    answer = unchoke("lint", tmp_path / "book.ipynb")
    assert answer.code == 0
    assert "book.ipynb:cell 3:1: not read: " in answer.stdout
    (tmp_path / "broken.py").write_text(BROKEN)
    assert unchoke("lint", tmp_path / "broken.py").code == 1


def test_json_is_one_line_by_either_option(unchoke: Type, tmp_path: Path) -> None:
    folder_of_three(tmp_path)
    for typed in (["--json"], ["--format", "json"], ["--json", "--format", "json"]):
        answer = unchoke("lint", tmp_path, "--select", CODE, *typed)
        assert (answer.code, len(answer.lines), answer.stderr) == (1, 1, "")
        assert (answer.last["command"], answer.last["ok"]) == ("lint", False)
        result = answer.last["result"]
        assert [(found["code"], found["cell"], found["line"]) for found in result["findings"]] == [
            (CODE, 3, 10),
            (CODE, None, 10),
        ]
        assert (result["files"], result["cells"], len(result["problems"])) == (3, 5, 1)


def test_sarif_and_github(unchoke: Type, tmp_path: Path) -> None:
    folder_of_three(tmp_path)
    sarif = unchoke("lint", tmp_path, "--select", CODE, "--format", "sarif")
    assert (sarif.code, sarif.stderr) == (1, "")
    log = json.loads(sarif.stdout)
    assert [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]] == [CODE]
    assert len(log["runs"][0]["results"]) == 2
    github = unchoke("lint", tmp_path, "--select", CODE, "--format", "github").stdout.splitlines()
    assert [line.split()[0] for line in github] == ["::warning", "::warning", "::notice"]


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_report_goes_to_a_file(form: str, unchoke: Type, tmp_path: Path) -> None:
    folder_of_three(tmp_path)
    to = tmp_path / "reports" / "lint.out"
    answer = unchoke("lint", tmp_path, "--select", CODE, "--format", form, "--output", to)
    assert answer.code == 1
    assert answer.stdout.startswith("found    2 choke points in 2 files\n")
    assert answer.stdout.endswith(f"wrote  {to}\n")
    text = to.read_text()
    assert CODE in text
    if form in ("json", "sarif"):
        assert json.loads(text)
    again = unchoke("lint", tmp_path, "--select", CODE, "--format", form, "--output", to, "--json")
    assert again.last["result"]["files"] == 3


def test_findings_are_kept_in_a_workspace(unchoke: Type, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD)
    root = tmp_path / "out"
    plain = unchoke("lint", tmp_path / "train.py", "--select", CODE)
    assert not root.exists()
    kept = unchoke("lint", tmp_path / "train.py", "--select", CODE, "--out", root)
    assert (kept.code, kept.stdout.splitlines()[:3]) == (1, plain.stdout.splitlines()[:3])
    assert f"unchoke ui --out {root}" in kept.stderr
    found = json.loads((root / "logs" / "lint.json").read_text())
    assert found["words"] == [str(tmp_path / "train.py"), "--select", CODE]
    assert [one["code"] for one in found["findings"]] == [CODE]


def test_select_and_ignore_take_codes_and_groups(unchoke: Type, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD)

    def codes(*typed: str) -> set[str]:
        return set(unchoke("lint", tmp_path, *typed, "--json").last["result"]["by_rule"])

    assert CODE in codes("--select", f"compute,{CODE}")
    assert CODE in codes("--select", "input")
    assert CODE not in codes("--select", "input", "--ignore", CODE)
    assert CODE not in codes("--ignore", "input")


def test_statistics_rules_and_pages(unchoke: Type, tmp_path: Path) -> None:
    from unchoke.linting.rules import all_rules

    statistics = unchoke("lint", folder_of_three(tmp_path), "--select", CODE, "--statistics")
    assert (statistics.code, "^" in statistics.stdout) == (1, False)
    listed = unchoke("lint", "--list-rules", "--json")
    assert {rule["code"] for rule in listed.result["rules"]} == {loaded.rule.code for loaded in all_rules()}
    assert CODE in unchoke("lint", "--list-rules").stdout
    page = unchoke("lint", "--explain", CODE)
    assert (page.code, CODE in page.stdout) == (0, True)
    assert unchoke("lint", "--explain", CODE, "--json").result["code"] == CODE


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("lint", "nothing-to-lint", "unchoke lint ."),
        ("lint nowhere.py", "no-such-file", "nowhere.py"),
        ("lint . --select stat-per-smple", "unknown-rule", "stat-per-sample"),
        ("lint . --ignore inputs", "unknown-rule", "input"),
        ("lint --explain stat", "unknown-rule", "unchoke lint --list-rules"),
        ("lint . --fix --diff", "options-conflict", "--diff"),
        ("lint - --fix", "fix-needs-file", "--fix"),
        ("lint . --format sarif --diff", "options-conflict", "--diff"),
        ("lint . --format github --statistics", "options-conflict", "--statistics"),
        ("lint . --format sarif --json", "options-conflict", "--output FILE"),
        ("lint . --format xml", "misused-command", "xml"),
    ],
)
def test_wrong_usage_is_2(typed: str, code: str, said: str, unchoke: Type) -> None:
    answer = unchoke(*typed.split())
    assert answer.code == 2
    if "--json" in typed:
        assert (answer.last["error"]["code"], said in answer.last["error"]["try"]) == (code, True)
    else:
        assert (f"[{code}]" in answer.stderr, said in answer.stderr, answer.stdout) == (True, True, ""), answer.stderr


def test_a_report_that_cannot_be_written_is_2(unchoke: Type, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GOOD)
    (tmp_path / "file").write_text("")
    for to in (tmp_path, tmp_path / "file" / "lint.txt"):
        answer = unchoke("lint", tmp_path / "train.py", "--output", to)
        assert (answer.code, answer.stdout) == (2, "")
        assert "[output-not-writable]" in answer.stderr
        assert str(to) in answer.stderr


def test_fix_is_shown_first_and_written_when_asked(unchoke: Type, tmp_path: Path) -> None:
    from unchoke.linting.rules import all_rules

    fixable = [loaded.rule.code for loaded in all_rules() if loaded.rule.fixable]
    specimens = [(code, specimen) for code in fixable for specimen in sorted((SPECIMENS / code).glob("bad_*.*"))]
    assert len(specimens) >= len(fixable) > 3
    for code, specimen in specimens:
        file = Path(shutil.copy(specimen, tmp_path))
        before = file.read_bytes()
        shown = unchoke("lint", file, "--select", code, "--diff", "--json")
        assert file.read_bytes() == before
        if not shown.last["result"]["repaired"]:
            continue
        assert shown.code == 1
        written = unchoke("lint", file, "--select", code, "--fix", "--json").last["result"]
        assert written["repaired"] == shown.last["result"]["repaired"]
        assert file.read_bytes() != before
        after = unchoke("lint", file, "--select", code, "--diff", "--json").last["result"]
        assert after["repaired"] == []
        assert after["findings"] == written["findings"]


def test_a_diff_is_read_before_a_fix_is_written(unchoke: Type, tmp_path: Path) -> None:
    file = Path(shutil.copy(SPECIMENS / "pin-without-cuda" / "bad_torch.py", tmp_path))
    typed = ["lint", file, "--select", "pin-without-cuda"]
    found = unchoke(*typed)
    assert found.stdout.endswith(f"next     unchoke lint {file} --select pin-without-cuda --diff\n")
    shown = unchoke(*typed, "--diff")
    assert (found.code, shown.code) == (1, 1)
    assert f"--- {file} (before)\n" in shown.stdout
    assert shown.stdout.endswith(f"next     unchoke lint {file} --select pin-without-cuda --fix\n")
    written = unchoke(*typed, "--fix")
    assert (written.code, written.stdout.partition("\n\nfix")[0]) == (0, shown.stdout.partition("\n\nfix")[0])
    assert unchoke(*typed).code == 0
    sarif = unchoke(*typed, "--fix", "--format", "sarif")
    assert (sarif.code, json.loads(sarif.stdout)["runs"][0]["results"]) == (0, [])


def test_stdin_is_a_script(tmp_path: Path) -> None:
    done = subprocess.run([SCRIPT, "lint", "-", "--select", CODE], input=BAD, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"stdin:10:12: {CODE}: ")


def test_nothing_heavy_is_loaded(tmp_path: Path) -> None:
    heavy = ["torch", "torchvision", "numpy", "pandas", "PIL", "pyarrow", "timm", "tensorflow", "keras"]
    code = (
        f"import sys\nsys.argv = ['unchoke', 'lint', {str(folder_of_three(tmp_path))!r}]\n"
        "from unchoke.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 1, stop.code\n"
        f"assert not [name for name in {heavy} if name in sys.modules]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_function_has_the_commands_name(tmp_path: Path) -> None:
    import unchoke

    (tmp_path / "train.py").write_text(BAD)
    assert [finding.code for finding in unchoke.lint([tmp_path], select=[CODE]).findings] == [CODE]


def test_hook_refuses_a_commit(tmp_path: Path) -> None:
    """The hook as in .pre-commit-hooks.yaml, but run with this environment: nothing is installed."""
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("pre_commit")
    if shutil.which("git") is None:
        pytest.skip("no git")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    hook |= {"language": "system", "entry": f"{SCRIPT} lint --select {CODE}"}
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "train.py").write_text(BAD)
    (tmp_path / "leaves.ipynb").write_text(notebook(GOOD))
    (tmp_path / "notes.md").write_text("not for it")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run("git", "init", "-q").returncode == 0
    assert run("git", "add", ".").returncode == 0
    refused = run(sys.executable, "-m", "pre_commit", "run", "--all-files")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert f"train.py:10:12: {CODE}" in refused.stdout
    (tmp_path / "train.py").write_text(GOOD)
    assert run("git", "add", ".").returncode == 0
    accepted = run(sys.executable, "-m", "pre_commit", "run", "--all-files")
    assert accepted.returncode == 0, accepted.stdout
