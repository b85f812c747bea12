"""Runs know on which photos they were judged, those of before by their predictions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.conftest import CLASSES, make_photo

from unchoke.commands.evaluate import evaluate
from unchoke.commands.fit import fit, train
from unchoke.commands.predict import predict
from unchoke.core.events import Event, Note, ignore
from unchoke.core.fingerprint import hash_int
from unchoke.core.record import StoredRun
from unchoke.photos.manifest import load_manifest
from unchoke.reports.summary import judged_letters
from unchoke.reports.text import render_comparison, render_runs_table
from unchoke.runs.judged_sets import divided_alike, judged_alike, with_judged_sets
from unchoke.runs.lookup import best_run, compare_runs, find_run, stored_runs


@pytest.fixture(scope="module")
def regrouped(
    photos: Path, finished: Path, tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Event]]:
    """A workspace with a run without groups, and one with: the same table, the same features."""
    folder = tmp_path_factory.mktemp("regrouped")
    files = sorted(photos.rglob("*.jpg"))
    rows = [f"{file.name},{file.parent.name},p{number // 3}" for number, file in enumerate(files)]
    (folder / "t.csv").write_text("\n".join(["file,label,plant", *rows]) + "\n")
    out = folder / "out"
    shutil.copytree(finished / "engines", out / "engines")
    how = {"images": [photos], "path": "file", "label": "label", "encoder": "test_resnet", "weights": tiny_weights, "workers": 1}
    fit(folder / "t.csv", out=out, on_event=ignore, epochs=2, head="linear", **how)
    events: list[Event] = []
    fit(out=out, on_event=events.append, epochs=2, head="linear", group="plant")
    return out, events


def test_a_group_can_be_added_to_a_workspace_and_that_is_said(regrouped: tuple[Path, list[Event]]) -> None:
    out, events = regrouped
    manifest = load_manifest(out / "manifest.csv")
    assert manifest is not None
    assert manifest.groupby("group")["split"].nunique().max() == 1
    (said,) = [event.text for event in events if isinstance(event, Note) and "drawn anew" in event.text]
    assert "runs before this (exp_1) were judged on other photos" in said
    again: list[Event] = []
    assert fit(out=out, on_event=again.append, epochs=2, head="linear").already_done
    assert not [event for event in again if isinstance(event, Note) and "anew" in event.text]


def test_a_run_of_before_keeps_its_figures_and_still_predicts(
    regrouped: tuple[Path, list[Event]], photos: Path, tmp_path: Path
) -> None:
    out, _ = regrouped
    found = find_run("exp_1", out=out)
    fresh = evaluate("exp_1", out=out, on_event=ignore)
    assert fresh.metrics["test"]["accuracy"].value == found.record.metrics["test"]["accuracy"].value
    predict("exp_1", [next(photos.rglob("*.jpg"))], out=out, to=tmp_path / "p.csv", on_event=ignore)
    assert (tmp_path / "p.csv").exists()


def test_lists_and_comparisons_tell_which_photos_each_was_judged_on(regrouped: tuple[Path, list[Event]]) -> None:
    out, _ = regrouped
    listed = render_runs_table(stored_runs(out=out)).splitlines()
    assert listed[0].endswith("photos")
    assert [line.split()[-1] for line in listed[2:4]] == ["a", "b"]
    assert "different photos" in listed[-1]
    compared = render_comparison(compare_runs(["exp_1", "exp_2"], out=out))
    assert ["test", "photos", "a", "b"] in [line.split() for line in compared.splitlines()]
    assert "cannot be compared" in compared


def test_runs_on_the_same_photos_are_listed_as_ever(regrouped: tuple[Path, list[Event]], tmp_path: Path) -> None:
    out = Path(shutil.copytree(regrouped[0], tmp_path / "out"))
    train(out=out, on_event=ignore, epochs=1, head="linear")
    same = compare_runs(["exp_2", "exp_3"], out=out)
    assert same[0].judged_sets == same[1].judged_sets
    assert "photos" not in render_comparison(same)
    assert "different" not in render_runs_table(same)


def test_the_best_run_is_one_that_was_divided_as_the_newest(regrouped: tuple[Path, list[Event]]) -> None:
    found = best_run(out=regrouped[0])
    assert found.run == "exp_2"
    assert found.notes[-1] == "exp_1 divided the samples otherwise and cannot be compared with it."


def test_the_record_and_the_database_agree_and_older_runs_are_told_by_their_predictions(
    regrouped: tuple[Path, list[Event]],
) -> None:
    out, _ = regrouped
    for run in compare_runs(["exp_1", "exp_2"], out=out):
        folder = out / "experiments" / run.name
        recorded = json.loads((folder / "record.json").read_text())["data"]["split_digests"]
        assert set(recorded) == {"val", "test"}
        assert recorded == run.judged_sets
        older = StoredRun.model_validate({**run.to_dict(), "data": {"num_samples": 42}})
        assert with_judged_sets(older, folder).judged_sets == recorded
        assert with_judged_sets(older, out / "nowhere").judged_sets == {}


def judged(run: str, contents: str, labels: str = "l", ids: str = "i") -> StoredRun:
    """A finished run judged on samples of these ids; without contents, one of before they were recorded."""
    data = {"split_digests": {"val": ids}}
    if contents:
        data |= {"content_digests": {"val": contents}, "label_digests": {"val": labels}}
    stored = {"name": run, "key": run, "status": "done", "data": data, "metrics": {"val": {"accuracy": 0.5}}}
    return StoredRun.model_validate({"number": int(run[4:]), **stored})


def test_the_same_names_with_other_contents_or_labels_are_other_photos() -> None:
    runs = [judged("exp_1", "c"), judged("exp_2", "d"), judged("exp_3", "c", "m"), judged("exp_4", "c")]
    assert judged_letters(runs) == ["a", "b", "c", "a"]
    assert [run.name for run in judged_alike(runs, lambda run: run.data)] == ["exp_1", "exp_4"]


def test_a_run_of_before_contents_were_recorded_goes_with_its_names_where_they_are_of_one_kind() -> None:
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
    how = {"encoder": "test_resnet", "weights": tiny_weights, "workers": 1, "head": "linear", "epochs": 2}
    fit(own_photos, out=workspace, on_event=ignore, **how)
    listed = render_runs_table(stored_runs(out=workspace)).splitlines()
    assert [line.split()[-1] for line in listed[2:4]] == ["a", "b"]
    found = best_run(out=workspace)
    assert found.run == "exp_2"
    assert found.notes[-1].startswith("exp_1 had other photos or labels under the same names")


def test_groups_folds_and_columns_tell_divisions_apart_and_no_group_is_none() -> None:
    settings = [{"group": "plant"}, {}, {"folds": 5}, {"epochs": 3, "group": "none"}]
    assert divided_alike(settings, dict) == [{}, {"epochs": 3, "group": "none"}]
    assert divided_alike([], dict) == []
