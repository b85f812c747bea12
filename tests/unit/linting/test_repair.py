"""Repairs: to the end, nothing else touched, links and modes kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.linted import FIXABLE, notebook

from unchoke.core.errors import UsageError
from unchoke.linting.repair import put_in_place, repair


def test_every_fix_goes_in_and_one_diff_shows_them_all() -> None:
    done = repair("a.py", b"# \xc3\xa9\r\nslow(1)\r\nslow(2) ; slow(3)\r\n", [FIXABLE])
    assert done is not None
    assert done.data == b"# \xc3\xa9\r\nfast(1)\r\nfast(2) ; fast(3)\r\n"
    assert done.found == []
    assert done.diff.count("@@") == 2
    assert "+fast(2) ; fast(3)" in done.diff


def test_where_nothing_can_be_fixed_there_is_no_repair() -> None:
    assert repair("a.py", b"quick()\n", [FIXABLE]) is None
    assert repair("a.py", b"slow(:\n", [FIXABLE]) is None
    assert repair("a.py", "slow()\n".encode("utf-16"), [FIXABLE]) is None
    assert repair("a.ipynb", notebook("slow()\n").encode("utf-16"), [FIXABLE]) is None


def test_a_notebook_keeps_everything_but_the_cell() -> None:
    before = notebook("x = 1\n", "y = slow(x)\nz = 'ü'")
    done = repair("a.ipynb", before.encode(), [FIXABLE])
    assert done is not None
    assert done.data.decode() == before.replace("slow", "fast")
    assert json.loads(done.data)["cells"][2]["source"] == ["y = fast(x)\n", "z = 'ü'"]
    assert "a.ipynb cell 3 (before)" in done.diff


@pytest.mark.skipif(os.name == "nt", reason="modes and links are those of POSIX")
def test_a_link_stays_a_link_and_a_script_stays_executable(tmp_path: Path) -> None:
    script, link = tmp_path / "train.py", tmp_path / "link.py"
    script.write_text("slow()\n")
    script.chmod(0o750)
    link.symlink_to(script)
    done = repair(str(link), link.read_bytes(), [FIXABLE])
    assert done is not None
    put_in_place(done)
    assert link.is_symlink()
    assert script.read_text() == "fast()\n"
    assert script.stat().st_mode & 0o777 == 0o750


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    done = repair(str(tmp_path / "gone" / "train.py"), b"slow()\n", [FIXABLE])
    assert done is not None
    with pytest.raises(UsageError, match="cannot write"):
        put_in_place(done)
