"""What is counted is more than what a training takes, and not much more; counting changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from own_process import in_own_process

from trials import PREPROCESS, REGRESSION, TWO_STREAMS, loop, measure, noise_job, trial
from unchoke.machine.backend import tensor_bytes
from unchoke.machine.memory.probe import probe
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.network.estimate_memory import LiveTensors, estimate_memory
from unchoke.training.network.memory_trial import TARGET, MemoryTrial, Way
from unchoke.training.network.prepare_pixels import noise_pixels

AVERAGED = {"ema_decay": 0.9, "batch_size": 16}


def measured(asked: MemoryTrial, way: Way, batch: int) -> tuple[int, int]:
    """The peak, and what was there before the network."""
    found = in_own_process(measure, replace(asked, way=way), batch)
    return found.peak_bytes, found.parts["baseline"]


@pytest.mark.parametrize(
    ("encoder", "cut", "changes"),
    [
        ("test_vit", "-2", {"network": {"tiles": TilePlan(2, 2, 2)}, "loop": loop(**AVERAGED)}),
        (
            "test_efficientnet",
            "none",
            {"source": noise_pixels(Canvas(TilePlan(), PREPROCESS, 100), "strong"), "loop": loop(**AVERAGED)},
        ),
        ("test_resnet", "-1", {"loop": loop(memory_format="channels_last", batch_norm="train", mixup=0.2, **AVERAGED)}),
    ],
)
def test_measured_at_most_counted(encoder: str, cut: str, changes: dict[str, Any]) -> None:
    asked = trial(encoder, cut, **changes)
    sizes: list[tuple[Way, int]] = [("train", 16), ("evaluation", 64)]
    counted = estimate_memory(asked.job, batch=16, eval_batch=64, base_bytes=0)
    for way, batch in sizes:
        peak_bytes, baseline_bytes = measured(asked, way, batch)
        bound_bytes = getattr(counted, way)(batch).peak_bytes
        assert peak_bytes - baseline_bytes <= bound_bytes
        assert 2 * peak_bytes >= bound_bytes, "a bound that says nothing"


def test_bytes_per_sample_counted_and_limit_enforced() -> None:
    asked = trial(network={"tiles": TilePlan(2, 2, 2)}, loop=loop(batch_size=192))
    counted = estimate_memory(asked.job, batch=192, eval_batch=4, base_bytes=0)
    more, _ = measured(asked, "train", 192)
    fewer, _ = measured(asked, "train", 8)
    added = counted.train(192).peak_bytes - counted.train(8).peak_bytes
    assert 50_000_000 < more - fewer <= added
    assert added <= 4 * (more - fewer)
    limit_bytes = (fewer + more) // 2
    bounded = probe(TARGET, replace(asked, sizes=(192,)), timeout_s=120, limit_bytes=limit_bytes)
    assert bounded.outcome == "out of memory"


@pytest.mark.parametrize(
    ("encoder", "cut", "changes"),
    [
        ("test_vit", "end", {}),
        ("test_vit", "-1", {"loop": loop(grad_ckpt=True, dtype="bfloat16")}),
        (
            "test_vit",
            "none",
            {
                "source": noise_pixels(Canvas(TWO_STREAMS, PREPROCESS)),
                "network": {"tiles": TWO_STREAMS, "fusion": "film"},
                **REGRESSION,
            },
        ),
    ],
)
def test_every_kind_of_training_can_be_counted(encoder: str, cut: str, changes: dict[str, Any]) -> None:
    counted = estimate_memory(noise_job(encoder, cut, **changes), batch=4, eval_batch=1, base_bytes=1000)
    train, evaluation = counted.train(4), counted.evaluation(1)
    assert train.parts["weights"] >= train.parts["gradients"] > 0
    assert train.peak_bytes > evaluation.peak_bytes > sum(evaluation.parts.values())
    assert counted.train(2).peak_bytes < train.peak_bytes


def test_samples_and_averaged_weights_counted() -> None:
    plain = estimate_memory(noise_job(), batch=4, eval_batch=4, base_bytes=0)
    averaged = estimate_memory(noise_job(loop=loop(ema_decay=0.9)), batch=8, eval_batch=4, base_bytes=0)
    assert averaged.train_bytes > 1.5 * plain.train_bytes
    assert averaged.parts["optimizer"] == plain.parts["optimizer"] + plain.parts["weights"]


def test_gpu_keeps_evaluation_memory_beside_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = trial()
    plain = estimate_memory(asked.job, batch=4, eval_batch=64, base_bytes=0)
    monkeypatch.setattr("unchoke.training.network.estimate_memory.is_cpu", lambda _: False)
    card = estimate_memory(asked.job, batch=4, eval_batch=64, base_bytes=0)
    for batch in (1, 4):
        assert card.train(batch).peak_bytes == plain.train(batch).peak_bytes + plain.eval_bytes
    assert card.evaluation(64) == plain.evaluation(64)


def test_counting_computes_nothing_and_no_rng() -> None:
    asked, state = trial("test_vit", "-2"), torch.random.get_rng_state()
    huge = estimate_memory(asked.job, batch=100_000, eval_batch=4, base_bytes=0)
    assert huge.train_bytes > 10**10
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_peak_is_what_lives_at_once() -> None:
    with LiveTensors() as tensors:
        first = torch.zeros(1000, dtype=torch.uint8)
        second = first + 1
        del first
        third = second.view(10, 100) + 1
        del second
        kept = third[:2]
    assert (tensors.peak_bytes, tensors.held_bytes) == (2 * 1000, 1000)
    assert tensors.largest_bytes == 2 * 1000
    assert tensor_bytes([kept]) == 1000 // 5


def test_tensors_kept_for_backward_count_until_then() -> None:
    weight = torch.ones(1000 // 4, requires_grad=True)
    with LiveTensors() as tensors:
        loss = (weight * 2).exp().sum()
        assert tensors.held_bytes >= 1000
        loss.backward()
        del loss
    assert tensors.held_bytes == 1000  # the gradient
    assert tensors.peak_bytes >= 2 * 1000
