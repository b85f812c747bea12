"""What `check` keeps of its own speed (only of files it looked into, and only where that took long enough), and what it drops."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from unchoke.core.ceilings import Ceiling
from unchoke.core.events import ignore
from unchoke.photos.check_samples import Inspection, check, prepare
from unchoke.photos.manifest import save_manifest
from unchoke.runs.session import open_session


def ceilings(photos: Path, out: Path) -> dict[str, Ceiling]:
    with open_session({"data": str(photos), "workers": 2}, out=out, on_event=ignore) as session:
        prepare(session)
        return session.ceilings


def test_looking_into_files_is_compared_with_one_reader_alone(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unchoke.machine.measure_rate.LEAST_S", 0.0)
    found = ceilings(photos, tmp_path / "out")["check"]
    assert (found.num_items, found.slowest, found.facts) == (42, "reading", {"readers": 2})
    assert {"read", "verify", "decode"} <= found.alone_s.keys()
    assert ceilings(photos, tmp_path / "out") == {}, "all of it is known by now"


def test_a_quick_look_is_not_measured(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unchoke.machine.measure_rate.LEAST_S", 3600.0)
    assert ceilings(photos, tmp_path / "out") == {}


def test_copies_are_dropped_when_asked_for_and_that_is_said(own_photos: Path, tmp_path: Path) -> None:
    original = min(own_photos.rglob("*.jpg"))
    shutil.copy(original, original.with_name("zz_copied.jpg"))
    how = {"on_event": ignore, "workers": 1}
    plain = check(own_photos, out=tmp_path / "plain", **how)
    assert "duplicate-images" in {finding.code for finding in plain.findings}
    dropped = check(own_photos, out=tmp_path / "dropped", drop_duplicates=True, **how)
    assert "duplicate-images" not in {finding.code for finding in dropped.findings}
    assert dropped.num_samples == plain.num_samples - 1
    assert [choice.evidence for choice in dropped.choices if "copies of others" in choice.reason] == [{"dropped": 1}]


def test_copies_that_an_earlier_manifest_tore_apart_keep_their_side_and_are_not_scored(own_photos: Path, tmp_path: Path) -> None:
    def look() -> Inspection:
        with open_session({"data": own_photos, "workers": 1}, out=tmp_path / "out", on_event=ignore) as session:
            prepared = prepare(session)
            save_manifest(prepared.samples, session.workspace.manifest_file)
            return prepared

    before = look()
    assert before.unscored == []
    frame = before.samples.frame
    trained, tested = (frame[(frame["label"] == "apple") & (frame["split"] == side)].iloc[0] for side in ("train", "test"))
    shutil.copy(trained["path"], tested["path"])
    after = look()
    assert after.samples.frame["split"].tolist() == frame["split"].tolist()
    assert after.unscored == [tested["sample_id"]]
    assert "duplicate-across-splits" in {finding.code for finding in after.errors}
