"""Files set aside are named with their reason, and counted as often as they failed differently."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.jobs.records import QuarantineRow, load_quarantine, save_quarantine


def entry(sample_id: str, reason: str = "truncated: ends early", **more: object) -> QuarantineRow:
    return QuarantineRow(sample_id, f"/data/{sample_id}", "check", reason, **more)  # type: ignore[arg-type]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "quarantine.csv"
    kept = save_quarantine(file, [entry("a.jpg"), entry("b.jpg", "empty: no bytes")])
    assert load_quarantine(file) == kept
    assert file.read_text().splitlines()[0].replace('"', "") == "sample_id,path,stage,reason,times"


@pytest.mark.parametrize("name", ["a,b.jpg", 'quo"te.jpg', "new\nline.jpg", "re\rturn.jpg", "both\r\n.jpg", " ü'.jpg", "-x"])
def test_any_name_survives(tmp_path: Path, name: str) -> None:
    file = tmp_path / "quarantine.csv"
    assert load_quarantine(file) == []
    kept = save_quarantine(file, [entry(name), entry("other")])
    assert load_quarantine(file) == kept == [entry(name), entry("other")]


def test_the_same_reason_counts_once_and_another_counts_on(tmp_path: Path) -> None:
    file = tmp_path / "quarantine.csv"
    save_quarantine(file, [entry("a")])
    assert save_quarantine(file, [entry("a")])[0].times == 1
    assert save_quarantine(file, [entry("a", "empty: no bytes")])[0].times == 2
    assert load_quarantine(file)[0].times == 2


def test_mended_items_leave_and_no_items_no_file(tmp_path: Path) -> None:
    file = tmp_path / "quarantine.csv"
    save_quarantine(file, [entry("a"), entry("b")])
    assert [kept.sample_id for kept in save_quarantine(file, [entry("b")])] == ["b"]
    assert save_quarantine(file, []) == []
    assert not file.exists()
    assert save_quarantine(file, []) == []
