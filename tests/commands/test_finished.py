"""A run that is done is found without loading anything heavy, and only while all it rests upon is as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import TINY

from unchoke.core.events import Event, StageStarted, ignore
from unchoke.training.fit import fit, train

HEAVY = ["torch", "torchvision", "timm", "openvino", "scipy", "sklearn"]
AGAIN = f"""
import sys
import unchoke
result = unchoke.fit(out=sys.argv[1], on_event=lambda event: None)
assert result.already_done and result.run == "exp_1"
result.to_text(), result.to_dict()
loaded = [name for name in {HEAVY} if name in sys.modules]
assert not loaded, loaded
"""


def stages_of_fit(workspace: Path) -> tuple[set[str], bool]:
    events: list[Event] = []
    result = fit(out=workspace, on_event=events.append)
    return {event.stage for event in events if isinstance(event, StageStarted)}, result.already_done


def test_a_finished_fit_loads_neither_torch_nor_an_engine(workspace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, str(workspace)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr


def test_train_finds_what_fit_finished(workspace: Path) -> None:
    events: list[Event] = []
    result = train(out=workspace, on_event=events.append)
    assert (result.run, result.already_done) == ("exp_1", True)
    assert "engine" not in {event.stage for event in events if isinstance(event, StageStarted)}


def test_lost_shard_of_a_finished_run_is_made_again(workspace: Path) -> None:
    shard = min((workspace / "features").rglob("*.npz"))
    before = shard.read_bytes()
    shard.unlink()
    stages, already_done = stages_of_fit(workspace)
    assert {"engine", "extract"} <= stages
    assert already_done
    assert shard.read_bytes() == before
    assert stages_of_fit(workspace)[0] == {"index", "check"}


def test_engine_choice_taken_back_is_made_again(workspace: Path) -> None:
    (workspace / "engines" / "choice.json").unlink()
    assert "engine" in stages_of_fit(workspace)[0]


def test_a_memory_of_a_run_that_is_gone_is_not_believed(workspace: Path) -> None:
    (workspace / "experiments" / "exp_1" / "record.json").unlink()
    stages, already_done = stages_of_fit(workspace)
    assert {"train", "report"} <= stages
    assert not already_done


def test_forgotten_run_is_found_the_long_way(workspace: Path) -> None:
    memory = workspace / "experiments" / "finished.json"
    memory.unlink()
    stages, already_done = stages_of_fit(workspace)
    assert already_done
    assert not stages & {"engine", "extract", "train"}
    assert [entry["run"] for entry in json.loads(memory.read_text()).values()] == ["exp_1"]


def test_other_photos_or_weights_are_another_run(own_photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = Path(shutil.copy(tiny_weights, tmp_path / "weights.safetensors"))

    def run() -> tuple[str, bool]:
        options = {"encoder": TINY, "weights": str(weights), "epochs": 1, "workers": 1, "engine": "torch", "precision": "f32"}
        result = fit(own_photos, out=tmp_path / "out", on_event=ignore, **options)
        return result.run, result.already_done

    assert [run(), run()] == [("exp_1", False), ("exp_1", True)]
    min(own_photos.rglob("*.jpg")).unlink()
    assert [run(), run()] == [("exp_2", False), ("exp_2", True)]
    tensors = load_file(weights)
    save_file({name: value * 2 if name == "conv1.0.weight" else value for name, value in tensors.items()}, weights)
    assert run() == ("exp_3", False)
