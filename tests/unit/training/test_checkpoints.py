from __future__ import annotations

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from unchoke.core.errors import DataError, UsageError
from unchoke.training.checkpoints import load_checkpoint, load_head, save_head, save_tensors
from unchoke.training.heads.heads import HeadConfig

CPU = torch.device("cpu")


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("kind", ["linear", "mlp", "attention"])
def test_a_saved_head_predicts_the_same_after_loading(mixture, train, tmp_path, kind):
    source, problem = made = mixture(num_views=2)
    head = train(made, [HeadConfig(kind, epochs=2)]).best
    save_head(head, tmp_path / "best_head.pt", extra={"temperature": 1.5, "encoder": {"name": "lite0"}})
    loaded, extra = load_head(tmp_path / "best_head.pt")
    test = problem.positions("test")
    np.testing.assert_array_equal(head.predict(source, test, device=CPU), loaded.predict(source, test, device=CPU))
    assert extra == {"temperature": 1.5, "encoder": {"name": "lite0"}}
    assert (loaded.config, loaded.names, loaded.val) == (head.config, head.names, head.val)


def test_a_regression_head_keeps_the_scale_of_its_targets(plane, train, tmp_path):
    source, problem = plane
    head = train(plane, [HeadConfig(epochs=2)]).best
    save_head(head, tmp_path / "best_head.pt", extra={})
    loaded, _ = load_head(tmp_path / "best_head.pt")
    np.testing.assert_array_equal(
        head.predict(source, problem.positions("test"), device=CPU), loaded.predict(source, problem.positions("test"), device=CPU)
    )


def test_the_file_is_plain_enough_for_weights_only(mixture, train, tmp_path):
    head = train(mixture(), [HeadConfig(epochs=1)]).best
    save_head(head, tmp_path / "best_head.pt", extra={})
    content = torch.load(tmp_path / "best_head.pt", weights_only=True)
    assert content["names"] == ["class 0", "class 1", "class 2"]


def test_equal_content_gives_equal_bytes_whoever_made_the_strings(tmp_path):
    word = "".join(["sp", "lit"])
    save_tensors(tmp_path / "one.pt", {"a": "split", "b": word, "t": torch.arange(6).view(2, 3)[:, 1]})
    save_tensors(tmp_path / "two.pt", {"a": word, "b": word, "t": torch.tensor([1, 4])})
    assert (tmp_path / "one.pt").read_bytes() == (tmp_path / "two.pt").read_bytes()


@pytest.mark.parametrize("layout", ["zip", "legacy", "plain pickle"])
def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path, layout):
    path, trap = tmp_path / "best_head.pt", tmp_path / "trap"
    if layout == "plain pickle":
        path.write_bytes(pickle.dumps(Malicious(trap)))
    else:
        torch.save({"format": 1, "params": Malicious(trap)}, path, _use_new_zipfile_serialization=layout == "zip")
    with pytest.raises(DataError, match="not a weights file") as caught:
        load_head(path)
    assert "ever run" in caught.value.why
    assert not trap.exists()


def test_a_truncated_or_foreign_file_is_refused(tmp_path):
    save_tensors(tmp_path / "whole.pt", {"t": torch.zeros(1000)})
    whole = (tmp_path / "whole.pt").read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("readme.txt", "hello")
    for name, content in {"cut": whole[: len(whole) // 2], "text": b"hello", "empty": b"", "zip": archive.getvalue()}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match="not a weights file"):
            load_checkpoint(tmp_path / name)


def test_a_bare_state_dict_is_not_a_head(tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    with pytest.raises(DataError, match="holds no trained head"):
        load_head(tmp_path / "model.pt")


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        load_head(tmp_path / "nowhere.pt")
