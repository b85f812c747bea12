"""What is read is what was written; a kill between the two writes damages nothing; folders without checksums open."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from errors import refused
from unchoke.core import atomic, checksums
from unchoke.core.errors import DataError


def test_the_list_is_one_that_sha256sum_checks(tmp_path: Path) -> None:
    checksums.write_checked(tmp_path / "a.csv", b"one")
    checksums.write_checked(tmp_path / "a.csv", b"two")
    ended = subprocess.run(["sha256sum", "-c", "--strict", checksums.CHECKSUMS], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_one_other_byte_is_refused_with_what_to_do(tmp_path: Path) -> None:
    checksums.write_checked(tmp_path / "a.csv", b"one")
    (tmp_path / "a.csv").write_bytes(b"onf")
    with refused("damaged-file", "a.csv") as caught:
        checksums.read_checked(tmp_path / "a.csv")
    assert isinstance(caught.value, DataError)
    assert checksums.CHECKSUMS in caught.value.try_


def test_a_file_that_nobody_vouches_for_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_bytes(b"before there were checksums")
    checksums.write_checked(tmp_path / "new.csv", b"new")
    assert checksums.read_checked(tmp_path / "old.csv") == b"before there were checksums"
    assert not checksums.has_checksum(tmp_path / "old.csv")


def test_a_file_that_is_gone_is_the_systems_own_error(tmp_path: Path) -> None:
    checksums.write_checked(tmp_path / "a.csv", b"one")
    (tmp_path / "a.csv").unlink()
    with pytest.raises(FileNotFoundError):
        checksums.read_checked(tmp_path / "a.csv")
    assert checksums.has_checksum(tmp_path / "a.csv")


@pytest.mark.parametrize("write_that_fails", [1, 2, 3])
def test_kill_at_any_of_the_three_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_that_fails: int) -> None:
    checksums.write_checked(tmp_path / "a.csv", b"one")
    calls, write_with = 0, atomic.write_with

    def killed(*args: object, **named: object) -> None:
        nonlocal calls
        calls += 1
        if calls >= write_that_fails:
            raise KeyboardInterrupt
        write_with(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(atomic, "write_with", killed)
    with pytest.raises(KeyboardInterrupt):
        checksums.write_checked(tmp_path / "a.csv", b"two")
    monkeypatch.undo()
    assert checksums.read_checked(tmp_path / "a.csv") in (b"one", b"two")
    checksums.write_checked(tmp_path / "a.csv", b"two")
    assert checksums.read_checked(tmp_path / "a.csv") == b"two"


def test_damaged_list_is_refused_a_foreign_one_heeded(tmp_path: Path) -> None:
    checksums.write_checked(tmp_path / "a.csv", b"one")
    listed = (tmp_path / checksums.CHECKSUMS).read_text()
    (tmp_path / checksums.CHECKSUMS).write_text(listed[: len(listed) // 2])
    with refused("damaged-file", checksums.CHECKSUMS) as caught:
        checksums.read_checked(tmp_path / "a.csv")
    assert caught.value.try_.startswith("rm ")
    (tmp_path / checksums.CHECKSUMS).write_text(listed.partition("\n")[2])
    assert checksums.read_checked(tmp_path / "a.csv") == b"one"
    (tmp_path / "a.csv").write_bytes(b"other")
    with refused("damaged-file"):
        checksums.read_checked(tmp_path / "a.csv")


def test_a_finished_folder_vouches_for_files_below_it(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "w.bin").write_bytes(b"weights")
    checksums.add_checksums(tmp_path, ["checkpoints/w.bin", "absent.txt"])
    checksums.verify(tmp_path / "checkpoints" / "w.bin")
    (tmp_path / "checkpoints" / "w.bin").write_bytes(b"wEights")
    with refused("damaged-file"):
        checksums.verify(tmp_path / "checkpoints" / "w.bin")
    checksums.drop_checksums(tmp_path, ["checkpoints/w.bin"])
    checksums.verify(tmp_path / "checkpoints" / "w.bin")


def test_archive_without_a_seal_uses_its_own_sums(tmp_path: Path) -> None:
    file = tmp_path / "old.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", bytes(5000))
    checksums.verify(file)
    data = bytearray(file.read_bytes())
    data[2000] ^= 1
    file.write_bytes(data)
    with refused("damaged-file", "old.npz"):
        checksums.verify(file)


@pytest.mark.parametrize("text", ["{", "", "[1]", "[" * 100_000, "\x00"])
def test_senseless_memory_is_told_and_counts_as_absent(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    told: list[str] = []
    assert checksums.recall_json(tmp_path / "m.json", told.append) == {}
    assert len(told) == 1
    assert "m.json" in told[0]


def test_pipe_in_place_of_a_file_is_damage(tmp_path: Path) -> None:
    checksums.write_checked(tmp_path / "a.json", b"1")
    (tmp_path / "a.json").unlink()
    os.mkfifo(tmp_path / "a.json")
    with refused("damaged-file") as caught:
        checksums.read_checked(tmp_path / "a.json")
    assert "a pipe" in caught.value.why
    (tmp_path / checksums.CHECKSUMS).unlink()
    os.mkfifo(tmp_path / checksums.CHECKSUMS)
    with refused("damaged-file", checksums.CHECKSUMS):
        checksums.has_checksum(tmp_path / "a.json")
