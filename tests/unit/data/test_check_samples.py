"""What `check` keeps of its own speed (only of files it looked into, and only where that took long enough), and what it drops."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from unchoke.core.events import ignore
from unchoke.data.check_samples import Inspection, prepare
from unchoke.data.manifest import save_manifest
from unchoke.runs.session import open_session


def test_copies_dropped_when_asked(own_photos: Path, tmp_path: Path) -> None:
    original = min(own_photos.rglob("*.jpg"))
    shutil.copy(original, original.with_name("zz_copied.jpg"))
    for drop, num in ((False, 43), (True, 42)):
        typed = {"data": own_photos, "workers": 1, "drop_duplicates": drop}
        with open_session(typed, out=tmp_path / str(drop), on_event=ignore) as session:
            found = prepare(session)
        assert ("duplicate-images" in {finding.code for finding in found.findings}) != drop
        assert len(found.samples) == num
        assert ({"dropped": 1} in [choice.evidence for choice in session.choices]) == drop


def test_copies_across_earlier_splits_not_scored(own_photos: Path, tmp_path: Path) -> None:
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


def write_pasture(folder: Path, photos: Path, *, days: bool) -> Path:
    """A long table of 20 photos, two to a day, with the targets of the preset."""
    files = sorted(photos.rglob("*.jpg"))[:20]
    lines = ["image_path,target_name,target" + (",Sampling_Date" if days else "")]
    for number, file in enumerate(files):
        clover, dead, green = number % 3, (7 * number) % 20, 5 * number
        values = {"Dry_Clover_g": clover, "Dry_Dead_g": dead, "Dry_Green_g": green}
        values |= {"GDM_g": clover + green, "Dry_Total_g": clover + green + dead}
        day = f",2015/6/{number // 2 + 1}" if days else ""
        lines += [f"{file.relative_to(photos)},{name},{value}{day}" for name, value in values.items()]
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    return folder / "train.csv"


@pytest.mark.parametrize("days", [True, False])
def test_biomass_days_kept_together(photos: Path, tmp_path: Path, days: bool) -> None:
    typed = {"data": write_pasture(tmp_path, photos, days=days), "images": [photos], "preset": "biomass", "expect": "any"}
    with open_session({**typed, "workers": 1}, out=tmp_path / "out", on_event=ignore) as session:
        prepared = prepare(session)
    (split,) = [choice for choice in session.choices if choice.name == "split"]
    assert "stratified by Dry_Total_g" in split.value
    assert ("grouped by Sampling_Date" in split.value) == days
    assert ("no-group-column" in {finding.code for finding in prepared.findings}) != days
    assert prepared.errors == []
    frame = prepared.samples.frame
    assert not days or frame.groupby("group")["fold"].nunique().max() == 1
    assert frame["fold"].nunique() == 5
