"""A whole `lint`: files and stdin together, the exit code, the JSON form."""

from __future__ import annotations

from pathlib import Path

from tests.linted import BAD, BROKEN, CODE, GOOD, folder_of_three, notebook

from errors import refused
from unchoke.linting.lint_session import run_lint


def test_files_folders_and_stdin_are_read_together(tmp_path: Path) -> None:
    done = run_lint([str(folder_of_three(tmp_path)), "-"], select=[CODE], stdin=BAD.encode())
    assert [item.finding.path for item in done.result.found] == [
        str(tmp_path / "leaves.ipynb"), str(tmp_path / "train.py"), "stdin",
    ]  # fmt: skip
    assert (done.result.files, done.exit_code) == (4, 1)


def test_a_notebook_on_stdin_is_read_as_one() -> None:
    (item,) = run_lint(["-"], select=[CODE], stdin=notebook(BAD).encode()).result.found
    assert (item.finding.cell, item.finding.line, item.finding.path) == (2, 10, "stdin")


def test_unreadable_files_fail_only_if_all_are(tmp_path: Path) -> None:
    broken, good = tmp_path / "broken.py", tmp_path / "good.py"
    broken.write_text(BROKEN)
    good.write_text(GOOD)
    both = run_lint([str(tmp_path)])
    assert (both.exit_code, len(both.result.problems)) == (0, 1)
    assert run_lint([str(broken)]).exit_code == 1
    book = tmp_path / "book.ipynb"
    book.write_text(notebook(BROKEN, GOOD))
    assert run_lint([str(book)]).exit_code == 0
    book.write_text("{")
    assert run_lint([str(book)]).exit_code == 1


def test_folders_that_are_nobodys_source_are_passed_over(tmp_path: Path) -> None:
    for name in (".git", ".venv", "node_modules", "__pycache__", "build", "src"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(BAD)
    (tmp_path / "notes.txt").write_text(BAD)
    assert run_lint([str(tmp_path)]).result.files == 1


def test_a_folder_without_code_is_wrong_usage(tmp_path: Path) -> None:
    with refused("nothing-to-lint", str(tmp_path)):
        run_lint([str(tmp_path)])


def test_json_has_the_whole_place_of_a_finding(tmp_path: Path) -> None:
    done = run_lint([str(folder_of_three(tmp_path))], select=["input"], ignore=[CODE]).to_dict()
    assert CODE not in done["by_rule"]
    done = run_lint([str(tmp_path)], select=[CODE]).to_dict()
    finding = done["findings"][1]
    assert [finding[key] for key in ("line", "column", "end_line", "end_column", "fixable")] == [10, 12, 10, 41, False]
    assert (done["by_rule"], done["files"], done["cells"], done["written"]) == ({CODE: 2}, 3, 5, False)
