"""`--minutes`, from photos to a blend: what it tries, that it goes on after a stop, and that its blend can be used."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unchoke.commands.evaluate import evaluate
from unchoke.commands.export import export_run
from unchoke.commands.fit import fit
from unchoke.commands.predict import predict
from unchoke.core.errors import Interrupted, UsageError
from unchoke.core.events import Note, ignore
from unchoke.training.ladder import rungs


@pytest.fixture(autouse=True)
def short_ladder(monkeypatch):
    """Networks this small have three blocks; and nothing takes any time."""
    ladder = [("the last 2 blocks", {"cut": "-2"}), ("the last block", {"cut": "-1"}), ("too many blocks", {"cut": "-99"})]
    monkeypatch.setattr(rungs, "_candidates", lambda settings: ladder)
    monkeypatch.setattr(rungs, "_FIXED_S", 0.0)


def climb(photos, weights, out, *, minutes=5.0, on_event=ignore):
    return fit(str(photos), out=out, on_event=on_event, encoder="test_resnet", weights=str(weights), workers=1, minutes=minutes)


@pytest.fixture
def climbed(photos, tiny_weights, tmp_path):
    notes = []
    result = climb(photos, tiny_weights, tmp_path / "out", on_event=notes.append)
    return result, [event.text for event in notes if isinstance(event, Note)]


def files_of(result) -> dict[str, bytes]:
    kept = ("checkpoints/best_head.pt", "checkpoints/model_1.pt", "predictions.csv")
    return {name: (result.folder / name).read_bytes() for name in kept}


def test_every_rung_is_told_with_what_it_took_and_what_cannot_be_climbed_is_left_out(climbed):
    result, notes = climbed
    ladder = result.run_record.ladder
    assert [one.name for one in ladder] == ["heads on several blocks", "the last 2 blocks", "the last block"]
    assert sum(one.share for one in ladder) == pytest.approx(1)
    assert all(one.seconds > 0 and one.val_loss > 0 for one in ladder)
    assert any("too many blocks is left out" in note for note in notes)
    assert any(note.startswith("heads on several blocks: ") and "right" in note for note in notes)
    assert any(note.startswith("the last 2 blocks: ") and "together with those before log loss" in note for note in notes)
    assert "blend" in {choice.name for choice in result.run_record.choices}
    text = result.to_text()
    assert all(one.name in text and f"{one.share:.0%}" in text for one in ladder)
    assert "Picked of" not in text
    assert any(note.endswith("everything there is to try was tried") for note in notes)
    assert [one["name"] for one in result.to_dict()["ladder"]] == [one.name for one in ladder]


def test_whether_more_photos_would_help_is_said(climbed):
    result, _ = climbed
    assert result.run_record.learning_curve is not None


def test_a_blend_predicts_and_is_judged_as_the_run_says_also_exported(climbed, photos, tmp_path):
    result, _ = climbed
    told = pd.read_csv(result.folder / "predictions.csv").set_index("sample_id")
    places = [result.folder, tmp_path / "exported"]
    export_run(result.run, places[1], out=result.workspace, on_event=ignore)
    for place in places:
        fresh = evaluate(place, on_event=ignore).metrics["test"]
        assert fresh["accuracy"].value == result.run_record.metrics["test"]["accuracy"].value
        rows = predict(place, [photos], on_event=ignore).rows
        predicted = {Path(row["path"]).relative_to(photos).as_posix(): row for row in rows}
        for sample_id, row in told[told["split"] == "test"].iterrows():  # val trained the model in the end
            assert predicted[sample_id]["predicted"] == row["predicted"]
            assert predicted[sample_id]["confidence"] == pytest.approx(row["confidence"], abs=2e-3)


def test_the_same_minutes_are_found_done_and_more_go_on_from_what_there_is(climbed, photos, tiny_weights, monkeypatch):
    result, _ = climbed
    assert climb(photos, tiny_weights, result.workspace).already_done
    before = {file: file.stat().st_mtime_ns for file in (result.workspace / "experiments" / "rungs").rglob("*.pt")}
    longer = climb(photos, tiny_weights, result.workspace, minutes=8.0)
    assert (longer.run, longer.already_done) == ("exp_2", False)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert files_of(longer)["predictions.csv"] == files_of(result)["predictions.csv"]


def test_stopped_on_the_way_the_best_so_far_is_there_and_the_same_command_ends_as_unbroken(
    climbed, photos, tiny_weights, tmp_path
):
    result, _ = climbed

    def stop(event):
        if isinstance(event, Note) and event.text.startswith("next: the last block"):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    root = tmp_path / "stopped"
    with pytest.raises(Interrupted, match="stopped on request in the last block") as stopped:
        climb(photos, tiny_weights, root, on_event=stop)
    assert "what was trained before that answers" in stopped.value.why
    assert f"unchoke predict latest PHOTOS --out {root}" in stopped.value.try_
    assert len(predict("latest", [photos], out=root, on_event=ignore).rows) > 0
    again = climb(photos, tiny_weights, root)
    assert files_of(again) == files_of(result)


def test_a_rung_that_was_damaged_is_trained_anew_to_the_same_blend(climbed, photos, tiny_weights):
    result, _ = climbed
    model = min((result.workspace / "experiments" / "rungs").rglob("model.pt"))
    model.write_bytes(model.read_bytes()[:-9])
    notes = []
    longer = climb(photos, tiny_weights, result.workspace, minutes=8.0, on_event=notes.append)
    assert any("is not as it was written" in event.text for event in notes if isinstance(event, Note))
    assert files_of(longer)["predictions.csv"] == files_of(result)["predictions.csv"]


def test_a_rung_in_anothers_place_is_trained_anew_to_the_same_blend(climbed, photos, tiny_weights):
    result, _ = climbed
    one, other = sorted((result.workspace / "experiments" / "rungs").iterdir())[:2]
    shutil.rmtree(one)
    shutil.copytree(other, one)
    notes = []
    longer = climb(photos, tiny_weights, result.workspace, minutes=8.0, on_event=notes.append)
    assert any("is not as it was written" in event.text for event in notes if isinstance(event, Note))
    assert files_of(longer)["predictions.csv"] == files_of(result)["predictions.csv"]


def test_what_was_decided_stands_before_a_rung_begins(climbed):
    result, _ = climbed
    planned = json.loads((result.folder / "ladder.json").read_text())
    assert [one["name"] for one in planned] == ["the last 2 blocks", "the last block", "too many blocks"]


def test_folds_and_profiles_are_refused(photos, tiny_weights, tmp_path):
    with pytest.raises(UsageError, match="--minutes cannot be combined with --fold all"):
        fit(str(photos), out=tmp_path / "out", on_event=ignore, minutes=1.0, folds=3, fold="all", weights=str(tiny_weights))


def test_values_are_blended_too(own_photos, tiny_weights, tmp_path):
    files = sorted(own_photos.rglob("*.jpg"))
    weights = np.linspace(1, 9, len(files))
    pd.DataFrame({"file": [str(file) for file in files], "weight": weights}).to_csv(tmp_path / "table.csv", index=False)
    options = {"encoder": "test_resnet", "weights": str(tiny_weights), "workers": 1, "minutes": 5.0}
    result = fit(str(tmp_path / "table.csv"), out=tmp_path / "out", on_event=ignore, path="file", target=["weight"], **options)
    assert sum(one.share for one in result.run_record.ladder) == pytest.approx(1)
    rows = predict(result.run, [own_photos], out=result.workspace, on_event=ignore).rows
    assert len(rows) == len(files)
