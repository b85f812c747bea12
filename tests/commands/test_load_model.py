"""A run's model in Python: a torch module that decodes and answers as `predict` does."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import unchoke
from errors import refused
from unchoke.core.events import ignore


def predicted(run: str, files: list[Path], names: tuple[str, ...], out: Path, column: str = "p/{}") -> np.ndarray:
    """What `unchoke predict --device cpu` says: the same arithmetic, float32 by torch."""
    rows = unchoke.predict(run, files, out=out, on_event=ignore, probabilities=column != "{}", device="cpu").rows
    return np.array([[row[column.format(name)] for name in names] for row in rows])


@pytest.fixture
def files(photos: Path) -> list[Path]:
    return sorted(photos.rglob("*.jpg"))[::5]


def test_head_answers_as_predict(finished: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=finished)
    assert isinstance(model, torch.nn.Module) and model.classes == ("apple", "leaf", "plum") and model.targets == ()
    answers = model.predict_proba(files)
    assert np.abs(answers - predicted("exp_1", files, model.classes, finished)).max() < 1e-5
    opened = [Image.open(file) for file in files]
    assert np.array_equal(model.predict_proba(opened), answers)
    assert np.array_equal(model.predict_proba([np.asarray(one) for one in opened]), answers)
    assert model.predict(files).tolist() == [model.classes[place] for place in answers.argmax(axis=1)]
    called = model(torch.from_numpy(np.stack([np.asarray(one) for one in opened])))
    assert torch.equal(called, torch.from_numpy(answers))
    by_folder = unchoke.load_model(finished / "experiments" / "exp_1")
    assert np.array_equal(by_folder.predict_proba(files), answers)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(files), answers)


def test_it_answers_with_the_weights_it_has(finished: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=finished)
    with torch.no_grad():
        for name, values in model.named_buffers():
            if name.endswith("inverse_std"):
                values.zero_()
    answers = model.predict_proba(files)
    assert np.allclose(answers, answers[0])


def test_mode_is_evaluation_and_changes_no_answer(finished: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=finished)
    assert not any(part.training for part in model.modules())
    answers = model.predict_proba(files)
    model.train()
    assert np.array_equal(model.predict_proba(files), answers)
    assert all(part.training for part in model.modules())


def test_its_head_can_be_trained_further(finished: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=finished)
    assert not any(values.requires_grad for values in model.parameters())
    head = {name: values for name, values in model.requires_grad_(True).named_parameters() if "head_" in name}
    pixels = torch.from_numpy(np.stack([np.asarray(Image.open(file)) for file in files]))
    model(pixels)[:, 0].sum().backward()
    assert head and all(values.grad is not None and values.grad.abs().sum() > 0 for values in head.values())


@pytest.mark.parametrize("mode", ["I;16", "P", "L"])
def test_images_of_any_mode_equal_their_files(mode: str, finished: Path, tmp_path: Path) -> None:
    grey = np.arange(64 * 48, dtype=np.uint16).reshape(64, 48) * 20
    image = Image.fromarray(grey) if mode == "I;16" else Image.fromarray((grey >> 8).astype(np.uint8)).convert(mode)
    image.save(tmp_path / "grey.png")
    model = unchoke.load_model("exp_1", out=finished)
    assert np.array_equal(model.predict_proba([image]), model.predict_proba([tmp_path / "grey.png"]))


def test_network_answers_as_predict(more_runs: tuple[Path, dict[str, str]], files: list[Path]) -> None:
    out, run = more_runs[0], more_runs[1]["cut"]
    model = unchoke.load_model(run, out=out)
    assert np.abs(model.predict_proba(files) - predicted(run, files, model.classes, out)).max() < 1e-5


def test_values_are_predicted_in_their_own_units(value_run: tuple[Path, str], files: list[Path]) -> None:
    out, run = value_run
    model = unchoke.load_model(run, out=out)
    assert model.targets == ("dry_g", "rank") and model.classes == ()
    theirs = predicted(run, files, model.targets, out, "{}")
    assert np.abs(model.predict(files) - theirs).max() < 1e-3 * np.abs(theirs).max()
    with refused("no-probabilities", run):
        model.predict_proba(files)


def test_one_picture_gives_one_row_and_features(finished: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=finished)
    assert model.predict(files[0]).tolist() == model.predict([files[0]]).tolist()
    features = model.embed(files[:3])
    assert features.shape[0] == 3 and features.shape[1] > 3 and features.dtype == np.float32
    assert np.array_equal(model.embed(files[1]), features[1:2]) or np.allclose(model.embed(files[1]), features[1:2], atol=1e-2)


def test_what_is_no_picture_is_refused(finished: Path, files: list[Path], tmp_path: Path) -> None:
    model = unchoke.load_model("exp_1", out=finished)
    assert model.predict_proba([]).shape == (0, 3)
    with refused("not-a-picture", "float32"):
        model.predict([np.zeros((8, 8, 3), np.float32)])
    with refused("not-a-picture", "Tensor"):
        model.predict([torch.zeros((8, 8, 3), dtype=torch.uint8)])  # type: ignore[list-item]
    with refused("not-a-picture", "(0, 8, 3)"):
        model.predict([np.zeros((0, 8, 3), np.uint8)])
    with refused("unknown-device", "banana"):
        unchoke.load_model("exp_1", out=finished, device="banana")
    (tmp_path / "no.jpg").write_bytes(b"nothing")
    with refused("unreadable-photos", "no.jpg"):
        model.predict([files[0], tmp_path / "no.jpg"])


def test_attention_heads_are_refused(more_runs: tuple[Path, dict[str, str]]) -> None:
    out, runs = more_runs
    with refused("export-unsupported"):
        unchoke.load_model(runs["attention"], out=out)
