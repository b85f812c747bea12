"""`unchoke curate` end to end, and what `check`, `fit` and `predict` make of corrections."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.events import Chosen, Event, Note, StageStarted, ignore
from unchoke.curation.curate import curate
from unchoke.data.check_samples import check
from unchoke.data.corrections import DROP, GROUP, KEEP, LABEL, USE, Correction, append_corrections
from unchoke.runs.session import open_session
from unchoke.training.fit import fit
from unchoke.training.predict import predict
from unchoke.tuning.tune_data import take_sample


@pytest.fixture
def mislabelled(finished: Path, photos: Path, tmp_path: Path) -> tuple[Path, str]:
    """The finished workspace, and a copy of its photos in which one lies in the folder of another class."""
    data = Path(shutil.copytree(photos, tmp_path / "photos"))
    classes = sorted(folder.name for folder in data.iterdir())
    photo = sorted((data / classes[0]).iterdir())[3]
    photo.rename(data / classes[1] / photo.name)
    return Path(shutil.copytree(finished, tmp_path / "out")), f"{classes[1]}/{photo.name}"


def test_photo_in_the_wrong_folder_heads_the_queue(mislabelled: tuple[Path, str], tmp_path: Path) -> None:
    """It is found, kept as data, decided, and the decision taken back."""
    workspace, photo = mislabelled
    result = curate(tmp_path / "photos", csv=tmp_path / "found.csv", out=workspace, on_event=ignore)
    labels = [one for one in result.findings if one.kind == "label"]
    assert labels[0].photos == (photo,)
    saved = json.loads((workspace / "curation" / "findings.json").read_text())
    assert saved["queue"] == result.queue
    assert [one["id"] for one in saved["findings"]] == [one.id for one in result.findings]
    rows = list(csv.DictReader((tmp_path / "found.csv").open()))
    assert [row["id"] for row in rows] == [one.id for one in result.findings]
    page = result.page.read_text()
    assert photo in page
    assert "data:image/jpeg" in page
    assert "unchoke fit" in result.to_text()
    found = labels[0]
    append_corrections(workspace / "corrections.csv", [*found.suggested])
    again = curate(tmp_path / "photos", out=workspace, on_event=ignore)
    assert found.id not in again.queue
    assert again.corrections["labels"] == 1
    append_corrections(workspace / "corrections.csv", [Correction(photo, LABEL, "")])
    assert found.id in curate(tmp_path / "photos", out=workspace, on_event=ignore).queue, "undoing is another line"


def test_a_second_call_measures_and_extracts_nothing(workspace: Path) -> None:
    told: list[Event] = []
    first = curate("exp_1", out=workspace, on_event=ignore)
    assert first.num_photos == 42, "a run may be named instead of data"
    again = curate(out=workspace, on_event=told.append)
    stages = {event.stage for event in told if isinstance(event, StageStarted)}
    assert not stages & {"measure", "extract", "engine"}
    assert [one.to_dict() for one in again.findings] == [one.to_dict() for one in first.findings]


def test_fit_after_corrections_shows_before_and_after(workspace: Path, photos: Path) -> None:
    names = sorted(file.relative_to(photos).as_posix() for file in photos.rglob("*.jpg"))
    drop, tied = names[0], names[1:3]
    append_corrections(
        workspace / "corrections.csv",
        [Correction(drop, USE, DROP), Correction(tied[0], GROUP, tied[1]), Correction(tied[1], USE, KEEP)],
    )
    told: list[Event] = []
    result = fit(out=workspace, on_event=told.append)
    assert not any(isinstance(event, StageStarted) and event.stage == "extract" for event in told)
    choices = {event.choice.name: event.choice for event in told if isinstance(event, Chosen)}
    assert choices["corrections"].value == "3 of 3 decisions"
    held = result.record["corrections"]
    assert (held["run"], held["metric"]) == ("exp_1", "accuracy")
    assert held["used"]["dropped"] == 1
    assert 0 <= held["before"] <= 1
    assert 0 <= held["after"] <= 1
    shown = f"{100 * held['before']:.1f}"
    assert shown in result.to_text()
    assert shown in (workspace / "experiments" / result.run / "report.html").read_text()
    assert fit(out=workspace, corrections="none", on_event=ignore).run == "exp_1", "without them it is the run of before"


def sides_of(workspace: Path) -> dict[str, str]:
    return {row["sample_id"]: row["split"] for row in csv.DictReader((workspace / "manifest.csv").open())}


def test_drops_that_are_taken_back_give_the_earlier_run(workspace: Path) -> None:
    before = sides_of(workspace)
    dropped = [next(photo for photo, side in sorted(before.items()) if side == wanted) for wanted in ("train", "test")]
    file = workspace / "corrections.csv"
    append_corrections(file, [Correction(photo, USE, DROP) for photo in dropped])
    assert fit(out=workspace, on_event=ignore).run == "exp_2"
    assert not set(dropped) & set(sides_of(workspace))
    told: list[Event] = []
    with open_session({}, out=workspace, on_event=told.append) as session:
        take_sample(session, num=4)
    assert [event.choice.value for event in told if isinstance(event, Chosen) and event.choice.name == "corrections"] == [
        "2 of 2 decisions"
    ], "tune says it, too"
    append_corrections(file, [Correction(photo, USE, "") for photo in dropped])
    assert fit(out=workspace, on_event=ignore).run == "exp_1"
    assert sides_of(workspace) == before


def test_groups_that_move_photos_are_told(workspace: Path) -> None:
    before = sides_of(workspace)
    train, tests = ([photo for photo, side in sorted(before.items()) if side == wanted] for wanted in ("train", "test"))
    pairs = zip(tests[:2], train, strict=False)
    append_corrections(workspace / "corrections.csv", [Correction(photo, GROUP, other) for photo, other in pairs])
    told: list[Event] = []
    result = check(out=workspace, on_event=told.append)
    split = next(choice for choice in result.choices if choice.name == "split")
    assert f"{len(before) - 2} samples kept" in split.reason
    assert split.evidence["test"] == len(tests) - 2
    assert any(f"2 of {len(before)} samples" in event.text for event in told if isinstance(event, Note))


def test_findings_of_check_and_unjudged_labels_are_told(
    own_photos: Path, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, program = tmp_path / "asked", tmp_path / "gs"
    program.write_text(f"#!/bin/sh\necho $@ >> {asked}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    first, *others = sorted(own_photos.iterdir())
    for folder in others:
        for file in list(folder.iterdir()):
            file.rename(os.fsdecode(os.fsencode(folder) + b"/caf\xe9 " + os.fsencode(file.name)))
    drawn = min(first.iterdir())
    drawn.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n")
    options = {"encoder": "test_resnet", "weights": str(tiny_weights), "workers": 1, "engine": "torch", "precision": "f32"}
    result = curate(own_photos, out=tmp_path / "out", on_event=ignore, **options)
    assert [one.photos for one in result.findings if one.kind == "unreadable"] == [(f"{first.name}/{drawn.name}",)]
    assert not asked.exists(), "no photo is handed to another program"
    text, page = result.to_text(), result.page.read_text()
    for told in ("error undecodable-name", "error one-class", "not judged"):
        assert told in text
        assert told in page
        assert any(told in note for note in result.to_dict()["notes"])


def test_dropping_bad_files_lets_fit_go_on(own_photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    bad = sorted(own_photos.rglob("*.jpg"))[::6]
    for file in bad:
        file.write_bytes(file.read_bytes()[:60])
    how = {"encoder": "test_resnet", "weights": str(tiny_weights), "workers": 1, "engine": "torch", "precision": "f32"}
    options = {"out": tmp_path / "out", "on_event": ignore, **how}
    with refused("unsound-data"):
        fit(own_photos, **options)
    found = [one for one in curate(own_photos, **options).findings if one.kind == "unreadable"]
    assert {one.photos[0] for one in found} == {file.relative_to(own_photos).as_posix() for file in bad}
    append_corrections(tmp_path / "out" / "corrections.csv", [decision for one in found for decision in one.suggested])
    assert check(own_photos, out=tmp_path / "out", on_event=ignore).ok
    assert fit(own_photos, **options).record["data"]["num_samples"] == 42 - len(bad)
    assert all(file.exists() for file in bad), "photos are never touched"


def test_photos_to_label_next_become_training_photos(workspace: Path, tmp_path: Path, photos: Path) -> None:
    new = tmp_path / "new"
    for file in sorted(photos.rglob("*.jpg"))[:6]:
        from PIL import Image, ImageOps

        new.mkdir(exist_ok=True)
        ImageOps.mirror(Image.open(file)).save(new / file.name)
    result = curate(unlabelled=new, num=4, out=workspace, on_event=ignore)
    head = result.findings[:4]
    assert [one.kind for one in head] == ["next-label"] * 4
    assert result.queue[:4] == [one.id for one in head]
    assert len({one.photos for one in head}) == 4
    append_corrections(workspace / "corrections.csv", head[0].suggested)
    record = fit(out=workspace, on_event=ignore).record
    assert record["data"]["num_samples"] == 43
    manifest = {row["sample_id"]: row for row in csv.DictReader((workspace / "manifest.csv").open())}
    assert manifest[head[0].photos[0]]["split"] == "train"
    dropped = min(photos.rglob("*.jpg")).relative_to(photos).as_posix()
    append_corrections(workspace / "corrections.csv", [Correction(dropped, USE, DROP)])
    with refused("nothing-unlabelled", str(photos)):
        curate(unlabelled=photos, out=workspace, on_event=ignore)
    assert not {one.photos for one in curate(unlabelled=new, num=9, out=workspace, on_event=ignore).findings} & {head[0].photos}


def test_wrong_usage_is_said_before_anything_is_read(workspace: Path) -> None:
    with refused("out-of-range", "--num 0"):
        curate(out=workspace, num=0, on_event=ignore)
    with refused("no-such-file", "nowhere.csv"):
        curate(out=workspace, corrections="nowhere.csv", on_event=ignore)
    with refused("no-images", str(workspace / "experiments" / "exp_1")):
        curate(out=workspace, unlabelled=workspace / "experiments" / "exp_1", on_event=ignore)


def test_corrections_that_leave_nothing_are_refused(workspace: Path, photos: Path) -> None:
    names = sorted(file.relative_to(photos).as_posix() for file in photos.rglob("*.jpg"))
    first = names[0].partition("/")[0]
    file = workspace / "corrections.csv"
    append_corrections(file, [Correction(name, USE, DROP) for name in names if name.startswith(f"{first}/")])
    (empty,) = [one for one in check(out=workspace, on_event=ignore).findings if one.code == "empty-class"]
    assert repr(first) in empty.message
    append_corrections(file, [Correction(name, USE, DROP) for name in names])
    with refused("everything-dropped", str(len(names))):
        check(out=workspace, on_event=ignore)


def test_missing_data_is_not_looked_for_in_the_workspace(tmp_path: Path) -> None:
    with refused("no-such-file", "nonexist") as error:
        curate(tmp_path / "nonexist", out=tmp_path / "w_nonexist", on_event=ignore)
    assert "w_nonexist" not in error.value.try_


def test_predict_judges_by_the_corrected_truth(workspace: Path, photos: Path) -> None:
    rows = list(csv.DictReader((workspace / "experiments" / "exp_1" / "predictions.csv").open()))
    tested = [row for row in rows if row["split"] == "test"]
    image = [min(photos.rglob("*.jpg"))]
    before = predict("exp_1", image, unsure_below=0.01, out=workspace, on_event=ignore)
    wrong = {row["sample_id"]: next(one["truth"] for one in rows if one["truth"] != row["predicted"]) for row in tested}
    append_corrections(workspace / "corrections.csv", [Correction(photo, LABEL, label) for photo, label in wrong.items()])
    after = predict("exp_1", image, unsure_below=0.01, out=workspace, on_event=ignore)
    assert before.threshold is not None
    assert after.threshold is not None
    assert after.threshold.accuracy.value == 0
    assert before.threshold.accuracy.value is not None
    assert before.threshold.accuracy.value > 0
    ignored = predict("exp_1", image, unsure_below=0.01, corrections="none", out=workspace, on_event=ignore)
    assert ignored.threshold == before.threshold
