"""Limits of the system, told apart by the errors they lead to."""

from __future__ import annotations

import errno

import pytest

from errors import refused
from unchoke.machine import system_limits
from unchoke.machine.system_limits import limit_reached, refuse_no_addresses


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
    monkeypatch.setattr("unchoke.machine.system_limits.soft_limit", lambda name: 1_000_000)
    with refused("out-of-memory"):
        refuse_no_addresses()


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.EIO, "Input/output error"), RuntimeError("shapes differ")])
def test_anything_else_is_not_excused(error: BaseException) -> None:
    assert limit_reached(error) is None


def test_silent_import_failure_is_the_address_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = SystemError("<function _find_and_load> returned NULL without setting an exception")
    monkeypatch.setattr(system_limits, "soft_limit", lambda name: 500_000_000 if name == "RLIMIT_AS" else None)
    found = limit_reached(error)
    assert found is not None
    assert "memory" in found.what
    monkeypatch.setattr(system_limits, "soft_limit", lambda name: None)
    assert limit_reached(error) is None
