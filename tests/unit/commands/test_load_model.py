"""A run's model in Python: a torch module that decodes and answers as `predict` does."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import unchoke
from unchoke.core.errors import DataError, UsageError
from unchoke.core.events import ignore


def predicted(run: str, files: list[Path], names: tuple[str, ...], out: Path, column: str = "p/{}") -> np.ndarray:
    """What `unchoke predict --device cpu` says: the same arithmetic, float32 by torch."""
    rows = unchoke.predict(run, files, out=out, on_event=ignore, probabilities=column != "{}", device="cpu").rows
    return np.array([[row[column.format(name)] for name in names] for row in rows])


@pytest.fixture
def files(photos: Path) -> list[Path]:
    return sorted(photos.rglob("*.jpg"))[::5]


def test_a_head_answers_as_predict_does_for_files_images_and_arrays(workspace: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=workspace)
    assert isinstance(model, torch.nn.Module) and model.classes == ("apple", "leaf", "plum") and model.targets == ()
    answers = model.predict_proba(files)
    assert np.abs(answers - predicted("exp_1", files, model.classes, workspace)).max() < 1e-5
    opened = [Image.open(file) for file in files]
    assert np.array_equal(model.predict_proba(opened), answers)
    assert np.array_equal(model.predict_proba([np.asarray(one) for one in opened]), answers)
    assert model.predict(files).tolist() == [model.classes[place] for place in answers.argmax(axis=1)]
    called = model(torch.from_numpy(np.stack([np.asarray(one) for one in opened])))
    assert torch.equal(called, torch.from_numpy(answers))
    by_folder = unchoke.load_model(workspace / "experiments" / "exp_1")
    assert np.array_equal(by_folder.predict_proba(files), answers)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(files), answers)


def test_it_answers_with_the_weights_it_has(workspace: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=workspace)
    with torch.no_grad():
        for name, values in model.named_buffers():
            if name.endswith("inverse_std"):
                values.zero_()
    answers = model.predict_proba(files)
    assert np.allclose(answers, answers[0])


def test_it_is_in_evaluation_mode_and_answers_so_in_any(workspace: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=workspace)
    assert not any(part.training for part in model.modules())
    answers = model.predict_proba(files)
    model.train()
    assert np.array_equal(model.predict_proba(files), answers)
    assert all(part.training for part in model.modules())


def test_its_head_can_be_trained_further(workspace: Path, files: list[Path]) -> None:
    model = unchoke.load_model("exp_1", out=workspace)
    assert not any(values.requires_grad for values in model.parameters())
    head = {name: values for name, values in model.requires_grad_(True).named_parameters() if "head_" in name}
    pixels = torch.from_numpy(np.stack([np.asarray(Image.open(file)) for file in files]))
    model(pixels)[:, 0].sum().backward()
    assert head and all(values.grad is not None and values.grad.abs().sum() > 0 for values in head.values())


@pytest.mark.parametrize("mode", ["I;16", "P", "L"])
def test_images_of_any_mode_are_seen_as_their_files_are(mode: str, workspace: Path, tmp_path: Path) -> None:
    grey = np.arange(64 * 48, dtype=np.uint16).reshape(64, 48) * 20
    image = Image.fromarray(grey) if mode == "I;16" else Image.fromarray((grey >> 8).astype(np.uint8)).convert(mode)
    image.save(tmp_path / "grey.png")
    model = unchoke.load_model("exp_1", out=workspace)
    assert np.array_equal(model.predict_proba([image]), model.predict_proba([tmp_path / "grey.png"]))


@pytest.mark.system
def test_a_network_answers_as_predict_does(workspace: Path, files: list[Path]) -> None:
    run = unchoke.train(out=workspace, on_event=ignore, cut="-2", epochs=1, views=0).run
    model = unchoke.load_model(run, out=workspace)
    assert np.abs(model.predict_proba(files) - predicted(run, files, model.classes, workspace)).max() < 1e-5


def test_values_are_predicted_in_their_own_units(photos: Path, tiny_weights: Path, files: list[Path], tmp_path: Path) -> None:
    table = tmp_path / "values.csv"
    lines = [
        f"{file.relative_to(photos)},{number % 7},{10 * (number % 5)}"
        for number, file in enumerate(sorted(photos.rglob("*.jpg")))
    ]
    table.write_text("\n".join(["image,dead,green", *lines]), encoding="utf-8")
    how = {"encoder": "test_resnet", "weights": tiny_weights, "workers": 1, "epochs": 2, "path": "image"}
    run = unchoke.fit(table, images=[photos], target=["dead", "green"], out=tmp_path / "out", on_event=ignore, **how).run
    model = unchoke.load_model(run, out=tmp_path / "out")
    assert model.targets == ("dead", "green") and model.classes == ()
    theirs = predicted(run, files, model.targets, tmp_path / "out", "{}")
    assert np.abs(model.predict(files) - theirs).max() < 1e-3 * np.abs(theirs).max()
    with pytest.raises(UsageError, match="no probabilities"):
        model.predict_proba(files)


def test_what_is_no_picture_is_refused_with_a_sentence(workspace: Path, files: list[Path], tmp_path: Path) -> None:
    model = unchoke.load_model("exp_1", out=workspace)
    assert model.predict_proba([]).shape == (0, 3)
    with pytest.raises(UsageError, match="one picture"):
        model.predict(str(files[0]))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="float32"):
        model.predict([np.zeros((8, 8, 3), np.float32)])
    with pytest.raises(UsageError, match="Tensor is no picture"):
        model.predict([torch.zeros((8, 8, 3), dtype=torch.uint8)])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="is no picture"):
        model.predict([np.zeros((0, 8, 3), np.uint8)])
    with pytest.raises(UsageError, match="no such device"):
        unchoke.load_model("exp_1", out=workspace, device="banana")
    (tmp_path / "no.jpg").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"no\.jpg"):
        model.predict([files[0], tmp_path / "no.jpg"])


def test_kinds_that_cannot_be_one_network_are_refused(workspace: Path) -> None:
    run = unchoke.train(out=workspace, on_event=ignore, views=2, head="attention", epochs=1).run
    with pytest.raises(UsageError, match="cannot be one network"):
        unchoke.load_model(run, out=workspace)
