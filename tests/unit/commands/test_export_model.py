"""The model of a run as one file: it answers without torch as the run does, or it is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unchoke.commands.export_model import export_model
from unchoke.commands.fit import fit, train
from unchoke.commands.predict import predict
from unchoke.core import atomic
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
    agreement = made.agreement
    assert agreement.photos.top1 == agreement.other_sizes.top1 == 1.0
    assert agreement.photos.difference <= 1e-3 and agreement.other_sizes.difference <= 1e-3
    assert agreement.speed.predict_s > 0 and max(map(max, agreement.sizes)) == 6000
    files = sorted(photos.rglob("*.jpg"))[::5]
    rows = predict("exp_1", files, out=workspace, on_event=ignore, probabilities=True).rows
    ours = np.array([[row[f"p/{name}"] for name in made.facts["names"]] for row in rows])
    assert np.abs(answers_without_torch(to, files) - ours).max() < 5e-3  # predict runs the run's own engine
    card = (to / "MODEL_CARD.md").read_text("utf-8")
    assert "95 % interval" in card and "apple, leaf, plum" in card and "licence" in card
    facts = json.loads((to / "model.json").read_text("utf-8"))
    assert facts["agreement"]["photos"]["top1"] == 1.0 and facts["data_digest_of"].startswith("all samples")
    assert f"pip install {'onnxruntime' if format_ == 'onnx' else 'openvino'} numpy pillow" in (to / "README.md").read_text(
        "utf-8"
    )
    if format_ == "onnx":
        assert str(Path(export_model.__code__.co_filename).parent).encode() not in (to / "model.onnx").read_bytes()


@pytest.mark.parametrize("cut", ["-2", "none"])
def test_a_network_that_was_trained_is_exported(cut: str, workspace: Path, tmp_path: Path) -> None:
    run = train(out=workspace, on_event=ignore, cut=cut, epochs=1, views=0).run
    made = export_model(run, to=tmp_path / "model", out=workspace, on_event=ignore)
    assert made.agreement.photos.top1 == 1.0 and made.agreement.photos.difference <= 1e-3


@pytest.mark.parametrize("format_", ["onnx", "openvino"])
def test_half_the_bytes_answer_nearly_the_same(format_: str, workspace: Path, tmp_path: Path) -> None:
    whole, half = (
        export_model("exp_1", to=tmp_path / precision, format=format_, precision=precision, out=workspace, on_event=ignore)
        for precision in ("f32", "f16")
    )
    file = {"onnx": "model.onnx", "openvino": "model.bin"}[format_]
    assert (half.folder / file).stat().st_size < 0.6 * (whole.folder / file).stat().st_size
    assert half.agreement.photos.top1 == 1.0 and 0 < half.agreement.photos.difference <= 0.05


def test_values_say_their_units(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    files = sorted(photos.rglob("*.jpg"))
    lines = [f"{file.relative_to(photos).as_posix()},{10 * number % 97},{number}" for number, file in enumerate(files)]
    (tmp_path / "table.csv").write_text("\n".join(["image,dry_g,rank", *lines]), "utf-8")
    words = {"encoder": "test_resnet", "weights": str(tiny_weights), "out": tmp_path / "values", "on_event": ignore}
    run = fit(str(tmp_path / "table.csv"), images=(str(photos),), target=("dry_g", "rank"), **words).run
    with pytest.raises(UsageError, match="does not fit"):
        export_model(run, to=tmp_path / "m", units="weight=g", out=tmp_path / "values", on_event=ignore)
    made = export_model(run, to=tmp_path / "m", units="rank=places", out=tmp_path / "values", on_event=ignore)
    assert made.facts["units"] == {"dry_g": "g", "rank": "places"} and made.facts["output"] == "values"
    assert "unit of rank: places" in (tmp_path / "m" / "MODEL_CARD.md").read_text("utf-8")


def test_a_file_that_disagrees_is_not_handed_over(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(agreement.LIMITS, "f32", agreement.Limit(1.0, -1.0, 1.0))
    with pytest.raises(DataError, match="not handed over") as refused:
        export_model("exp_1", to=tmp_path / "model", out=workspace, on_event=ignore)
    assert [path.name for path in tmp_path.iterdir()] == [workspace.name]
    assert "100.0 % the same first class" in refused.value.why and "f32 promises" in refused.value.why


def test_what_is_in_the_way_is_left_alone(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        export_model("exp_1", to=tmp_path / "model", out=workspace, on_event=ignore)


def test_what_is_being_made_is_left_alone(workspace: Path, tmp_path: Path) -> None:
    with atomic.build_folder(tmp_path / "model"), pytest.raises(UsageError, match="another command is making"):
        export_model("exp_1", to=tmp_path / "model", out=workspace, on_event=ignore)
    assert [file.name for file in (tmp_path / "model").iterdir()] == []


def test_a_place_below_a_file_is_refused_with_its_own_words(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        export_model("exp_1", to=tmp_path / "file" / "model", out=workspace, on_event=ignore)


def test_an_attention_head_is_refused_with_a_sentence(workspace: Path, tmp_path: Path) -> None:
    run = train(out=workspace, on_event=ignore, views=2, head="attention").run
    with pytest.raises(UsageError, match="cannot be one network"):
        export_model(run, to=tmp_path / "model", out=workspace, on_event=ignore)
    assert not (tmp_path / "model").exists()
