"""The model of a run as one file: it answers without torch as the run does, or it is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unchoke.commands.export_model import export_model
from unchoke.commands.fit import train
from unchoke.commands.predict import predict
from unchoke.core.errors import DataError, UsageError
from unchoke.core.events import ignore
from unchoke.portable import agreement

WITHOUT_TORCH = """
import json, runpy, sys
sys.modules["torch"] = None
sys.modules["unchoke"] = None
script = runpy.run_path(sys.argv[1])
answers = {path: script["predict"](script["read_pixels"](path)[None])[0].tolist() for path in sys.argv[2:]}
sys.stdout.write(json.dumps(answers))
"""


def answers_without_torch(folder: Path, photos: list[Path]) -> np.ndarray:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(folder / "predict.py"), *map(str, photos)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.array(list(json.loads(done.stdout).values()))


@pytest.mark.parametrize("format_", ["onnx", "openvino"])
def test_a_head_answers_without_torch_as_predict_does(format_: str, workspace: Path, photos: Path, tmp_path: Path) -> None:
    to = tmp_path / "taken away"
    made = export_model("exp_1", to=to, format=format_, out=workspace, on_event=ignore)
    assert made.agreement.top1 == 1.0 and made.agreement.difference <= 1e-3 and made.agreement.sizes_difference <= 1e-3
    files = sorted(photos.rglob("*.jpg"))[::5]
    rows = predict("exp_1", files, out=workspace, on_event=ignore, probabilities=True).rows
    ours = np.array([[row[f"p/{name}"] for name in made.facts["names"]] for row in rows])
    assert np.abs(answers_without_torch(to, files) - ours).max() < 5e-3  # predict runs the run's own engine
    card = (to / "MODEL_CARD.md").read_text("utf-8")
    assert "95 % interval" in card and "apple, leaf, plum" in card and "licence" in card
    assert json.loads((to / "model.json").read_text("utf-8"))["agreement"]["top1"] == 1.0


@pytest.mark.parametrize("cut", ["-2", "none"])
def test_a_network_that_was_trained_is_exported(cut: str, workspace: Path, tmp_path: Path) -> None:
    run = train(out=workspace, on_event=ignore, cut=cut, epochs=1, views=0).run
    made = export_model(run, to=tmp_path / "model", out=workspace, on_event=ignore)
    assert made.agreement.top1 == 1.0 and made.agreement.difference <= 1e-3


def test_a_file_that_disagrees_is_not_handed_over(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(agreement.LIMITS, "f32", agreement.Limit(1.0, -1.0))
    with pytest.raises(DataError, match="not handed over"):
        export_model("exp_1", to=tmp_path / "model", out=workspace, on_event=ignore)
    assert [path.name for path in tmp_path.iterdir()] == [workspace.name]


def test_what_is_in_the_way_is_left_alone(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        export_model("exp_1", to=tmp_path / "model", out=workspace, on_event=ignore)


def test_an_attention_head_is_refused_with_a_sentence(workspace: Path, tmp_path: Path) -> None:
    run = train(out=workspace, on_event=ignore, views=2, head="attention").run
    with pytest.raises(UsageError, match="cannot be written as one file yet"):
        export_model(run, to=tmp_path / "model", out=workspace, on_event=ignore)
    assert not (tmp_path / "model").exists()
