"""New images: one row each, the unreadable named, and the features made as in training."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from errors import refused
from unchoke.core.events import Event, Note, ignore
from unchoke.training.predict import predict


def recorded_tests(workspace: Path, run: str) -> pd.DataFrame:
    """What a run said of its test photos; those of val trained the model that is kept, after they had picked it."""
    table = pd.read_csv(workspace / "experiments" / run / "predictions.csv").set_index("sample_id")
    return table[table["split"] == "test"]


def test_known_images_as_recorded(finished: Path, photos: Path) -> None:
    recorded = recorded_tests(finished, "exp_1")
    found = predict("latest", [photos], out=finished, on_event=ignore)
    assert (found.run, len(found.rows), found.failed) == ("exp_1", 42, {})
    by_id = {Path(row["path"]).relative_to(photos).as_posix(): row for row in found.rows}
    for sample_id, row in recorded.iterrows():
        assert by_id[str(sample_id)]["predicted"] == row["predicted"]
        assert by_id[str(sample_id)]["confidence"] == pytest.approx(row["confidence"], abs=1e-6)


@pytest.mark.parametrize("kind", ["blocks", "tiled"])
def test_pooled_blocks_as_recorded(more_runs: tuple[Path, dict[str, str]], photos: Path, kind: str) -> None:
    out, run = more_runs[0], more_runs[1][kind]
    recorded = recorded_tests(out, run)
    rows = predict(run, [photos], out=out, on_event=ignore).rows
    by_id = {Path(row["path"]).relative_to(photos).as_posix(): row for row in rows}
    for sample_id, row in recorded.iterrows():
        assert by_id[str(sample_id)]["confidence"] == pytest.approx(row["confidence"], abs=1e-5)


def test_bad_image_is_named_and_the_rest_predicted(finished: Path, photos: Path, tmp_path: Path) -> None:
    good = sorted(photos.rglob("*.jpg"))[:2]
    bad = tmp_path / "bad, really.jpg"
    bad.write_bytes(b"nothing like a picture")
    found = predict("1", [good[0], bad, good[1]], out=finished, on_event=ignore, to=str(tmp_path / "p.csv"))
    assert [row["path"] for row in found.rows] == [str(good[0]), str(bad), str(good[1])]
    assert found.rows[1]["predicted"] is None
    assert "unreadable" in found.rows[1]["error"]
    assert list(found.failed) == [str(bad)]
    assert "unreadable" in found.failed[str(bad)]
    assert f"failed\t{bad}" in found.to_text()
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [str(good[0]), str(bad), str(good[1])]
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    assert rows[1]["predicted"] == rows[1]["confidence"] == ""


def test_only_bad_images_give_rows_with_reasons_alone(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"")
    found = predict("1", [tmp_path], out=finished, on_event=ignore)
    reason = "empty: the file has no bytes"
    assert found.rows == [{"path": str(tmp_path / "bad.jpg"), "error": reason}]
    assert list(found.failed.values()) == [reason]


def test_folder_passes_no_picture_over(finished: Path, photos: Path, tmp_path: Path) -> None:
    shutil.copy(min(photos.rglob("*.jpg")), tmp_path / "a.jpg")
    (tmp_path / "b.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (tmp_path / "c.jpg").symlink_to(tmp_path / "nowhere.jpg")
    os.mkfifo(tmp_path / "d.jpg")
    (tmp_path / "notes.txt").write_text("no picture")
    found = predict("1", [tmp_path], out=finished, on_event=ignore)
    assert [Path(row["path"]).name for row in found.rows if not row["error"]] == ["a.jpg"]
    assert {Path(path).name: reason for path, reason in found.failed.items()} == {
        "b.heic": "unreadable: a damaged HEIC picture",
        "c.jpg": "missing: the file is gone",
        "d.jpg": "unreadable: a pipe, not a file",
    }
    assert found.exit_code == 1


def test_guesses_probabilities_and_threshold(finished: Path, photos: Path) -> None:
    recorded = recorded_tests(finished, "exp_1")
    options = {"top": 2, "probabilities": True, "unsure_below": 0.999999}
    found = predict("latest", [photos], out=finished, on_event=ignore, **options)
    by_id = {Path(row["path"]).relative_to(photos).as_posix(): row for row in found.rows}
    columns = [name for name in recorded.columns if name.startswith("p/")]
    assert columns
    for sample_id, row in recorded.iterrows():
        own = by_id[str(sample_id)]
        assert [own[name] for name in columns] == pytest.approx([row[name] for name in columns], rel=1e-3, abs=1e-6)
        assert own["guess"] == row["predicted"] != own["predicted_2"]
    assert found.num_unsure == sum(row["predicted"] == "unsure" for row in found.rows)
    assert "unsure    " in found.to_text()
    assert found.to_dict()["threshold"]["threshold"] == 0.999999


def test_a_table_goes_only_where_a_file_may_lie(finished: Path, photos: Path, tmp_path: Path) -> None:
    photo = min(photos.rglob("*.jpg"))
    shutil.copy(photo, tmp_path / "a.jpg")
    for target in (tmp_path, tmp_path / "a.jpg", Path("/dev/zero")):
        with refused("output-not-writable", str(target), "--to"):
            predict("1", [tmp_path / "a.jpg"], out=finished, on_event=ignore, to=target)
    assert (tmp_path / "a.jpg").read_bytes() == photo.read_bytes()


def test_table_replaces_no_file_of_run_or_data(finished: Path, photos: Path, tmp_path: Path) -> None:
    photo, other = sorted(photos.rglob("*.jpg"))[:2]
    inputs = tmp_path / "inputs.csv"
    inputs.write_text("path,age\n")
    for target in (finished / "manifest.csv", finished / "experiments" / "exp_1" / "checkpoints" / "best_head.pt", other, inputs):
        before = target.read_bytes()
        with refused("output-not-writable", str(target), "--to"):
            predict("1", [photo], out=finished, on_event=ignore, to=target, inputs=inputs)
        assert target.read_bytes() == before


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_photo_whose_name_is_no_utf8(finished: Path, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    shutil.copy(min(photos.rglob("*.jpg")), os.fsencode(folder) + b"/n\xff.jpg")
    predict("1", [folder], out=finished, on_event=ignore, to=tmp_path / "p.csv")
    assert "n\\udcff.jpg" in (tmp_path / "p.csv").read_text(encoding="utf-8")


def test_nothing_to_predict_is_a_wrong_usage(finished: Path, tmp_path: Path) -> None:
    with refused("no-images", str(tmp_path)):
        predict("1", [tmp_path], out=finished, on_event=ignore)
    with refused("no-such-file", "2 of 2"):
        predict("1", [tmp_path / "a.jpg", tmp_path / "b.jpg"], out=finished, on_event=ignore)


def test_device_asked_for_is_used_and_said(finished: Path, photos: Path) -> None:
    files = sorted(photos.rglob("*.jpg"))[::10]
    events: list[Event] = []
    chosen = predict("1", files, out=finished, on_event=events.append, device="cpu")
    usual = predict("1", files, out=finished, on_event=ignore)
    assert [row["predicted"] for row in chosen.rows] == [row["predicted"] for row in usual.rows]
    assert any(isinstance(event, Note) and event.level == "warning" and "--device cpu" in event.text for event in events)


def test_spelling_of_a_path_changes_no_prediction(
    more_runs: tuple[Path, dict[str, str]], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, run = more_runs[0], more_runs[1]["attention"]
    shutil.copy(next(photos.rglob("*.jpg")), tmp_path / "one.jpg")
    monkeypatch.chdir(tmp_path)
    spelt = [predict(run, [path], out=out, on_event=ignore).rows[0] for path in ("one.jpg", tmp_path / "one.jpg")]
    assert spelt[0]["confidence"] == spelt[1]["confidence"]


def test_submission_as_the_sample_has_it(finished: Path, photos: Path, tmp_path: Path) -> None:
    files = sorted(photos.rglob("*.jpg"))[:5][::-1]
    names = [f"{file.parent.name}/{file.name}" for file in files]
    sample, out = tmp_path / "sample_submission.csv", tmp_path / "submission.csv"
    sample.write_text("".join(["Id,Label\n", *(f"{name},apple\n" for name in names)]), "utf-8")
    found = predict("1", [photos], like=sample, to=out, out=finished, on_event=ignore)
    by_path = {row["path"]: row for row in found.rows}
    written = pd.read_csv(out, dtype=str)
    assert written.columns.tolist() == ["Id", "Label"]
    assert written["Id"].tolist() == names
    assert written["Label"].tolist() == [by_path[str(file)]["predicted"] for file in files]
    classes = sorted({file.parent.name for file in photos.rglob("*.jpg")}, reverse=True)
    sample.write_text("".join([f"Id,{','.join(classes)}\n", *(f"{name}{',0' * len(classes)}\n" for name in names)]), "utf-8")
    predict("1", [photos], like=sample, to=out, out=finished, on_event=ignore)
    written = pd.read_csv(out)
    assert written.columns.tolist() == ["Id", *classes]
    assert written[classes].sum(axis=1).tolist() == pytest.approx([1.0] * 5, abs=1e-3)
    sample.write_text("Id,Label\nnowhere,apple\n", "utf-8")
    with refused("ids-without-photo", "nowhere"):
        predict("1", [photos], like=sample, to=out, out=finished, on_event=ignore)


def test_submission_of_values_with_a_row_for_each(value_run: tuple[Path, str], photos: Path, tmp_path: Path) -> None:
    out, run = value_run
    file = min(photos.rglob("*.jpg"))
    name = f"{file.parent.name}/{file.stem}"
    (tmp_path / "sample.csv").write_text(f"sample_id,target\n{name}__rank,0\n{name}__dry_g,0\n", "utf-8")
    found = predict(run, [photos], like=tmp_path / "sample.csv", to=tmp_path / "to.csv", out=out, on_event=ignore)
    row = next(row for row in found.rows if row["path"] == str(file))
    assert pd.read_csv(tmp_path / "to.csv")["target"].tolist() == pytest.approx([row["rank"], row["dry_g"]], rel=1e-6)
