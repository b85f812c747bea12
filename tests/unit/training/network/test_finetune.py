from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from errors import refused
from small_training import (
    CPU,
    NO_GPU_MEMORY,
    NO_MEMORY,
    NUM_TRAIN,
    STEPS_PER_EPOCH,
    Shortage,
    Small,
    after,
    config,
    distance,
    fingerprint,
    small,
)
from unchoke.core.errors import Interrupted
from unchoke.core.events import Event, Note, Progress
from unchoke.core.fingerprint import digest_file
from unchoke.features.encoders import digest_tensors
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.network.loop_config import LoopResult

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "convolutions": ({"name": "test_efficientnet"}, {}),
    "the whole network": ({"name": "test_vit", "cut": "none", "num_train": 20}, {}),
    "the head alone": ({"cut": "end", "tiles": TilePlan(2, 1, 2)}, {"body_lr": 0.0}),
    "averaged": ({}, {"ema_decay": 0.9}),
    "mixed": ({"num_inputs": 1}, {"mixup": 0.4, "label_smoothing": 0.1, "class_weights": "balanced"}),
    "views": ({"views": 3}, {"clip": 0.0}),
    "values": ({"kind": "values", "num_inputs": 2}, {"mixup": 0.3}),
    "tiles": ({"tiles": TilePlan(2, 1, 2), "kind": "values"}, {}),
    "no val": ({"splits": ("train", "test")}, {}),
    "nothing but train": ({"splits": ("train",)}, {"ema_decay": 0.8}),
    "impatient": ({}, {"patience": 1, "lr": 0.05, "body_lr": 0.02, "epochs": 6}),
    "channels last": ({"name": "test_resnet"}, {"memory_format": "channels_last", "ema_decay": 0.9}),
    "batch norm": ({"name": "test_efficientnet", "cut": "-2"}, {"batch_norm": "train", "ema_decay": 0.9}),
    "bf16": ({}, {"dtype": "bfloat16"}),
    "f16": ({}, {"dtype": "float16", "clip": 0.0}),
    "f16, clipped": ({}, {"dtype": "float16"}),
    "checkpointed": ({"cut": "-2"}, {"grad_ckpt": True}),
    "in parts": ({}, {"sub_batch": 3, "eval_batch": 5}),
}


def notes(events: list[Event]) -> str:
    return "\n".join(event.text for event in events if isinstance(event, Note))


