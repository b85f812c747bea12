"""What the system says of files and folders becomes three lines; what is not about a place stays what it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from unchoke.core.errors import MachineError, UsageError
from unchoke.core.places import explain_place


def raised(work: object) -> OSError:
    with pytest.raises(OSError) as caught:
        work()  # type: ignore[operator]
    return caught.value


def test_a_file_where_a_folder_belongs_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "features").write_text("a file")
    for work in (lambda: (tmp_path / "features" / "a" / "b").mkdir(parents=True), lambda: (tmp_path / "features").mkdir()):
        told = explain_place(raised(work))
        assert isinstance(told, UsageError)
        assert f"{tmp_path / 'features'} is a file" in told.what
        assert told.try_.startswith(f"mv {tmp_path / 'features'} ")


def test_a_folder_where_a_file_belongs_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.csv").mkdir()
    told = explain_place(raised((tmp_path / "manifest.csv").read_bytes))
    assert isinstance(told, UsageError)
    assert "manifest.csv is a folder" in told.what
    (tmp_path / "made").write_text("")
    told = explain_place(raised(lambda: (tmp_path / "made").replace(tmp_path / "manifest.csv")))
    assert told is not None
    assert "manifest.csv is a folder" in told.what


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_place_that_may_not_be_written_is_the_folder_for_hidden_files(number: int) -> None:
    told = explain_place(OSError(number, os.strerror(number), "/out/.unchoke-x.tmp"))
    assert isinstance(told, MachineError)
    assert told.what == "/out cannot be used"
    assert os.strerror(number) in told.why


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    told = explain_place(raised(Path.cwd))
    assert isinstance(told, UsageError)
    assert "no longer exists" in told.what


def test_a_lost_file_is_said() -> None:
    lost = explain_place(OSError(errno.ENOENT, os.strerror(errno.ENOENT), "/out/a"))
    assert lost is not None
    assert lost.what == "/out/a is gone"


def test_what_is_not_about_a_place_stays_a_bug() -> None:
    assert explain_place(OSError("something of a library's")) is None
    assert explain_place(OSError(errno.EINVAL, "invalid")) is None
