from __future__ import annotations

import io
import itertools
import os
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import refused
from unchoke.core.events import Event, Note, ignore
from unchoke.training.checkpoints import Checkpoints, State, TrainingProgress, load_checkpoint, save_tensors
from unchoke.training.heads.heads import HeadConfig, load_head, save_head

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


def test_equal_content_gives_equal_bytes(tmp_path):
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
    with refused("bad-weights", str(path)):
        load_head(path)
    assert not trap.exists()


def test_a_truncated_or_foreign_file_is_refused(tmp_path):
    save_tensors(tmp_path / "whole.pt", {"t": torch.zeros(1000)})
    whole = (tmp_path / "whole.pt").read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("readme.txt", "hello")
    for name, content in {"cut": whole[: len(whole) // 2], "text": b"hello", "empty": b"", "zip": archive.getvalue()}.items():
        (tmp_path / name).write_bytes(content)
        with refused("bad-weights", str(tmp_path / name)):
            load_checkpoint(tmp_path / name)


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with refused("no-such-file", "nowhere.pt"):
        load_head(tmp_path / "nowhere.pt")


DIGEST, OTHER_DIGEST = "1a2b3c4d" * 8, "99998888" * 8


class Killed(BaseException):
    """Stands for SIGKILL: whoever sees it does nothing more."""


@contextmanager
def killed_at(operation: int) -> Iterator[None]:
    """Let files be renamed and removed until `operation` (from 0); from then on nothing reaches the disk."""
    counter = itertools.count()

    def until_then(real: Callable[..., Any]) -> Callable[..., Any]:
        def reach(*args: Any, **options: Any) -> Any:
            if next(counter) >= operation:
                raise Killed
            return real(*args, **options)

        return reach

    with (
        mock.patch.object(Path, "replace", until_then(Path.replace)),
        mock.patch.object(Path, "unlink", until_then(Path.unlink)),
    ):
        yield


def checkpoints(folder: Path | None, digest: str = DIGEST, on_event: Callable[[Event], None] = ignore) -> Checkpoints:
    return Checkpoints(folder, digest=digest, on_event=on_event)


def weights(number: float) -> State:
    return {"weight": torch.full((3,), float(number)), "steps": torch.tensor(7)}


@dataclass(frozen=True)
class Epoch:
    """What happens in an epoch: is it the best so far, are its weights held in memory first, and when is `last.pt` written."""

    better: bool = True
    held: bool = False
    saved_within: bool = False
    saved: bool = True


def train(kept: Checkpoints, epochs: Sequence[Epoch]) -> None:
    """The order in which the loop writes: perhaps in the middle of an epoch, the best weights, where the epoch ended."""
    standing = TrainingProgress()
    for number, epoch in enumerate(epochs, start=1):
        if epoch.saved_within:
            standing.step = 1
            kept.save(standing, {"network": weights(number - 0.5)})
        if epoch.better or number == 1:
            standing.best_epoch = number
            (kept.hold_best if epoch.held else kept.save_best)(number, weights(number))
        standing.epoch, standing.step = number, 0
        standing.curve.append({"epoch": number})
        if epoch.saved or number == len(epochs):
            kept.save(standing, {"network": weights(number)})


def assert_consistent(folder: Path) -> TrainingProgress:
    """What is loaded belongs together: the weights to where it stands, the best weights to the epoch that it names."""
    found = checkpoints(folder)
    standing, pieces = found.load()
    if pieces is None:
        assert standing == TrainingProgress()
        return standing
    assert pieces["network"]["weight"][0] == standing.epoch + 0.5 * standing.step
    assert len(standing.curve) == standing.epoch
    if standing.best_epoch:
        assert found.load_best(standing.best_epoch)["weight"][0] == standing.best_epoch
    return standing


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.builds(Epoch, *[st.booleans()] * 4), min_size=1, max_size=5), st.lists(st.integers(0, 14), min_size=2, max_size=2)
)
def test_files_belong_together_after_any_kill(epochs, kills):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kill in kills:
            try:
                with killed_at(kill):
                    train(checkpoints(folder), epochs)
            except Killed:
                pass
            assert_consistent(folder)
        train(checkpoints(folder), epochs)
        assert assert_consistent(folder).epoch == len(epochs)


def test_kill_at_every_file_operation(tmp_path):
    reached = []
    for operation in range(10):
        folder = tmp_path / str(operation)
        with pytest.raises(Killed), killed_at(operation):
            train(checkpoints(folder), [Epoch(), Epoch(saved_within=True), Epoch(better=False), Epoch(held=True)])
        reached.append(assert_consistent(folder).epoch)
    assert reached == sorted(reached)
    assert set(reached) == {0, 1, 2, 3, 4}


def test_only_last_and_best_weights_are_kept(tmp_path):
    (tmp_path / "best_head.pt").write_bytes(b"someone else's")
    train(checkpoints(tmp_path), [Epoch(), Epoch(), Epoch(), Epoch(better=False)])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["best-0003-1a2b3c4d.pt", "best_head.pt", "last.pt"]


