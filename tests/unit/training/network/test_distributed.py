"""Several processes started by us: the same result as one, errors of theirs told as ours, nothing left behind."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from errors import refused
from unchoke.core.events import Event, ignore
from unchoke.training.data import Problem
from unchoke.training.fit import train
from unchoke.training.network.distributed import run_on_devices
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, StoredActivations
from unchoke.training.network.training_job import TrainingJob
from unchoke.training.results import FitResult


def noise_job(folder: Path, *, lr: float = 1e-3) -> TrainingJob:
    """A training over noise that needs no photos and no weights."""
    splits = {"train": np.arange(4), "val": np.arange(4, 6)}
    problem = Problem("classification", ("a", "b"), np.array([0, 1] * 3), splits, [f"sample {number}" for number in range(6)])
    network, source = NetworkSpec("test_efficientnet", "-1", bare=True, input_px=64), StoredActivations(None, (1, 48, 4, 4))
    loop = LoopConfig(2, 4, 4, 4, lr=lr, body_lr=lr, clip=0.0, warmup_epochs=0.0)
    return PhotoJob(
        network=network, source=source, problem=problem, loop=loop, metric="accuracy", device="cpu", folder=folder / "checkpoints"
    )


def history(result: FitResult) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = json.loads((result.folder / "history.json").read_text())
    return rows


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files of this process would be made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_by_the_launcher(folder: Path) -> list[str]:
    return [file.name for pattern in ("torchelastic_*", "pytorch-errorfile-*") for file in folder.rglob(pattern)]


def test_two_processes_end_as_one(photos: Path, tiny_weights: Path, tmp_path: Path, temporary: Path) -> None:
    quick: dict[str, Any] = {"cut": "-1", "epochs": 2, "batch_size": 8, "ema": 0, "workers": 1}
    quick |= {"encoder": "test_resnet", "weights": str(tiny_weights), "input_px": 64, "engine": "torch", "precision": "f32"}
    one = train(photos, out=tmp_path / "one", on_event=ignore, **quick)
    shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=shutil.ignore_patterns("experiments*"))
    told: list[Event] = []
    two = train(photos, out=tmp_path / "two", on_event=told.append, devices=2, **quick)
    assert isinstance(one, FitResult)
    assert isinstance(two, FitResult)
    assert not two.already_done
    for ours, theirs in zip(history(one), history(two), strict=True):
        assert theirs == pytest.approx(ours, rel=1e-5)
    assert any(getattr(event, "stage", "") == "train" and getattr(event, "done", 0) for event in told)
    assert left_by_the_launcher(temporary) == []
    left = {file.name for file in (two.folder / "checkpoints").iterdir()}
    assert not left & {"events.jsonl", "ended.json"}
    leader = two.record["timeline"]["train"]
    assert {"forward", "backward", "exchange", "optimizer"} <= {row["stage"] for row in leader["stages"]}
    assert [row["epoch"] for row in leader["epochs"]] == [row["epoch"] for row in history(two)]


def test_error_in_process_is_told_as_it_is(tmp_path: Path, temporary: Path) -> None:
    with refused("diverged", "--lr"):
        run_on_devices(noise_job(tmp_path, lr=1e30), 1, on_event=ignore)
    assert left_by_the_launcher(temporary) == []
    assert not list(tmp_path.rglob("ended.json"))


def test_more_processes_than_samples_are_refused(tmp_path: Path) -> None:
    with refused("too-many-devices", "--devices 5", "4 samples"):
        run_on_devices(noise_job(tmp_path), 5, on_event=ignore)
