"""Several processes started by us: the same result as one, errors of theirs told as ours, nothing left behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unchoke
from unchoke.core.errors import DataError, UsageError
from unchoke.core.events import ignore

QUICK = {"cut": "-1", "epochs": 2, "batch_size": 4, "encoder": "test_efficientnet", "input_px": 64, "engine": "torch", "ema": 0}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for label, tint in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (folder / label).mkdir()
        for number in range(10):
            pixels = np.clip(random.normal(tint, 25, size=(64, 64, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    import torch

    from unchoke.features.encoders import bare_encoder

    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "tiny.pt"
    torch.save(bare_encoder("test_efficientnet", input_px=64).module.state_dict(), file)
    return file


def history(result) -> list[dict[str, float]]:
    return json.loads((result.folder / "history.json").read_text())


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """Where temporary files of this process would be made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_by_the_launcher(folder: Path) -> list[str]:
    return [file.name for pattern in ("torchelastic_*", "pytorch-errorfile-*") for file in folder.rglob(pattern)]


def test_two_processes_end_as_one_does(photos, weights, tmp_path, temporary):
    one = unchoke.train(photos, out=tmp_path / "one", on_event=ignore, weights=weights, **QUICK)
    told = []
    two = unchoke.train(photos, out=tmp_path / "two", on_event=told.append, weights=weights, devices=2, **QUICK)
    for ours, theirs in zip(history(one), history(two), strict=True):
        assert theirs == pytest.approx(ours, rel=1e-5)
    assert any(getattr(event, "stage", "") == "train" and getattr(event, "done", 0) for event in told)
    assert left_by_the_launcher(temporary) == []
    left = {file.name for file in (two.folder / "checkpoints").iterdir()}
    assert not left & {"events.jsonl", "ended.json", "timeline.json"}
    leader = two.record["timeline"]["train"]
    assert {"forward", "backward", "exchange", "optimizer"} <= {row["stage"] for row in leader["stages"]}
    assert [row["epoch"] for row in leader["epochs"]] == [row["epoch"] for row in history(two)]


def test_an_error_in_a_process_is_told_once_and_as_what_it_is(photos, weights, tmp_path, temporary):
    with pytest.raises(DataError, match="diverged"):
        unchoke.train(photos, out=tmp_path, on_event=ignore, weights=weights, devices=2, lr=1e9, clip=0, **QUICK)
    assert left_by_the_launcher(temporary) == []


def test_more_processes_than_samples_in_a_batch_are_refused(photos, weights, tmp_path):
    with pytest.raises(UsageError, match="--devices 5 is more than the 4 samples"):
        unchoke.train(photos, out=tmp_path, on_event=ignore, weights=weights, devices=5, **QUICK)