def interrupted(folder: Path, stops: list[int], made: dict[str, Any], changes: dict[str, Any], workers: list[int]) -> LoopResult:
    """Stopped on request after so many steps each time, then run to its end, with other numbers of workers."""
    for number, num_steps in enumerate(stops):
        with pytest.raises(Interrupted):
            small(**made).train(folder=folder, stop=after(num_steps), workers=workers[number], **changes)
    return small(**made).train(folder=folder, workers=workers[-1], **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_training_same_bytes_any_workers(kind, tmp_path):
    made, changes = KINDS[kind]
    whole = small(**made).train(folder=tmp_path / "whole", **changes)
    stopped = interrupted(tmp_path / "stopped", [4, 3], made, changes, [0, 2, 1])
    assert stopped.resumed_step == 7
    assert fingerprint(stopped) == fingerprint(whole)
    assert digest_file(tmp_path / "stopped" / "last.pt") == digest_file(tmp_path / "whole" / "last.pt")
    assert json.dumps(stopped.curve) == json.dumps(whole.curve)


@pytest.mark.parametrize("stops", [[1, 1, 1], [3, 2, 5], [5, 5, 5], [2, 7, 4], [14]])
def test_stops_anywhere_change_nothing(stops, tmp_path):
    made, changes = {"views": 2}, {"ema_decay": 0.9, "mixup": 0.3}
    stopped = interrupted(tmp_path, stops, made, changes, [2, 1, 0, 2])
    assert stopped.resumed_step == sum(stops)
    assert fingerprint(stopped) == fingerprint(small(**made).train(**changes))


def test_a_finished_training_is_not_trained_again(tmp_path):
    first = small().train(folder=tmp_path)
    made = small()
    again = made.train(folder=tmp_path)
    assert again.resumed_step == again.num_steps == 3 * STEPS_PER_EPOCH
    assert fingerprint(again) == fingerprint(first)
    assert not np.isin(np.concatenate(made.store.asked), made.problem.positions("train")).any()


class Crash(Exception):  # noqa: N818 (what happened)
    """Something that ends the process without a last word."""


def crash_in(made: Small, read: int) -> None:
    """Fail in the `read`th read from the store."""
    real = made.store.rows

    def rows(positions: Any, views: Any = 0) -> Any:
        if len(made.store.asked) >= read:
            raise Crash
        return real(positions, views)

    made.store.rows = rows


@pytest.mark.parametrize(("read", "every_s"), [(0, 0.0), (3, 3600.0), (7, 0.0), (15, 3600.0), (21, 0.0), (30, 3600.0)])
def test_unsaved_steps_repeated_to_same_end(read, every_s, tmp_path):
    made = small()
    crash_in(made, read)
    with pytest.raises(Crash):
        made.train(folder=tmp_path, checkpoint_every_s=every_s)
    val = made.problem.positions("val")
    judged = [batch for batch in made.store.asked if np.isin(batch, val).all()]
    num_steps, num_epochs = len(made.store.asked) - len(judged), sum(map(len, judged)) // len(val)
    done = small().train(folder=tmp_path, workers=1)
    if every_s:  # ends of epochs are saved where that is worth its time
        assert done.resumed_step in range(0, num_epochs * STEPS_PER_EPOCH + 1, STEPS_PER_EPOCH)
    else:
        assert done.resumed_step == num_steps
    assert fingerprint(done) == fingerprint(small().train())


def test_other_micro_batch_after_stop_same_weights(tmp_path):
    whole = small().train()
    with pytest.raises(Interrupted):
        small().train(folder=tmp_path, stop=after(7))
    other = small().train(folder=tmp_path, sub_batch=3, eval_batch=5)
    assert (other.resumed_step, other.sub_batch, other.eval_batch) == (7, 3, 5)
    assert distance(other.state, whole.state) < 1e-5
    assert [row["train_loss"] for row in other.curve] == pytest.approx([row["train_loss"] for row in whole.curve], rel=1e-5)


def test_smaller_micro_batch_kept_after_stop(tmp_path):
    hungry = small(shortage=Shortage(lambda samples, call: samples > 1))
    with pytest.raises(Interrupted):
        hungry.train(folder=tmp_path, stop=after(7))
    done = small().train(folder=tmp_path)
    assert (done.sub_batch, done.eval_batch, done.halvings) == (1, 1, 4)


@pytest.mark.parametrize("changes", [{"grad_ckpt": True}, {"threads": 2}, {"eval_batch": 3}])
def test_how_the_work_is_cut_up_is_not_what_a_training_is(changes, tmp_path):
    with pytest.raises(Interrupted):
        small(cut="-2").train(folder=tmp_path, stop=after(7))
    assert small(cut="-2").train(folder=tmp_path, **changes).resumed_step == 7


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        ({}, {"lr": 1e-4}),
        ({}, {"seed": 1}),
        ({}, {"batch_size": 7}),
        ({"seed": 1}, {}),
        ({"kind": "values"}, {}),
        ({"num_inputs": 1}, {}),
        ({"splits": ("train", "val")}, {}),
    ],
)
def test_checkpoint_of_other_training_left_alone(made, changes, tmp_path):
    with pytest.raises(Interrupted):
        small().train(folder=tmp_path, stop=after(7))
    events: list[Event] = []
    done = small(**made).train(folder=tmp_path, on_event=events.append, **changes)
    assert done.resumed_step == 0
    assert "last.pt" in notes(events)
    assert fingerprint(done) == fingerprint(small(**made).train(**changes))


def test_without_a_folder_a_stop_says_that_nothing_is_kept():
    with refused("interrupted", "epoch 1 of 3, after step 2", "nothing is kept"):
        small().train(stop=after(2))


# -- what is learnt --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        ({}, {}),
        ({"name": "test_efficientnet"}, {}),
        ({"kind": "values"}, {"epochs": 6}),
        ({"cut": "end"}, {"lr": 0.02, "epochs": 6}),
    ],
)
def test_the_loss_falls_on_what_can_be_learnt(made, changes):
    done = small(**made).train(**{"epochs": 5, **changes})
    losses = [row["train_loss"] for row in done.curve]
    assert losses[-1] < 0.7 * losses[0]
    assert done.val["log_loss"] < 0.9 if done.metric == "log_loss" else done.val[done.metric] > 0.5


