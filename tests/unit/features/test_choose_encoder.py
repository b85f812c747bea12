"""Which encoder is taken where nobody named one: by what is at hand, how long it takes, and what the workspace used before."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from unchoke.core.events import ignore
from unchoke.core.remembered import load_remembered
from unchoke.core.workspace import Workspace
from unchoke.features import choose_encoder
from unchoke.features.choose_encoder import CuratedEncoder
from unchoke.training.fit import extract, fit
from web import serve

Take = Callable[..., Any]
FETCH = """
import sys
from unchoke.features import choose_encoder
known = choose_encoder.CuratedEncoder("test_resnet", 0.5, 160, "", "", "timm/test_resnet.r160_in1k")
choose_encoder.ENCODERS, choose_encoder._FETCHED = (known,), known.name
import unchoke
done = unchoke.extract(sys.argv[1], out=sys.argv[2], engine="torch", precision="f32", workers=1, on_event=lambda event: None)
print({choice.name: choice.value for choice in done.choices}["encoder"])
"""


@pytest.fixture(autouse=True)
def cached_encoder(tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One small network in the hub's cache, and another that is not there."""
    cache = tmp_path / "hub"
    kept = cache / "models--timm--test_resnet.r160_in1k"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    (kept / "snapshots" / ("0" * 40)).mkdir(parents=True)
    shutil.copy(tiny_weights, kept / "snapshots" / ("0" * 40) / "model.safetensors")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    known = CuratedEncoder("test_resnet", 0.5, 160, "Apache-2.0", "", "timm/test_resnet.r160_in1k")
    absent = CuratedEncoder("test_vit", 0.4, 160, "Apache-2.0", "", "timm/test_vit.r160_in1k")
    small = next(one for one in choose_encoder.ENCODERS if one.name == "tiny_vit_5m_224")
    monkeypatch.setattr(choose_encoder, "ENCODERS", (small, known, absent))


@pytest.fixture
def take(photos: Path, tmp_path: Path) -> Take:
    def run(command: Any = extract, **options: Any) -> Any:
        options = {"engine": "torch", "precision": "f32", "workers": 1, "job_size": 16, **options}
        return command(str(photos), out=tmp_path / "out", on_event=ignore, **options)

    return run


def chosen(result: Any) -> dict[str, Any]:
    return {choice.name: choice for choice in result.choices}


def test_strongest_at_hand_is_taken_and_remembered(take: Take, tmp_path: Path) -> None:
    choice = chosen(take())["encoder"]
    assert choice.value == "test_resnet" and set(choice.evidence["images_per_s"]) == {"test_resnet"}
    assert load_remembered(Workspace(tmp_path / "out"))["encoder"] == "test_resnet"
    assert "images_per_s" not in chosen(take())["encoder"].evidence


def test_what_takes_too_long_is_not_taken(take: Take, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_encoder, "LIMIT_S", 0.0)
    choice = chosen(take())["encoder"]
    assert choice.value == "tf_efficientnet_lite0" and "test_resnet" in choice.reason
    monkeypatch.undo()
    assert "encoder" not in load_remembered(Workspace(tmp_path / "out"))
    assert "encoder" not in chosen(take()), "the workspace has its features"


@pytest.mark.parametrize(
    ("is_sound", "taken"), [(True, "test_resnet"), pytest.param(False, "tf_efficientnet_lite0", marks=pytest.mark.campaign)]
)
def test_small_one_fetched_where_hub_answers(
    photos: Path, tiny_weights: Path, tmp_path: Path, *, is_sound: bool, taken: str
) -> None:
    path, data = "/timm/test_resnet.r160_in1k/resolve/main/model.safetensors", tiny_weights.read_bytes()
    with serve() as hub:
        hub.files[path], hub.etags[path] = data, hashlib.sha256(data if is_sound else b"other").hexdigest()
        env = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        typed = [sys.executable, "-c", FETCH, str(photos), str(tmp_path / "out")]
        done = subprocess.run(typed, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [taken]


@pytest.mark.parametrize("said", [{"encoder": "tf_efficientnet_lite0"}, {"input_px": 64}, {"cut": "-4"}])
def test_what_was_said_stands(take: Take, said: dict[str, Any]) -> None:
    assert "images_per_s" not in (chosen(take(**said)).get("encoder") or choose_encoder.Choice("", "", "")).evidence


def test_all_folds_have_one_encoder(take: Take) -> None:
    folds = take(fit, folds=3, fold="all", epochs=1)
    assert {one.record["encoder"]["name"] for one in folds.results} == {"test_resnet"}
    assert take(fit, folds=3, fold="all", epochs=1).already_done
