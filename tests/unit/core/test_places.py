"""What the system says of files and folders becomes three lines; what is not about a place stays what it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from unchoke.core.errors import MachineError
from unchoke.core.places import explain_place


def raised(work: object) -> OSError:
    with pytest.raises(OSError) as caught:
        work()  # type: ignore[operator]
    return caught.value


def test_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "features").write_text("a file")
    for work in (lambda: (tmp_path / "features" / "a" / "b").mkdir(parents=True), lambda: (tmp_path / "features").mkdir()):
        told = explain_place(raised(work))
        assert told is not None
        assert told.code == "place-taken" and str(tmp_path / "features") in told.what
        assert told.try_.startswith(f"mv {tmp_path / 'features'} ")


def test_a_folder_where_a_file_belongs_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.csv").mkdir()
    told = explain_place(raised((tmp_path / "manifest.csv").read_bytes))
    assert told is not None
    assert told.code == "place-taken" and "manifest.csv" in told.what
    (tmp_path / "made").write_text("")
    told = explain_place(raised(lambda: (tmp_path / "made").replace(tmp_path / "manifest.csv")))
    assert told is not None
    assert told.code == "place-taken" and "manifest.csv" in told.what


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_unwritable_place_is_the_hidden_folder(number: int) -> None:
    told = explain_place(OSError(number, os.strerror(number), "/out/.unchoke-x.tmp"))
    assert isinstance(told, MachineError)
    assert told.code == "place-not-usable" and told.what.startswith("/out ")
    assert os.strerror(number) in told.why


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    told = explain_place(raised(Path.cwd))
    assert told is not None and told.code == "working-folder-gone"


def test_a_lost_file_is_said() -> None:
    lost = explain_place(OSError(errno.ENOENT, os.strerror(errno.ENOENT), "/out/a"))
    assert lost is not None
    assert lost.what == "/out/a is gone"


def test_what_is_not_about_a_place_stays_a_bug() -> None:
    assert explain_place(OSError("something of a library's")) is None
    assert explain_place(OSError(errno.EINVAL, "invalid")) is None
