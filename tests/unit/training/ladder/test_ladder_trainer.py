"""`--minutes`, from photos to a blend: what it tries, that it goes on after a stop, and that its blend can be used."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from errors import refused
from unchoke.core.events import Event, Note, OnEvent, ignore
from unchoke.training.evaluate import evaluate
from unchoke.training.export_run import export_run
from unchoke.training.fit import fit
from unchoke.training.ladder import rungs
from unchoke.training.predict import predict
from unchoke.training.results import FitResult

FAST = {"encoder": "test_resnet", "input_px": 64, "engine": "torch", "precision": "f32", "workers": 1}
Climb = Callable[..., FitResult]


@pytest.fixture(scope="module", autouse=True)
def short_ladder() -> Iterator[None]:
    """Networks this small have three blocks; nothing takes any time, and two epochs are enough."""
    ladder = [("the last 2 blocks", {"cut": "-2"}), ("the last block", {"cut": "-1"}), ("too many blocks", {"cut": "-99"})]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rungs, "_candidates", lambda settings, pace: ladder)
        patch.setattr(rungs, "_FIXED_S", 0.0)
        patch.setattr(rungs, "_MAX_EPOCHS", 2)
        yield


@pytest.fixture(scope="module")
def climb(photos: Path, tiny_weights: Path, one_torch_thread: None) -> Climb:
    def run(out: Path, *, minutes: float = 5.0, on_event: OnEvent = ignore) -> FitResult:
        result = fit(str(photos), out=out, on_event=on_event, weights=str(tiny_weights), minutes=minutes, **FAST)
        assert isinstance(result, FitResult)
        return result

    return run


@pytest.fixture(scope="module")
def ladder_once(climb: Climb, once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A finished ladder in `out`, and what it told in `notes.json`. Shared: to be read only."""

    def build(folder: Path) -> None:
        told: list[Event] = []
        climb(folder / "out", on_event=told.append)
        (folder / "notes.json").write_text(json.dumps(texts(told)))

    return once("ladder-climbed", build)


@pytest.fixture
def climbed(ladder_once: Path, climb: Climb, tmp_path: Path) -> FitResult:
    """A finished ladder that a test may change."""
    result = climb(Path(shutil.copytree(ladder_once / "out", tmp_path / "out")))
    assert (result.run, result.already_done) == ("exp_1", True)
    return result


def texts(told: list[Event]) -> list[str]:
    return [event.text for event in told if isinstance(event, Note)]


def files_of(result: FitResult) -> dict[str, bytes]:
    kept = ("checkpoints/best_head.pt", "checkpoints/model_1.pt", "predictions.csv")
    return {name: (result.folder / name).read_bytes() for name in kept}


def test_rungs_and_what_they_took(climbed: FitResult, ladder_once: Path) -> None:
    ladder = climbed.run_record.ladder
    names = ["heads on several blocks", "the last 2 blocks", "the last block"]
    assert [one.name for one in ladder] == names
    assert sum(one.share for one in ladder) == pytest.approx(1)
    assert all(one.seconds > 0 and one.val_loss > 0 for one in ladder)
    assert "blend" in {choice.name for choice in climbed.run_record.choices}
    assert climbed.run_record.learning_curve is not None
    assert [one["name"] for one in climbed.to_dict()["ladder"]] == names
    text = climbed.to_text()
    assert all(one.name in text and f"{one.share:.0%}" in text for one in ladder)
    planned = json.loads((climbed.folder / "ladder.json").read_text())
    assert [one["name"] for one in planned] == ["the last 2 blocks", "the last block", "too many blocks"]
    notes = json.loads((ladder_once / "notes.json").read_text())
    assert [name for name in names if any(note.startswith(f"{name}: ") for note in notes)] == names
    assert any(note.startswith("too many blocks") and "-99" in note for note in notes)


def test_blend_predicts_as_recorded_also_exported(climbed: FitResult, photos: Path, tmp_path: Path) -> None:
    import pandas as pd

    told = pd.read_csv(climbed.folder / "predictions.csv").set_index("sample_id")
    places = [climbed.folder, tmp_path / "exported"]
    export_run(climbed.run, places[1], out=climbed.workspace, on_event=ignore)
    for place in places:
        fresh = evaluate(place, on_event=ignore).metrics["test"]
        assert fresh["accuracy"].value == climbed.run_record.metrics["test"]["accuracy"].value
        rows = predict(place, [photos], on_event=ignore).rows
        predicted = {Path(row["path"]).relative_to(photos).as_posix(): row for row in rows}
        for sample_id, row in told[told["split"] == "test"].iterrows():  # val trained the model in the end
            assert predicted[str(sample_id)]["predicted"] == row["predicted"]
            assert predicted[str(sample_id)]["confidence"] == pytest.approx(row["confidence"], abs=2e-3)


def test_more_minutes_go_on_from_what_there_is(climbed: FitResult, climb: Climb) -> None:
    before = {file: file.stat().st_mtime_ns for file in (climbed.workspace / "experiments" / "rungs").rglob("*.pt")}
    longer = climb(climbed.workspace, minutes=8.0)
    assert (longer.run, longer.already_done) == ("exp_2", False)
    assert before
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert files_of(longer)["predictions.csv"] == files_of(climbed)["predictions.csv"]


def test_stopped_ladder_answers_and_resumes_same_bytes(climbed: FitResult, climb: Climb, photos: Path, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Note) and event.text.startswith("next: the last block"):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    root = tmp_path / "stopped"
    with refused("interrupted", "the last block", f"unchoke predict latest PHOTOS --out {root}"):
        climb(root, on_event=stop)
    assert len(predict("latest", [photos], out=root, on_event=ignore).rows) > 0
    assert files_of(climb(root)) == files_of(climbed)


def test_damaged_and_swapped_rungs_are_trained_anew(climbed: FitResult, climb: Climb) -> None:
    damaged, swapped, other = sorted((climbed.workspace / "experiments" / "rungs").iterdir())
    model = damaged / "model.pt"
    model.write_bytes(model.read_bytes()[:-9])
    shutil.rmtree(swapped)
    shutil.copytree(other, swapped)
    told: list[Event] = []
    longer = climb(climbed.workspace, minutes=8.0, on_event=told.append)
    warned = [event.text for event in told if isinstance(event, Note) and event.level == "warning"]
    assert [folder.name for folder in (damaged, swapped, other) if any(str(folder) in text for text in warned)] == [
        damaged.name, swapped.name,
    ]  # fmt: skip
    assert files_of(longer)["predictions.csv"] == files_of(climbed)["predictions.csv"]


def test_folds_beside_minutes_are_refused(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    with refused("options-conflict", "--minutes", "--fold all"):
        fit(str(photos), out=tmp_path / "out", on_event=ignore, minutes=1.0, folds=3, fold="all", weights=str(tiny_weights))


def test_values_are_blended(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    files = sorted(photos.rglob("*.jpg"))
    rows = [f"{file},{weight}" for file, weight in zip(files, np.linspace(1, 9, len(files)), strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["file,weight", *rows]) + "\n")
    columns = {"path": "file", "target": ["weight"], "weights": str(tiny_weights)}
    result = fit(str(tmp_path / "table.csv"), out=tmp_path / "out", on_event=ignore, minutes=5.0, **columns, **FAST)
    assert sum(one.share for one in result.run_record.ladder) == pytest.approx(1)
    assert len(predict(result.run, [photos], out=result.workspace, on_event=ignore).rows) == len(files)
