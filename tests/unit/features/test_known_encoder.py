"""Features that are all there are opened without their encoder or an engine, and only while these are what they were."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unchoke.core.events import Event, StageStarted, ignore
from unchoke.training.fit import train

TRAIN = """
import sys
import unchoke
result = unchoke.train(out=sys.argv[1], on_event=lambda event: None, head="linear", epochs=2)
assert (result.run, result.already_done) == ("exp_2", False)
loaded = [name for name in ("timm", "openvino") if name in sys.modules]
assert not loaded, loaded
"""


def stages_of_train(workspace: Path, **options: Any) -> set[str]:
    events: list[Event] = []
    train(out=workspace, on_event=events.append, head="linear", epochs=2, **options)
    return {event.stage for event in events if isinstance(event, StageStarted)}


def test_cached_features_need_no_network_or_engine(workspace: Path) -> None:
    (known,) = json.loads((workspace / "engines" / "known.json").read_text()).values()
    done = subprocess.run([sys.executable, "-c", TRAIN, str(workspace)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, now = (json.loads((workspace / "experiments" / run / "record.json").read_text()) for run in ("exp_1", "exp_2"))
    assert now["encoder"] == before["encoder"]
    assert known["spec"]["weights_sha256"] == before["encoder"]["weights_sha256"]


@pytest.mark.parametrize("lost", ["known.json", "choice.json"])
def test_without_memory_or_choice_the_encoder_tells(workspace: Path, lost: str) -> None:
    (workspace / "engines" / lost).unlink()
    assert "engine" in stages_of_train(workspace)
    assert (workspace / "engines" / lost).exists()


def test_training_network_gets_its_encoder(workspace: Path) -> None:
    first = train(out=workspace, on_event=ignore, cut="-1", epochs=1)
    events: list[Event] = []
    second = train(out=workspace, on_event=events.append, cut="-1", epochs=2)
    assert (first.already_done, second.already_done) == (False, False)
    assert "engine" not in {event.stage for event in events if isinstance(event, StageStarted)}


def test_other_engine_is_not_taken_from_memory(workspace: Path) -> None:
    assert "engine" in stages_of_train(workspace, engine="torch", precision="f32")
