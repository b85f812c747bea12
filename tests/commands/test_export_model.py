"""The model of a run as one file: it answers without torch as the run does, or it is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from errors import refused
from unchoke.core import atomic
from unchoke.core.events import ignore
from unchoke.exports import agreement
from unchoke.exports.export_model import export
from unchoke.training.predict import predict

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


@pytest.mark.parametrize(
    ("format_", "precision"),
    [
        ("onnx", "f32"),
        ("openvino", "f16"),
        pytest.param("openvino", "f32", marks=pytest.mark.campaign),
        pytest.param("onnx", "f16", marks=pytest.mark.campaign),
    ],
)
def test_head_answers_without_torch(
    format_: str, precision: str, finished: Path, photos: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    to = tmp_path / "taken away"
    made = export("exp_1", to=to, format=format_, precision=precision, out=finished, on_event=ignore)
    found, limit = made.agreement, agreement.LIMITS[precision].difference
    assert found.photos.top1 == found.other_sizes.top1 == 1.0
    assert found.photos.difference <= limit and found.other_sizes.difference <= limit
    assert precision == "f32" or found.photos.difference > 0
    assert found.speed.predict_s > 0 and max(map(max, found.sizes)) == 6000
    files = sorted(photos.rglob("*.jpg"))[::5]
    rows = predict("exp_1", files, out=finished, on_event=ignore, probabilities=True).rows
    ours = np.array([[row[f"p/{name}"] for name in made.facts["names"]] for row in rows])
    # predict runs the run's own engine
    assert np.abs(answers_without_torch(to, files) - ours).max() < {"f32": 5e-3, "f16": 0.05}[precision]
    card = (to / "MODEL_CARD.md").read_text("utf-8")
    assert all(part in card for part in ("95 %", "apple, leaf, plum", "licence"))
    facts = json.loads((to / "model.json").read_text("utf-8"))
    assert facts["agreement"]["photos"]["top1"] == 1.0 and facts["data_digest_of"].startswith("all samples")
    runtime = {"onnx": "onnxruntime", "openvino": "openvino"}[format_]
    assert f"pip install {runtime} numpy pillow" in (to / "README.md").read_text("utf-8")
    model = to / {"onnx": "model.onnx", "openvino": "model.bin"}[format_]
    (tmp_path / "text.jpg").write_text("no photo")
    asked = [sys.executable, to / "predict.py", tmp_path / "text.jpg", files[0]]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "text.jpg" in told.stderr and str(files[0]) in told.stdout
    sound = bytearray(model.read_bytes())
    model.write_bytes(sound[:1000] + bytes([sound[1000] ^ 1]) + sound[1001:])
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "is damaged" in told.stderr and not told.stdout
    model.write_bytes(sound)
    share = model.stat().st_size / tiny_weights.stat().st_size
    assert (share < 0.6) == (precision == "f16"), "of the bytes of the float32 weights"
    assert str(Path(export.__code__.co_filename).parent).encode() not in model.read_bytes()


@pytest.mark.parametrize("kind", ["cut", pytest.param("whole", marks=pytest.mark.campaign)])
def test_trained_network_is_exported(kind: str, more_runs: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    out, runs = more_runs
    made = export(runs[kind], to=tmp_path / "model", out=out, on_event=ignore)
    assert made.agreement.photos.top1 == 1.0 and made.agreement.photos.difference <= 1e-3


def test_values_say_their_units(value_run: tuple[Path, str], tmp_path: Path) -> None:
    out, run = value_run
    with refused("bad-units", "weight"):
        export(run, to=tmp_path / "m", units="weight=g", out=out, on_event=ignore)
    made = export(run, to=tmp_path / "m", format="pt2", units="rank=places", out=out, on_event=ignore)
    assert made.facts["units"] == {"dry_g": "g", "rank": "places"} and made.facts["output"] == "values"
    assert "unit of rank: places" in (tmp_path / "m" / "MODEL_CARD.md").read_text("utf-8")


def test_disagreeing_file_is_not_handed_over(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(agreement.LIMITS, "f32", agreement.Limit(1.0, -1.0, 1.0))
    with refused("export-disagrees", "100.0 %", "-1", "f32"):
        export("exp_1", to=tmp_path / "model", format="pt2", out=finished, on_event=ignore)
    assert list(tmp_path.iterdir()) == []


def test_places_that_are_taken_are_left_alone(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    for code, to in (("output-exists", tmp_path / "there"), ("output-not-writable", tmp_path / "file" / "model")):
        with refused(code, str(to)):
            export("exp_1", to=to, out=finished, on_event=ignore)
    with atomic.build_folder(tmp_path / "model"), refused("output-in-use", str(tmp_path / "model")):
        export("exp_1", to=tmp_path / "model", out=finished, on_event=ignore)
    assert [file.name for file in (tmp_path / "model").iterdir()] == []


def test_attention_head_is_refused(more_runs: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    out, runs = more_runs
    with refused("export-unsupported"):
        export(runs["attention"], to=tmp_path / "model", out=out, on_event=ignore)
    assert not (tmp_path / "model").exists()
