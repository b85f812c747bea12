"""Training on a card, with the processor in its place: rows are held, and a "recording" repeats the work call by call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from errors import refused
from small_training import NO_GPU_MEMORY, STEPS_PER_EPOCH, Shortage, Small, after, distance, small
from unchoke.core.checksums import CHECKSUMS
from unchoke.core.errors import Interrupted
from unchoke.core.events import Chosen, Event
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.network import cuda_graph, finetune, gpu_rows, step
from unchoke.training.network.cuda_graph import EAGER, FILE, GRAPH, StepTrial, judge
from unchoke.training.network.loop_config import LoopResult

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "the whole network": ({"cut": "none", "num_train": 20}, {}),
    "the head alone": ({"cut": "end", "tiles": TilePlan(2, 1, 2)}, {"body_lr": 0.0}),
    "averaged": ({}, {"ema_decay": 0.9}),
    "mixed": ({"num_inputs": 1}, {"mixup": 0.4, "label_smoothing": 0.1, "class_weights": "balanced"}),
    "views": ({"views": 3}, {"clip": 0.0}),
    "values": ({"kind": "values", "num_inputs": 2}, {"mixup": 0.3}),
    "channels last": ({"name": "test_resnet"}, {"memory_format": "channels_last", "ema_decay": 0.9}),
    "batch norm": ({"name": "test_efficientnet", "cut": "-2"}, {"batch_norm": "train", "ema_decay": 0.9}),
    "bf16": ({}, {"dtype": "bfloat16"}),
}


class Card:
    """What was asked of the card."""

    def __init__(self) -> None:
        self.recorded = self.repeated = 0
        self.error: Exception | None = None

    def record(self, work: Callable[[], None], device: torch.device) -> Callable[[], None]:
        if self.error is not None:
            raise self.error
        self.recorded += 1
        work()

        def repeat() -> None:
            self.repeated += 1
            work()

        return repeat


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    found = Card()
    for module in (finetune, step):
        monkeypatch.setattr(module, "has_own_memory", lambda device: True)
    monkeypatch.setattr(cuda_graph, "can_record", lambda device: True)
    monkeypatch.setattr(cuda_graph, "record_work", found.record)
    monkeypatch.setattr(cuda_graph, "FEWEST_STEPS", 1)
    monkeypatch.setattr(cuda_graph, "_LEAST_GAIN", 0.0)
    return found


@contextmanager
def without_card() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as plain:
        for module in (finetune, step):
            plain.setattr(module, "has_own_memory", lambda device: False)
        yield


@pytest.fixture(params=["on the card", "in memory"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in memory":
        monkeypatch.setattr(gpu_rows, "_SPARE_SHARE", 0.0)
    return str(request.param)


def told(made: Small, **changes: Any) -> tuple[LoopResult, dict[str, Any]]:
    events: list[Event] = []
    done = made.train(on_event=events.append, **changes)
    return done, {event.choice.name: event.choice for event in events if isinstance(event, Chosen)}


@pytest.mark.parametrize("kind", KINDS)
def test_cuda_graph_steps_end_as_eager_ones(kind: str, place: str, card: Card) -> None:
    made, changes = KINDS[kind]
    with without_card():
        expected = small(**made).train(**changes)
    done, choices = told(small(**made), **changes)
    assert choices["step"].value == GRAPH, choices["step"].reason
    assert choices["inputs"].value == ("card" if place == "on the card" else "memory")
    for name, value in expected.state.items():
        torch.testing.assert_close(done.state[name], value, rtol=1e-3, atol=3e-3 if kind == "bf16" else 1e-4, msg=name)
    assert [row["train_loss"] for row in done.curve] == pytest.approx([row["train_loss"] for row in expected.curve], rel=1e-2)
    assert [row["lr"] for row in done.curve] == [row["lr"] for row in expected.curve]
    assert done.num_steps == expected.num_steps
    assert card.recorded == 1


def test_without_gpu_nothing_is_chosen() -> None:
    _, choices = told(small())
    assert choices == {}


def test_cuda_graph_training_resumes_same(place: str, card: Card, tmp_path: Path) -> None:
    changes = {"ema_decay": 0.9, "mixup": 0.3}
    whole = small(views=2).train(**changes)
    for steps in (1, 3, 6):  # within an epoch, before its odd batch, and over its end
        with pytest.raises(Interrupted):
            small(views=2).train(folder=tmp_path, stop=after(steps), **changes)
    done, choices = told(small(views=2), folder=tmp_path, **changes)
    assert done.resumed_step == 10
    assert FILE in choices["step"].reason
    assert distance(done.state, whole.state) == 0
    assert done.best_epoch == whole.best_epoch


def test_what_a_run_began_with_stands(card: Card, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        small().train(folder=tmp_path, stop=after(2))
    kept = json.loads((tmp_path / FILE).read_text())
    assert kept["step"] == GRAPH
    (tmp_path / CHECKSUMS).unlink()  # changed on purpose
    (tmp_path / FILE).write_text(json.dumps({**kept, "step": EAGER}))
    before = card.recorded
    _, choices = told(small(), folder=tmp_path)
    assert choices["step"].value == EAGER
    assert card.recorded == before


def test_rows_on_the_card_are_read_once(card: Card) -> None:
    made = small()
    made.train(epochs=4)
    assert sum(map(len, made.store.asked)) == len(made.problem.sample_ids)


def test_last_batch_padded_unless_batch_statistics(place: str, card: Card) -> None:
    small().train(epochs=2)
    num_whole, tried = STEPS_PER_EPOCH - 1, 2 * 4
    assert card.repeated == tried + 2 * STEPS_PER_EPOCH
    small("test_efficientnet", cut="-2").train(epochs=2, batch_norm="train")
    assert card.repeated == 2 * tried + 2 * STEPS_PER_EPOCH + 2 * num_whole


@pytest.mark.parametrize("num_train", [33, 35])
def test_samples_that_only_fill_up_do_not_count(num_train: int, place: str, card: Card) -> None:
    made, changes = {"num_train": num_train, "num_inputs": 1}, {"mixup": 0.4, "epochs": 2}
    with without_card():
        expected = small(**made).train(**changes)
    done = small(**made).train(**changes)
    for name, value in expected.state.items():
        torch.testing.assert_close(done.state[name], value, rtol=1e-3, atol=1e-4, msg=name)
    assert [row["train_loss"] for row in done.curve] == pytest.approx([row["train_loss"] for row in expected.curve], rel=1e-5)
    for split, outputs in expected.outputs.items():
        torch.testing.assert_close(torch.from_numpy(done.outputs[split]), torch.from_numpy(outputs), rtol=1e-2, atol=1e-3)


def test_rows_on_the_card_are_judged_in_batches_of_one_size(card: Card) -> None:
    made = small(shortage=Shortage())
    made.train(eval_batch=4)
    assert made.network.shortage is not None
    assert {len(x) for x in made.network.shortage.shown} == {8, 4}  # steps are filled up; val has 14 samples, test has 10


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sub_batch": 3}, "a batch runs in micro-batches"),
        ({"dtype": "float16"}, "a loss scale"),
        ({"grad_ckpt": True}, "computed again"),
    ],
)
def test_what_cannot_be_recorded_soundly_is_not_tried(changes: dict[str, Any], why: str, card: Card) -> None:
    done, choices = told(small(cut="-2"), **changes)
    assert choices["step"].value == EAGER
    assert why in choices["step"].reason
    assert card.recorded == 0
    assert done.num_steps == 3 * STEPS_PER_EPOCH


def test_few_steps_are_not_recorded(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "FEWEST_STEPS", 200)
    _, choices = told(small())
    assert choices["step"].value == EAGER
    assert "15 steps" in choices["step"].reason


def test_less_than_one_batch_is_eager(card: Card) -> None:
    done, choices = told(small(num_train=6))
    assert "no batch is whole" in choices["step"].reason
    assert done.num_steps == 3


def test_network_with_dropout_is_eager(card: Card) -> None:
    def dropping() -> Small:
        made = small()
        made.network.suffix = nn.Sequential(made.network.suffix, nn.Dropout(0.5))
        return made

    with without_card():
        expected = dropping().train()
    done, choices = told(dropping())
    assert "draws at random" in choices["step"].reason
    assert distance(done.state, expected.state) == 0


@pytest.mark.parametrize(
    ("error", "said"),
    [(NO_GPU_MEMORY, "ran out of memory"), (RuntimeError("operation not permitted when stream is capturing"), "not permitted")],
)
def test_failed_cuda_graph_goes_on_eager(error: Exception, said: str, card: Card) -> None:
    with without_card():
        expected = small().train(ema_decay=0.9)
    card.error = error
    done, choices = told(small(), ema_decay=0.9)
    assert choices["step"].value == EAGER
    assert said in choices["step"].reason
    assert distance(done.state, expected.state) == 0


@pytest.mark.parametrize(("room", "way"), [(1000, GRAPH), (999, EAGER)])
def test_cuda_graph_too_large_is_eager(room: int, way: str, card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "held_memory_bytes", lambda device: 300)
    monkeypatch.setattr(cuda_graph, "passing_bytes", lambda device: 400)
    monkeypatch.setattr(cuda_graph, "device_room_bytes", lambda device: room)
    _, choices = told(small())
    assert choices["step"].value == way
    assert all(size in choices["step"].reason for size in ("400 B", "300 B")) == (way == EAGER)


def test_a_training_that_diverges_is_noticed(card: Card) -> None:
    with refused("diverged"):
        small().train(lr=1e20, body_lr=1e20, epochs=4)


def test_rows_too_large_for_gpu_are_read_ahead(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NO_GPU_MEMORY

    monkeypatch.setattr(gpu_rows, "fill_gpu", refuse)
    done, choices = told(small())
    assert choices["inputs"].value == "memory"
    assert str(NO_GPU_MEMORY)[:20] in choices["inputs"].reason
    assert choices["step"].value == GRAPH
    assert done.num_steps == 3 * STEPS_PER_EPOCH


@pytest.mark.parametrize(
    ("trial", "value", "said"),
    [
        (StepTrial(0.03, 0.01, apart=0.001, noise=0.0), GRAPH, "3,200 samples/s"),
        (StepTrial(0.03, 0.01, apart=0.051, noise=0.0), EAGER, "5.1%"),
        (StepTrial(0.03, 0.01, apart=0.08, noise=0.05), GRAPH, "8.00%"),
        (StepTrial(0.03, 0.01, apart=float("nan"), noise=0.0), EAGER, "nan"),
        (StepTrial(0.0105, 0.01, apart=0.0, noise=0.0), EAGER, "3,200 samples/s"),
    ],
)
def test_a_recording_must_agree_and_pay(trial: StepTrial, value: str, said: str) -> None:
    choice = judge(trial, batch_size=32)
    assert (choice.name, choice.value) == ("step", value)
    assert said in choice.reason
    assert choice.evidence["samples_per_s"][EAGER] == pytest.approx(32 / trial.eager_s, abs=0.1)
