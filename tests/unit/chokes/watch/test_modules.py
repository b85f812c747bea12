"""The deep look at a network: which parts ran, on what, and what is trained."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.utils.data import DataLoader, TensorDataset

from unchoke.chokes.watch import modules
from unchoke.chokes.watch.hooks import Hook
from unchoke.chokes.watch.modules import kept_graphs
from unchoke.chokes.watch.recorder import Recorder


class Tiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        tiles = [self.encoder(pixels[:, at : at + 4]) for at in range(0, 16, 4)]
        return self.head(torch.stack(tiles).mean(0))


@pytest.fixture
def recorder(hooks_made: list[Hook]) -> Recorder:
    made = Recorder()
    modules.install(made)
    return made


def train(model: nn.Module, inputs: list[torch.Tensor], trained: nn.Module | None = None) -> None:
    optimizer = torch.optim.SGD((trained or model).parameters(), lr=0.1)
    for batch in inputs:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def rows(recorder: Recorder) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in recorder.to_dict()["modules"] if not row["in_evaluation"]}


def no_hooks_are_left() -> bool:
    return not module_hooks._global_forward_hooks and not module_hooks._global_forward_pre_hooks


def test_parts_tell_how_often_they_run_and_on_what(recorder: Recorder) -> None:
    train(Tiled(), [torch.rand(5, 16) for _ in range(10)])
    found = rows(recorder)
    assert found["Tiled"]["calls_per_step"] == 1
    assert found["Tiled.encoder"]["calls_per_step"] == 4
    assert found["Tiled.encoder"]["batch"] == 5
    assert found["Tiled.encoder"]["input_shape"] == [5, 4]
    assert found["Tiled.encoder"]["call_line"] == Tiled.forward.__code__.co_firstlineno + 1
    assert found["Tiled"]["line"] == Tiled.forward.__code__.co_firstlineno
    assert found["Tiled.encoder.0"]["depth"] == 2
    assert found["Tiled"]["num_in_optimizer"] == found["Tiled"]["num_params"]
    assert no_hooks_are_left()


def test_frozen_parts_are_watched_for_repeated_inputs(recorder: Recorder) -> None:
    model = Tiled()
    epoch = [torch.rand(5, 16) for _ in range(6)]
    train(model, epoch * 3, trained=model.head)
    encoder = rows(recorder)["Tiled.encoder"]
    assert (encoder["num_in_optimizer"], encoder["num_trainable"]) == (0, encoder["num_params"])
    assert encoder["output_requires_grad"]
    assert encoder["repeated_inputs_share"] > 0.9
    assert "repeated_inputs_share" not in rows(recorder)["Tiled"]


def test_watched_network_can_be_copied_and_saved(recorder: Recorder) -> None:
    model = Tiled()
    train(model, [torch.rand(2, 16) for _ in range(4)])
    assert not no_hooks_are_left()
    copy.deepcopy(model)
    assert b"unchoke.chokes.watch" not in pickle.dumps(model)


def test_evaluating_is_looked_at_apart(recorder: Recorder) -> None:
    model = Tiled()
    train(model, [torch.rand(2, 16) for _ in range(7)])
    recorder.phase = "evaluate"
    model.eval()
    with torch.no_grad():
        for (batch,) in DataLoader(TensorDataset(torch.rand(20, 16)), batch_size=1):
            model(batch)
    recorder.phase = "outside"
    evaluated = [row for row in recorder.to_dict()["modules"] if row["in_evaluation"]]
    assert evaluated[0]["name"] == "Tiled"
    assert (evaluated[0]["batch"], evaluated[0]["calls_per_step"], evaluated[0]["grad_enabled"]) == (1, 1, False)
    assert no_hooks_are_left()


def test_settings_that_slow_a_step_are_facts(recorder: Recorder) -> None:
    with torch.autograd.set_detect_anomaly(True), torch.autocast("cpu", dtype=torch.bfloat16):
        train(Tiled(), [torch.rand(2, 16) for _ in range(8)])
    facts = recorder.to_dict()["facts"]
    assert facts["anomaly"] is True
    assert facts["autocast"] == "bfloat16"
    assert facts["torch_threads"] == torch.get_num_threads()


def test_kept_graphs_are_found_with_their_variable() -> None:
    weight = torch.ones(3, requires_grad=True)
    losses = []
    for _ in range(10):
        losses.append((weight * 2).sum())  # noqa: PERF401
    found = kept_graphs(10)
    assert found["tensors"] >= 10
    assert found["holder"]["name"] == "losses"
    assert found["holder"]["file"] == __file__
    assert found["holder"]["line"] == test_kept_graphs_are_found_with_their_variable.__code__.co_firstlineno + 4


def test_own_error_ends_watching_not_training(recorder: Recorder) -> None:
    class Odd(nn.Linear):
        def named_modules(self, *args: Any, **options: Any) -> Any:
            if args or options:  # as torch itself asks
                return super().named_modules(*args, **options)
            raise LookupError("odd")

    train(Odd(16, 2), [torch.rand(2, 16) for _ in range(8)])
    assert any("stopped looking at modules" in note for note in recorder.to_dict()["notes"])
    assert no_hooks_are_left()
