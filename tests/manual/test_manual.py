"""The commands of the manual do what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from run_pages import DOCS, FENCE, GROUPS, match_lines, run_page, shape_of

RUN_PAGES = Path(__file__).with_name("run_pages.py")


ONE_PAGE = GROUPS["photos"][:1]


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param(ONE_PAGE, id="one page"),
        *(pytest.param(pages, id=group, marks=pytest.mark.campaign) for group, pages in GROUPS.items()),
    ],
)
def test_commands_do_what_the_page_says(pages: list[str]) -> None:
    """If it fails and what is printed now is right: `make pages` puts it in.

    A process of its own: what commands say of memory depends on what the process held before.
    """
    files = [str(DOCS / page) for page in pages]
    checked = subprocess.run([sys.executable, RUN_PAGES, "--check", *files], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_page_with_commands_is_run() -> None:
    pages = {file.relative_to(DOCS).as_posix(): file.read_text(encoding="utf-8") for file in DOCS.rglob("*.md")}
    marked = {page for page, text in pages.items() if any(block["kind"] == "console" for block in FENCE.finditer(text))}
    assert marked == {page for group in GROUPS.values() for page in group}


def test_lines_are_compared_in_order() -> None:
    printed = ["note  3 photos in 1.2 s", "rate    27 images/s", "report  out/exp_1/report.html"]
    shown = ["note  96 photos in 310 ms", "…", "report  out/exp_2/…"]
    assert [actual for _, actual in match_lines(shown, printed)] == [printed[0], "…", "report …"]
    assert [actual for _, actual in match_lines(shown[::-1], printed)][-1] is None
    assert [actual for _, actual in match_lines(["rate  27 photos/s"], printed)] == [None]
    assert shape_of("forward   1.1 ms  1.3%  ███") == shape_of("forward  22.1 µs  12.3%")


def test_page_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run_pages.DOCS", tmp_path)
    monkeypatch.chdir(tmp_path)
    text = '```text title="a.txt"\none\n```\n\n```console\n$ cat a.txt\ntwo\n$ cat b.txt\n$ false  # exit code 1\n```\n'
    (tmp_path / "page.md").write_text(text)
    written, drifts = run_page("page.md")
    assert [drift.said for drift in drifts] == ["two", "exit code 0"]
    assert written == text
