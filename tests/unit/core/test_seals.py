"""What is read is what was written; a kill between file and seal damages nothing; folders without seals open."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from errors import refused
from unchoke.core import atomic, seals
from unchoke.core.errors import DataError


def test_what_was_written_is_read(tmp_path: Path) -> None:
    seals.write_sealed(tmp_path / "a.csv", b"one")
    seals.write_sealed(tmp_path / "a.csv", b"two")
    seals.write_sealed(tmp_path / "b.csv", b"three")
    assert (seals.read_sealed(tmp_path / "a.csv"), seals.read_sealed(tmp_path / "b.csv")) == (b"two", b"three")


def test_the_list_is_one_that_sha256sum_checks(tmp_path: Path) -> None:
    seals.write_sealed(tmp_path / "a.csv", b"one")
    seals.write_sealed(tmp_path / "a.csv", b"two")
    ended = subprocess.run(["sha256sum", "-c", "--strict", seals.SEALS], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_one_other_byte_is_refused_with_what_to_do(tmp_path: Path) -> None:
    seals.write_sealed(tmp_path / "a.csv", b"one")
    (tmp_path / "a.csv").write_bytes(b"onf")
    with refused("damaged-file", "a.csv") as caught:
        seals.read_sealed(tmp_path / "a.csv")
    assert isinstance(caught.value, DataError)
    assert seals.SEALS in caught.value.try_


def test_a_file_that_nobody_vouches_for_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_bytes(b"before there were seals")
    seals.write_sealed(tmp_path / "new.csv", b"new")
    assert seals.read_sealed(tmp_path / "old.csv") == b"before there were seals"
    assert not seals.is_sealed(tmp_path / "old.csv")


def test_a_file_that_is_gone_is_the_systems_own_error(tmp_path: Path) -> None:
    seals.write_sealed(tmp_path / "a.csv", b"one")
    (tmp_path / "a.csv").unlink()
    with pytest.raises(FileNotFoundError):
        seals.read_sealed(tmp_path / "a.csv")
    assert seals.is_sealed(tmp_path / "a.csv")


@pytest.mark.parametrize("write_that_fails", [1, 2, 3])
def test_kill_at_any_of_the_three_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_that_fails: int) -> None:
    seals.write_sealed(tmp_path / "a.csv", b"one")
    calls, write_with = 0, atomic.write_with

    def killed(*args: object, **named: object) -> None:
        nonlocal calls
        calls += 1
        if calls >= write_that_fails:
            raise KeyboardInterrupt
        write_with(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(atomic, "write_with", killed)
    with pytest.raises(KeyboardInterrupt):
        seals.write_sealed(tmp_path / "a.csv", b"two")
    monkeypatch.undo()
    assert seals.read_sealed(tmp_path / "a.csv") in (b"one", b"two")
    seals.write_sealed(tmp_path / "a.csv", b"two")
    assert seals.read_sealed(tmp_path / "a.csv") == b"two"


def test_damaged_list_is_refused_a_foreign_one_heeded(tmp_path: Path) -> None:
    seals.write_sealed(tmp_path / "a.csv", b"one")
    listed = (tmp_path / seals.SEALS).read_text()
    (tmp_path / seals.SEALS).write_text(listed[: len(listed) // 2])
    with refused("damaged-file", seals.SEALS) as caught:
        seals.read_sealed(tmp_path / "a.csv")
    assert caught.value.try_.startswith("rm ")
    (tmp_path / seals.SEALS).write_text(listed.partition("\n")[2])
    assert seals.read_sealed(tmp_path / "a.csv") == b"one"
    (tmp_path / "a.csv").write_bytes(b"other")
    with refused("damaged-file"):
        seals.read_sealed(tmp_path / "a.csv")


def test_a_finished_folder_vouches_for_files_below_it(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "w.bin").write_bytes(b"weights")
    seals.seal_files(tmp_path, ["checkpoints/w.bin", "absent.txt"])
    seals.verify(tmp_path / "checkpoints" / "w.bin")
    (tmp_path / "checkpoints" / "w.bin").write_bytes(b"wEights")
    with refused("damaged-file"):
        seals.verify(tmp_path / "checkpoints" / "w.bin")
    seals.unseal(tmp_path, ["checkpoints/w.bin"])
    seals.verify(tmp_path / "checkpoints" / "w.bin")


def test_archive_without_a_seal_uses_its_own_sums(tmp_path: Path) -> None:
    file = tmp_path / "old.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", bytes(5000))
    seals.verify(file)
    data = bytearray(file.read_bytes())
    data[2000] ^= 1
    file.write_bytes(data)
    with refused("damaged-file", "old.npz"):
        seals.verify(file)


@pytest.mark.parametrize("text", ["{", "", "[1]", "[" * 100_000, "\x00"])
def test_senseless_memory_is_told_and_counts_as_absent(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    told: list[str] = []
    assert seals.recall_json(tmp_path / "m.json", told.append) == {}
    assert len(told) == 1
    assert "m.json" in told[0]


def test_a_memory_comes_back(tmp_path: Path) -> None:
    seals.save_sealed_json(tmp_path / "m.json", {"a": 1})
    assert seals.recall_json(tmp_path / "m.json", lambda _: pytest.fail("nothing to tell")) == {"a": 1}
    assert seals.recall_json(tmp_path / "absent.json", lambda _: pytest.fail("nothing to tell")) == {}


def test_pipe_in_place_of_a_file_is_damage(tmp_path: Path) -> None:
    seals.write_sealed(tmp_path / "a.json", b"1")
    (tmp_path / "a.json").unlink()
    os.mkfifo(tmp_path / "a.json")
    with refused("damaged-file") as caught:
        seals.read_sealed(tmp_path / "a.json")
    assert "a pipe" in caught.value.why
    (tmp_path / seals.SEALS).unlink()
    os.mkfifo(tmp_path / seals.SEALS)
    with refused("damaged-file", seals.SEALS):
        seals.is_sealed(tmp_path / "a.json")
