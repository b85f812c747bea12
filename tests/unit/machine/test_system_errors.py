"""Limits of the system, told apart by the errors they lead to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.errors import MachineError
from unchoke.machine import system_errors
from unchoke.machine.system_errors import explain_place, limit_reached, refuse_no_addresses


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "memory"),
        (ImportError("x.so: failed to map segment from shared object"), "memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "memory"),
        (RuntimeError("can't start new thread"), "thread"),
        (OSError(errno.EMFILE, "Too many open files"), "open"),
        (OSError(errno.ENOSPC, "No space left on device", "/somewhere/file"), "no room left to write file"),
        (OSError(errno.ENOSPC, "No space left on device"), "could not be written"),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), "could not be written"),
        (OSError(errno.EFBIG, "File too large", "/somewhere/file"), "may not become as large"),
    ],
)
def test_a_limit_is_an_error_of_the_machine(error: BaseException, word: str) -> None:
    found = limit_reached(error)
    assert found is not None
    assert word in found.what
    assert found.exit_code == 3
    assert found.why
    assert found.try_


def test_address_limit_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_no_addresses()
    monkeypatch.setattr("unchoke.machine.system_errors.soft_limit", lambda name: 1_000_000)
    with refused("out-of-memory"):
        refuse_no_addresses()


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.EIO, "Input/output error"), RuntimeError("shapes differ")])
def test_anything_else_is_not_excused(error: BaseException) -> None:
    assert limit_reached(error) is None


def test_silent_import_failure_is_the_address_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = SystemError("<function _find_and_load> returned NULL without setting an exception")
    monkeypatch.setattr(system_errors, "soft_limit", lambda name: 500_000_000 if name == "RLIMIT_AS" else None)
    found = limit_reached(error)
    assert found is not None
    assert "memory" in found.what
    monkeypatch.setattr(system_errors, "soft_limit", lambda name: None)
    assert limit_reached(error) is None


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
