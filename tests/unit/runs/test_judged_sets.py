"""Runs know on which photos they were judged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.conftest import CLASSES, TINY, Once, make_photo

from unchoke.core.events import Event, Note, ignore
from unchoke.core.fingerprint import hash_int
from unchoke.core.record import StoredRun
from unchoke.data.manifest import load_manifest
from unchoke.runs.experiment_store import divided_alike, judged_alike
from unchoke.runs.lookup import best_run, compare_runs, find_run, stored_runs
from unchoke.runs.report.summary import judged_letters
from unchoke.runs.report.text import render_comparison, render_runs_table
from unchoke.training.evaluate import evaluate
from unchoke.training.fit import fit, train
from unchoke.training.predict import predict


@pytest.fixture(scope="session")
def regrouped(photos: Path, finished: Path, tiny_weights: Path, once: Once) -> Path:
    """A workspace with a run without groups, and one with: the same table, the same features. Its notes are beside it."""

    def build(folder: Path) -> None:
        files = sorted(photos.rglob("*.jpg"))
        rows = [f"{file.name},{file.parent.name},p{number // 3}" for number, file in enumerate(files)]
        (folder / "t.csv").write_text("\n".join(["file,label,plant", *rows]) + "\n")
        shutil.copytree(finished / "engines", folder / "out" / "engines")
        how = {"images": [photos], "path": "file", "label": "label", "encoder": TINY, "weights": tiny_weights, "workers": 1}
        fit(folder / "t.csv", out=folder / "out", on_event=ignore, epochs=2, head="linear", **how)
        events: list[Event] = []
        fit(out=folder / "out", on_event=events.append, epochs=2, head="linear", group="plant")
        (folder / "notes.json").write_text(json.dumps([event.text for event in events if isinstance(event, Note)]))

    return once("runs-regrouped", build) / "out"


def test_adding_a_group_divides_anew(regrouped: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(regrouped, tmp_path / "out"))
    manifest = load_manifest(out / "manifest.csv")
    assert manifest is not None
    assert manifest.groupby("group")["split"].nunique().max() == 1
    told = json.loads((regrouped.parent / "notes.json").read_text())
    assert len([note for note in told if "anew" in note and "(exp_1)" in note]) == 1
    again: list[Event] = []
    assert fit(out=out, on_event=again.append, epochs=2, head="linear").already_done
    assert not [event for event in again if isinstance(event, Note) and "anew" in event.text]


def test_earlier_run_keeps_its_figures_and_predicts(regrouped: Path, photos: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(regrouped, tmp_path / "out"))
    found = find_run("exp_1", out=out)
    fresh = evaluate("exp_1", out=out, on_event=ignore)
    assert fresh.metrics["test"]["accuracy"].value == found.record.metrics["test"]["accuracy"].value
    predict("exp_1", [next(photos.rglob("*.jpg"))], out=out, to=tmp_path / "p.csv", on_event=ignore)
    assert (tmp_path / "p.csv").exists()


def test_lists_show_which_photos_judged_each_run(regrouped: Path) -> None:
    listed = render_runs_table(stored_runs(out=regrouped)).splitlines()
    assert listed[0].endswith("photos")
    assert [line.split()[-1] for line in listed[2:4]] == ["a", "b"]
    assert len(listed) > 4, "and a line that says what the letters mean"
    compared = render_comparison(compare_runs(["exp_1", "exp_2"], out=regrouped))
    assert ["test", "photos", "a", "b"] in [line.split() for line in compared.splitlines()]


def test_runs_on_the_same_photos_have_no_letters(regrouped: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(regrouped, tmp_path / "out"))
    train(out=out, on_event=ignore, epochs=1, head="linear")
    same = compare_runs(["exp_2", "exp_3"], out=out)
    assert same[0].judged_sets == same[1].judged_sets
    assert "photos" not in render_comparison(same)
    assert not render_runs_table(same).splitlines()[0].endswith("photos")


def test_best_run_is_divided_as_the_newest(regrouped: Path) -> None:
    found = best_run(out=regrouped)
    assert found.run == "exp_2"
    assert "exp_1" in found.notes[-1]


def test_record_and_database_agree_on_judged_sets(regrouped: Path) -> None:
    out = regrouped
    for run in compare_runs(["exp_1", "exp_2"], out=out):
        folder = out / "experiments" / run.name
        recorded = json.loads((folder / "record.json").read_text())["data"]["split_digests"]
        assert set(recorded) == {"val", "test"}
        assert recorded == run.judged_sets


def judged(run: str, contents: str, labels: str = "l", ids: str = "i") -> StoredRun:
    """A finished run judged on samples of these ids; without contents, one of before they were recorded."""
    data = {"split_digests": {"val": ids}}
    if contents:
        data |= {"content_digests": {"val": contents}, "label_digests": {"val": labels}}
    stored = {"name": run, "key": run, "status": "done", "data": data, "metrics": {"val": {"accuracy": 0.5}}}
    return StoredRun.model_validate({"number": int(run[4:]), **stored})


def test_other_contents_or_labels_are_other_photos() -> None:
    runs = [judged("exp_1", "c"), judged("exp_2", "d"), judged("exp_3", "c", "m"), judged("exp_4", "c")]
    assert judged_letters(runs) == ["a", "b", "c", "a"]
    assert [run.name for run in judged_alike(runs, lambda run: run.data)] == ["exp_1", "exp_4"]


def test_run_without_recorded_contents_goes_by_names() -> None:
    older, one, other, elsewhere = (
        judged("exp_1", ""),
        judged("exp_2", "c"),
        judged("exp_3", "d"),
        judged("exp_4", "c", ids="j"),
    )
    assert judged_letters([older, one, elsewhere]) == ["a", "a", "b"]
    assert judged_letters([older, one]) == ["", ""]
    assert judged_letters([older, one, other]) == ["", "a", "b"]
    assert judged_alike([older, one], lambda run: run.data) == [older, one]
    assert judged_alike([], dict) == []


def test_photos_that_were_replaced_are_not_compared(workspace: Path, own_photos: Path, tiny_weights: Path) -> None:
    for file in own_photos.rglob("*.jpg"):
        make_photo(file, seed=hash_int(file.name) % 1000, colour=CLASSES["plum"])
    how = {"encoder": TINY, "weights": tiny_weights, "workers": 1, "head": "linear", "epochs": 2}
    fit(own_photos, out=workspace, on_event=ignore, **how)
    listed = render_runs_table(stored_runs(out=workspace)).splitlines()
    assert [line.split()[-1] for line in listed[2:4]] == ["a", "b"]
    found = best_run(out=workspace)
    assert found.run == "exp_2"
    assert "exp_1" in found.notes[-1]


def test_groups_and_folds_tell_divisions_apart() -> None:
    settings = [{"group": "plant"}, {}, {"folds": 5}, {"epochs": 3, "group": "none"}]
    assert divided_alike(settings, dict) == [{}, {"epochs": 3, "group": "none"}]
    assert divided_alike([], dict) == []
