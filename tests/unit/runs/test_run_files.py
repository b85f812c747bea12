"""A finished run vouches for its files; one that is not as it was left is told, and the run does not count as done."""

from __future__ import annotations

from pathlib import Path

import pytest

from errors import refused
from unchoke.core.record import RunRecord
from unchoke.runs.report.json import load_record, save_record
from unchoke.runs.run_files import recall_record, seal_run, unseal_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "exp_1"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "best_head.pt").write_bytes(b"weights")
    for name in ("history.json", "predictions.csv", "report.html"):
        (folder / name).write_text(f"{name}\n")
    save_record(folder / "record.json", RunRecord.of({"run": "exp_1", "notes": ["100 of 120"]}))
    seal_run(folder)
    return folder


def never(text: str) -> None:
    pytest.fail(text)


def test_a_sound_run_is_recalled(folder: Path) -> None:
    (folder / "report.html").write_text("written again")
    record = recall_record(folder, never)
    assert record is not None
    assert record.run == "exp_1"


def test_the_record_of_another_run_does_not_count(folder: Path) -> None:
    told: list[str] = []
    assert recall_record(folder.rename(folder.with_name("exp_2")), told.append) is None
    assert "exp_1" in told[0]


def test_an_edited_record_is_refused(folder: Path) -> None:
    file = folder / "record.json"
    file.write_text(file.read_text().replace("100", "120"))
    with refused("damaged-file", "record.json"):
        load_record(file)


def test_a_record_of_many_brackets_is_refused(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    (folder / "record.json").write_text("[" * 200_000)
    told: list[str] = []
    assert recall_record(folder, told.append) is None
    assert "record.json" in told[0]


@pytest.mark.parametrize("name", ["record.json", "history.json", "predictions.csv", "checkpoints/best_head.pt"])
@pytest.mark.parametrize("lost", [True, False])
def test_any_file_that_is_not_as_it_was_left_is_told(folder: Path, name: str, lost: bool) -> None:
    if lost:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    told: list[str] = []
    assert recall_record(folder, told.append) is None
    assert len(told) == 1
    assert name in told[0]


def test_what_is_made_again_is_not_held_against_the_former(folder: Path) -> None:
    unseal_run(folder)
    (folder / "history.json").write_text("other")
    assert recall_record(folder, never) is not None


def test_a_run_from_before_there_were_seals_is_recalled(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    (folder / "history.json").unlink()
    assert recall_record(folder, never) is not None
