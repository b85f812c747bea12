"""Scoring again gives exactly what was recorded, or says what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from errors import refused
from unchoke.core import checksums
from unchoke.core.events import ignore
from unchoke.training.evaluate import evaluate, load_predictions
from unchoke.training.export_run import export_run
from unchoke.training.fit import fit, train
from unchoke.training.ladder import rungs


def test_an_evaluation_equals_the_record_to_the_last_bit(finished: Path) -> None:
    record = json.loads((finished / "experiments" / "exp_1" / "record.json").read_text())
    again = evaluate(out=finished, on_event=ignore)
    found = again.to_dict()
    for split, metrics in record["metrics"].items():
        assert found["metrics"][split] == {name: one["value"] for name, one in metrics.items()}
        assert found["intervals"][split] == {name: [one["low"], one["high"]] for name, one in metrics.items()}
    assert set(found["metrics"]) == {"val", "test"}
    assert f"unchoke report exp_1 --out {finished}" in again.to_text()


def test_evaluation_needs_no_images_and_no_weights(workspace: Path) -> None:
    for name in ("engines", "manifest.csv", "unchoke.toml", "checked.parquet"):
        path = workspace / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert evaluate("1", out=workspace, on_event=ignore).to_dict()["run"] == "exp_1"


def test_features_that_are_gone_are_named(workspace: Path) -> None:
    for shard in (workspace / "features").rglob("*.npz"):
        shard.unlink()
    with refused("features-gone", "12 samples"):
        evaluate(out=workspace, on_event=ignore)


def test_photos_with_exchanged_names_are_refused(workspace: Path, own_photos: Path, tiny_weights: Path) -> None:
    common: dict[str, Any] = {"encoder": "test_resnet", "weights": str(tiny_weights), "workers": 1}
    swap_with_train(own_photos, workspace)
    fit(str(own_photos), out=workspace, on_event=ignore, job_size=16, **common)
    with refused("photos-changed", "exp_1", "test", f" --out {workspace}"):
        evaluate("1", out=workspace, on_event=ignore)
    assert evaluate("2", out=workspace, on_event=ignore).to_dict()["run"] == "exp_2"
    with refused("photos-changed", "exp_1"):
        export_run("1", workspace / "elsewhere", out=workspace, on_event=ignore)
    swap_with_train(own_photos, workspace)
    assert fit(str(own_photos), out=workspace, on_event=ignore, job_size=16, **common).already_done
    assert evaluate("1", out=workspace, on_event=ignore).to_dict()["run"] == "exp_1"


def swap_with_train(photos: Path, workspace: Path) -> None:
    """Let each test photo and one of its class that is trained on change names."""
    manifest = pd.read_csv(workspace / "manifest.csv")
    for _, rows in manifest.groupby("label"):
        test, train = (rows[rows["split"] == split]["sample_id"] for split in ("test", "train"))
        for one, other in zip(test, train, strict=False):
            ours, theirs = (photos / one).read_bytes(), (photos / other).read_bytes()
            (photos / one).write_bytes(theirs)
            (photos / other).write_bytes(ours)


def test_run_without_content_digests_is_judged_by_names(workspace: Path) -> None:
    file = workspace / "experiments" / "exp_1" / "record.json"
    record = json.loads(file.read_text())
    assert set(record["data"].pop("content_digests")) == {"val", "test"}
    checksums.save_checked_json(file, record)
    assert evaluate(out=workspace, on_event=ignore).to_dict()["run"] == "exp_1"


def test_a_run_that_was_judged_on_nothing_says_so(own_photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "encoder": "test_resnet",
        "weights": str(tiny_weights),
        "workers": 1,
        "engine": "torch",
        "precision": "f32",
    }
    shares = {"val_share": 0.0, "test_share": 0.0, "epochs": 1}
    train(str(own_photos), out=tmp_path / "out", on_event=ignore, **common, **shares)
    with refused("nothing-to-evaluate", "exp_1"):
        evaluate(out=tmp_path / "out", on_event=ignore)


def test_a_blend_is_judged_only_with_all_its_models(
    photos: Path, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rungs, "_candidates", lambda settings, pace: [])
    common: dict[str, Any] = {"encoder": "test_resnet", "weights": str(tiny_weights), "workers": 1, "minutes": 5.0}
    result = fit(str(photos), out=tmp_path / "out", on_event=ignore, **common)
    assert result.run_record.memory.planned_bytes is None
    model = result.folder / "checkpoints" / "model_1.pt"
    content = model.read_bytes()
    model.write_bytes((result.folder / "checkpoints" / "best_head.pt").read_bytes())
    with refused("damaged-file", "model_1.pt"):
        evaluate(out=tmp_path / "out", on_event=ignore)
    model.unlink()
    with refused("file-gone", "model_1.pt"):
        evaluate(out=tmp_path / "out", on_event=ignore)
    fit(str(photos), out=tmp_path / "out", on_event=ignore, **common)
    assert model.read_bytes() == content
    assert evaluate(out=tmp_path / "out", on_event=ignore).to_dict()["run"] == "exp_1"


def test_predictions_hold_every_judged_sample(finished: Path) -> None:
    table = load_predictions(finished / "experiments" / "exp_1" / "predictions.csv")
    manifest = pd.read_csv(finished / "manifest.csv")
    judged = manifest[manifest["split"] != "train"]
    assert sorted(table["sample_id"]) == sorted(judged["sample_id"])
    assert set(table["truth"]) == {"apple", "leaf", "plum"}
    assert table["confidence"].between(1 / 3 - 1e-6, 1).all()