def test_gradient_checkpointing_changes_no_bit():
    assert fingerprint(small(cut="-2").train(grad_ckpt=True)) == fingerprint(small(cut="-2").train())


@pytest.mark.parametrize("ema_decay", [0.0, 0.3])
def test_weights_and_figures_of_best_epoch(ema_decay, tmp_path):
    rates = {"lr": 0.05, "body_lr": 0.03, "ema_decay": ema_decay}
    trainings = (small().train(folder=tmp_path, epochs=8, seed=seed, **rates) for seed in range(10))
    done = next(done for done in trainings if done.best_epoch < 8)
    best = max(done.curve, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    assert done.best_epoch == best["epoch"]
    made = small()
    made.network.load_state_dict(done.state)
    made.network.eval()
    val = made.problem.positions("val")
    with torch.inference_mode():
        outputs = made.network(made.source.prepare(made.source.read(val, None), val, None)).numpy()
    np.testing.assert_allclose(done.outputs["val"], outputs, rtol=1e-5, atol=1e-6)
    assert (outputs.argmax(axis=1) == made.problem.targets[val]).mean() == pytest.approx(done.val["accuracy"])
    last = torch.load(tmp_path / "last.pt", weights_only=True)
    assert digest_tensors(last["pieces"]["network"]) != digest_tensors(done.state)


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_outputs_of_val_and_test_in_position_order(ema_decay):
    made = small(num_inputs=2)
    done = made.train(eval_batch=3, ema_decay=ema_decay)
    for split in ("val", "test"):
        positions = made.problem.positions(split)
        x = made.source.prepare(made.source.read(positions, None), positions, None)
        with torch.inference_mode():
            wanted = made.network.eval()(x, torch.from_numpy(made.inputs[positions])).numpy()
        np.testing.assert_allclose(done.outputs[split], wanted, rtol=1e-5, atol=1e-6)


def test_averaged_weights_are_judged_and_kept():
    plain, averaged = small().train(lr=0.02), small().train(lr=0.02, ema_decay=0.9)
    assert [row["train_loss"] for row in plain.curve] == [row["train_loss"] for row in averaged.curve], "it steers no step"
    assert plain.curve[0]["val_loss"] != averaged.curve[0]["val_loss"]
    assert digest_tensors(plain.state) != digest_tensors(averaged.state)
    short = small().train(lr=0.02, ema_decay=1e-9)
    assert distance(short.state, plain.state) < 1e-6, "an average over nothing is the weights themselves"


def test_patience_ends_a_training_that_no_longer_improves():
    done = small().train(epochs=40, patience=2, lr=0.05, body_lr=0.03, warmup_epochs=0.0)
    assert len(done.curve) == done.best_epoch + 2 < 40
    assert done.num_steps == len(done.curve) * STEPS_PER_EPOCH


def test_late_training_ends_after_its_epoch(tmp_path):
    late = small().train(folder=tmp_path, epochs=4, ends_s=0.0)
    assert len(late.curve) == 1
    again = small().train(folder=tmp_path, epochs=4)
    assert (again.num_steps, digest_tensors(again.state)) == (STEPS_PER_EPOCH, digest_tensors(late.state)), "it is finished"


def test_without_val_last_epoch_is_kept():
    done = small(splits=("train", "test")).train(patience=1)
    assert (done.best_epoch, done.val, list(done.outputs)) == (3, {}, ["test"])
    assert all(set(row) == {"epoch", "train_loss", "lr"} for row in done.curve)


def test_batch_norm_statistics_frozen_or_trained():
    for batch_norm, changes in (("frozen", False), ("train", True)):
        made = small("test_efficientnet", cut="-2")
        begun = {name: value.clone() for name, value in made.network.state_dict().items() if "running" in name}
        done = made.train(batch_norm=batch_norm)
        assert begun
        assert all(torch.equal(value, done.state[name]) != changes for name, value in begun.items())


def test_head_on_fixed_features_alone_moves():
    made = small(cut="-1")
    begun = {name: value.clone() for name, value in made.network.state_dict().items()}
    done = made.train(body_lr=0.0, weight_decay=0.0)
    changed = [name for name, value in begun.items() if not torch.equal(value, done.state[name])]
    assert changed == ["head.weight", "head.bias"]


def test_clipping_holds_back_a_step_that_is_too_long():
    made = {"kind": "values", "num_train": 8}
    free, clipped = (small(**made).train(epochs=1, clip=clip) for clip in (0.0, 1e-4))
    assert distance(clipped.state, small(**made).network.state_dict()) < distance(free.state, small(**made).network.state_dict())


# -- what a batch is -------------------------------------------------------------------------------------------------------------


def ids_by_batch(made: Small, **changes: Any) -> list[list[str]]:
    """The sample ids of every batch that was read for training."""
    made.train(**changes)
    train = set(made.problem.positions("train").tolist())
    asked = [batch for batch in made.store.asked if set(batch.tolist()) <= train]
    return [[made.problem.sample_ids[position] for position in batch] for batch in asked]


def test_every_epoch_every_sample_once_reordered():
    batches = ids_by_batch(small())
    epochs = [[*chain(*batches[start : start + STEPS_PER_EPOCH])] for start in range(0, len(batches), STEPS_PER_EPOCH)]
    assert len(epochs) == 3
    assert [len(batch) for batch in batches[:STEPS_PER_EPOCH]] == [8, 8, 8, 8, 4]
    assert all(sorted(epoch) == sorted(f"sample {number}" for number in range(NUM_TRAIN)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_order_follows_ids_not_positions():
    count = len(small().problem.sample_ids)
    order = np.random.default_rng(1).permutation(count)
    assert ids_by_batch(small(order=order)) == ids_by_batch(small())
    assert ids_by_batch(small(), seed=1) != ids_by_batch(small())


def test_stored_order_does_not_change_weights():
    order = np.random.default_rng(1).permutation(len(small().problem.sample_ids))
    assert digest_tensors(small(order=order).train().state) == digest_tensors(small().train().state)


def test_mixup_reads_one_sample_more_than_a_batch_has():
    batches = ids_by_batch(small(), mixup=0.3)
    assert [len(batch) for batch in batches[:STEPS_PER_EPOCH]] == [9, 9, 9, 9, 5]
    assert all(batch[-1] == batch[0] for batch in batches)


def test_last_batch_of_one_sample_with_mixup():
    done = small(num_train=17).train(mixup=0.3)
    assert done.num_steps == 9
    assert np.isfinite([row["train_loss"] for row in done.curve]).all()


# -- when things go wrong --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "cut"), [("test_vit", "-2"), ("test_efficientnet", "-2")])
@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_oom_at_random_steps_same_weights(name, cut, stage):
    chance = random.Random(7)
    hungry = Shortage(lambda samples, call: samples > 1 and chance.random() < 0.06, NO_GPU_MEMORY, stage)
    calm = small(name, cut=cut).train(epochs=6)
    done = small(name, cut=cut, shortage=hungry).train(epochs=6)
    assert done.halvings >= 3
    assert (done.num_steps, done.best_epoch) == (calm.num_steps, calm.best_epoch)
    assert distance(done.state, calm.state) < 1e-5
    assert [row["train_loss"] for row in done.curve] == pytest.approx([row["train_loss"] for row in calm.curve], rel=1e-5)


def test_memory_that_runs_out_is_told_and_counted():
    events: list[Event] = []
    made = small(shortage=Shortage(lambda samples, call: samples > 1, NO_MEMORY))
    done = made.train(on_event=events.append)
    assert (done.sub_batch, done.eval_batch, done.halvings) == (1, 1, 4)
    told = [event.text for event in events if isinstance(event, Note)]
    assert any("8 samples" in text and "4" in text for text in told)


class Overflowing(nn.Module):
    """A suffix that breaks after so many passes in training, in its output or in its gradient."""

    def __init__(self, suffix: nn.Module, *, passes: int, value: float, in_gradient: bool) -> None:
        super().__init__()
        self.suffix, self.left, self.value, self.in_gradient = suffix, passes, value, in_gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.suffix(x)
        if not self.training:
            return found
        self.left -= 1
        if self.left >= 0:
            return found
        if not self.in_gradient:
            return found * self.value
        found.register_hook(lambda gradient: gradient * self.value)
        return found


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("in_gradient", [False, True])
@pytest.mark.parametrize("passes", [2, STEPS_PER_EPOCH - 1, STEPS_PER_EPOCH + 2])
def test_divergence_saves_nothing_broken(passes, in_gradient, value, tmp_path):
    made = small()
    made.network.suffix = Overflowing(made.network.suffix, passes=passes, value=value, in_gradient=in_gradient)
    with refused("diverged", "--lr 0.0003"):
        made.train(folder=tmp_path, checkpoint_every_s=0.0)
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert saved["standing"]["epoch"] * STEPS_PER_EPOCH + saved["standing"]["step"] == passes
    for file in tmp_path.glob("*.pt"):
        assert_finite(torch.load(file, weights_only=True))


def test_a_rate_beyond_reason_is_answered_with_a_usual_one(tmp_path):
    made = small()
    made.network.suffix = Overflowing(made.network.suffix, passes=2, value=math.nan, in_gradient=False)
    with refused("diverged", "--lr 0.001,"):
        made.train(folder=tmp_path, lr=1e9)


def assert_finite(value: Any) -> None:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            assert_finite(item)
    elif isinstance(value, torch.Tensor):
        assert value.isfinite().all()
    elif isinstance(value, float):
        assert math.isfinite(value)


class BrokenInEvaluation(nn.Module):
    def __init__(self, suffix: nn.Module) -> None:
        super().__init__()
        self.suffix = suffix

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.suffix(x)
        return found if self.training else found * math.nan


def test_nan_outputs_on_val_are_divergence(tmp_path):
    made = small()
    made.network.suffix = BrokenInEvaluation(made.network.suffix)
    with refused("diverged", "val split"):
        made.train(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- what is told, and what is left alone ----------------------------------------------------------------------------------------


def test_progress_counts_images_and_ends_at_the_total():
    events: list[Event] = []
    small().train(on_event=events.append, workers=1)
    told = [event for event in events if isinstance(event, Progress)]
    assert [event.done for event in told] == sorted(event.done for event in told)
    assert (told[-1].done, told[-1].total, told[-1].unit) == (3 * NUM_TRAIN, 3 * NUM_TRAIN, "images")
    assert 0 <= told[-1].extra["waiting_for_data_share"] <= 1
    assert told[-1].extra["best_val_log_loss"] > 0


def test_callers_rng_untouched_and_irrelevant():
    found = []
    for seed in (1, 2):
        made = small()
        made.network.suffix = nn.Sequential(made.network.suffix, nn.Dropout(0.3))
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(fingerprint(made.train()))
        assert torch.equal(torch.get_rng_state(), before)
    assert found[0] == found[1]


def dropping(**options: Any) -> Small:
    made = small(**options)
    made.network.suffix = nn.Sequential(made.network.suffix, nn.Dropout(0.3))
    return made


class Drawing(nn.Module):
    """Draws from torch's random state in every pass of training, and remembers what."""

    def __init__(self, suffix: nn.Module) -> None:
        super().__init__()
        self.suffix, self.drawn = suffix, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.drawn.append(float(torch.rand(())))
        found: torch.Tensor = self.suffix(x)
        return found


def test_every_step_draws_other_numbers():
    made = small()
    made.network.suffix = drawing = Drawing(made.network.suffix)
    made.train(sub_batch=4)
    assert len(drawing.drawn) == len(set(drawing.drawn)) == 3 * (2 * STEPS_PER_EPOCH - 1)


def test_a_network_that_drops_at_random_resumes_exactly_too(tmp_path):
    with pytest.raises(Interrupted):
        dropping().train(folder=tmp_path, stop=after(7))
    assert fingerprint(dropping().train(folder=tmp_path)) == fingerprint(dropping().train())


def test_loop_identity_ignores_micro_batches():
    plain: Callable[..., dict[str, Any]] = lambda **changes: config(**changes).identity()  # noqa: E731
    assert plain() == plain(sub_batch=2, eval_batch=3, grad_ckpt=True, threads=7)
    assert plain() != plain(lr=1.0)
    assert plain(batch_norm="train") != plain(batch_norm="train", sub_batch=2), "batch statistics are those of a part"


def test_other_weights_of_the_targets_are_another_training(tmp_path):
    made = small(kind="values")
    with pytest.raises(Interrupted):
        made.train(folder=tmp_path, stop=after(7))
    other = small(kind="values")
    plan = type(other.objective.plan)(**{**vars(other.objective.plan), "weights": (0.5, 0.25, 0.25)})
    other.objective = type(other.objective).of(other.problem, plan, device=CPU)
    assert other.train(folder=tmp_path).resumed_step == 0