def test_a_standing_comes_back_as_it_was(tmp_path):
    standing = TrainingProgress(
        epoch=3,
        step=4,
        loss_sum=0.1 + 0.2,
        num_seen=37,
        curve=[{"epoch": 1, "train_loss": 1 / 3}],
        best_metric=0.7,
        best_loss=0.1,
    )
    checkpoints(tmp_path).save(standing, {"scale": 2.0})
    assert checkpoints(tmp_path).load() == (standing, {"scale": 2.0})
    assert checkpoints(tmp_path).load()[0].is_better(0.7, 0.05)


@pytest.mark.parametrize("num_bytes", [0, 1000, 300_000])
def test_a_file_cut_short_is_said_and_training_starts_anew(tmp_path, num_bytes):
    checkpoints(tmp_path).save(TrainingProgress(), {"network": {"weight": torch.zeros(100_000)}})
    last = tmp_path / "last.pt"
    last.write_bytes(last.read_bytes()[:num_bytes])
    events: list[Event] = []
    assert checkpoints(tmp_path, on_event=events.append).load() == (TrainingProgress(), None)
    assert [(event.level, "last.pt" in event.text) for event in events if isinstance(event, Note)] == [("warning", True)]


def test_checkpoint_of_other_training_not_used(tmp_path):
    train(checkpoints(tmp_path), [Epoch()])
    events: list[Event] = []
    assert checkpoints(tmp_path, OTHER_DIGEST, events.append).load() == (TrainingProgress(), None)
    assert [(event.level, "last.pt" in event.text) for event in events if isinstance(event, Note)] == [("info", True)]


def test_best_weights_of_other_training_not_taken(tmp_path):
    train(checkpoints(tmp_path), [Epoch()])
    with pytest.raises(Killed), killed_at(1):
        kept = checkpoints(tmp_path, OTHER_DIGEST)
        kept.save_best(1, weights(99))
        kept.save(replace(TrainingProgress(), epoch=1, best_epoch=1), {"network": weights(99)})
    assert assert_consistent(tmp_path).best_epoch == 1


def test_best_weights_gone_starts_anew(tmp_path):
    train(checkpoints(tmp_path), [Epoch(), Epoch()])
    next(tmp_path.glob("best-*.pt")).unlink()
    events: list[Event] = []
    assert checkpoints(tmp_path, on_event=events.append).load() == (TrainingProgress(), None)
    assert [event.level for event in events if isinstance(event, Note)] == ["warning"]


@pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
def test_best_weights_damaged_starts_anew(tmp_path, harm):
    train(checkpoints(tmp_path), [Epoch(), Epoch()])
    file = next(tmp_path.glob("best-*.pt"))
    data = file.read_bytes()
    held = load_checkpoint(file)["state"]["weight"].numpy().tobytes()
    place = data.index(held) if harm == "flip" else len(data) // 2
    flipped = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
    file.write_bytes({"flip": flipped, "cut": data[:place], "empty": b""}[harm])
    events: list[Event] = []
    assert checkpoints(tmp_path, on_event=events.append).load() == (TrainingProgress(), None)
    assert [event.level for event in events if isinstance(event, Note)] == ["warning"]


def test_best_weights_that_are_damaged_are_refused_not_used(tmp_path):
    train(checkpoints(tmp_path), [Epoch()])
    next(tmp_path.glob("best-*.pt")).write_bytes(b"not weights")
    with refused("bad-weights"):
        checkpoints(tmp_path).load_best(1)


def test_without_folder_best_weights_in_memory():
    kept, state = checkpoints(None), weights(1)
    kept.save_best(1, state)
    kept.save(TrainingProgress(best_epoch=1), {})
    state["weight"] += 5
    assert torch.equal(kept.load_best(1)["weight"], weights(1)["weight"])
    assert kept.load() == (TrainingProgress(), None)


def test_better_is_metric_then_loss_then_epoch():
    assert TrainingProgress().is_better(-5.0, 9.0)
    held = TrainingProgress(best_metric=0.8, best_loss=0.3)
    assert held.is_better(0.81, 9.0)
    assert held.is_better(0.8, 0.29)
    assert not held.is_better(0.8, 0.3)
    assert not held.is_better(0.79, 0.0)


def test_held_best_weights_before_they_are_written(tmp_path):
    kept, state = checkpoints(tmp_path), weights(2)
    kept.hold_best(2, state)
    state["weight"] += 5
    assert torch.equal(kept.load_best(2)["weight"], weights(2)["weight"])
    assert not any(tmp_path.iterdir())
    kept.save(TrainingProgress(epoch=2, best_epoch=2), {})
    assert torch.equal(checkpoints(tmp_path).load_best(2)["weight"], weights(2)["weight"])


def test_the_file_is_plain_enough_for_weights_only(mixture, train, tmp_path):
    head = train(mixture(), [HeadConfig(epochs=1)]).best
    save_head(head, tmp_path / "best_head.pt", extra={})
    content = torch.load(tmp_path / "best_head.pt", weights_only=True)
    assert content["names"] == ["class 0", "class 1", "class 2"]
