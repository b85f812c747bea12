"""A trial is the real loop over noise: what it measures is what a training takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trials import NAMES, PREPROCESS, PX, REGRESSION, TWO_STREAMS, loop, measure, trial
from unchoke.core.choices import Choice
from unchoke.data.targets import plan_targets
from unchoke.features.feature_store import Placement
from unchoke.machine.memory.memory_plan import MemoryRoom, StepCost
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import Problem
from unchoke.training.network import memory_trial
from unchoke.training.network.memory_trial import MemoryTrial, NoiseTraining, run_trial
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, StoredActivations
from unchoke.training.network.prepare_pixels import StoredPixels, noise_pixels
from unchoke.training.network.tiled_network import TiledNetwork


@contextmanager
def watching_networks(found: list[tuple[bool, tuple[int, ...]]]) -> Iterator[None]:
    """Note the mode and the input shape of every pass through a whole network."""

    def look(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(module, TiledNetwork):
            found.append((module.training, tuple(args[0].shape)))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()


def test_trial_whole_step_or_two_micro_batches() -> None:
    whole: list[tuple[bool, tuple[int, ...]]] = []
    with watching_networks(whole):
        measure(trial(), 4)
    assert [(training, shape[0]) for training, shape in whole] == [(True, 4)] * 3
    parts: list[tuple[bool, tuple[int, ...]]] = []
    with watching_networks(parts):
        measure(trial(most_evaluated=5), 3)
    assert [(training, shape[0]) for training, shape in parts] == [(True, 3)] * 12 + [(False, 5)] * 3


def test_trial_evaluation_without_gradients() -> None:
    seen: list[tuple[bool, tuple[int, ...]]] = []
    with watching_networks(seen):
        measure(trial(way="evaluation"), 9)
    assert [(training, shape[0]) for training, shape in seen] == [(False, 9)] * 3


def test_the_parts_are_those_of_the_network() -> None:
    measured = measure(trial(loop=loop(ema_decay=0.9)), 2)
    parts = measured.parts
    assert parts["weights"] >= parts["gradients"] > 0
    assert parts["optimizer"] == pytest.approx(2 * parts["gradients"] + parts["weights"], rel=0.01)
    assert parts["baseline"] > 50_000_000
    assert measured.peak_bytes > parts["baseline"]
    assert measured.seconds > 0
    assert measure(trial(), 2).parts["optimizer"] == pytest.approx(2 * parts["gradients"], rel=0.01)


def test_search_goes_down_from_size_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: NoiseTraining, size: int, evaluated: int, trial: MemoryTrial, *, on_cpu: bool) -> float:
        if size > 8:
            raise MemoryError("CUDA out of memory")
        return 0.01

    monkeypatch.setattr(NoiseTraining, "take", take)
    asked = trial(loop=loop(batch_size=32), sizes=(32, 16, 8, 4), room=MemoryRoom(10**12))
    assert list(run_trial(asked)) == ["MemoryError: CUDA out of memory"]  # on a CPU another process goes on
    monkeypatch.setattr(memory_trial, "is_cpu", lambda device: False)
    *facts, fits = run_trial(asked)
    assert facts == ["MemoryError: CUDA out of memory"] * 2
    assert isinstance(fits, StepCost)
    assert fits.batch == 8


@pytest.mark.parametrize(
    ("encoder", "cut", "changes", "shape"),
    [
        ("test_vit", "end", {}, (4, 1, 64)),
        ("test_efficientnet", "none", {"source": noise_pixels(Canvas(TilePlan(), PREPROCESS, 100), "strong")}, (4, 1, 3, PX, PX)),
        (
            "test_vit",
            "none",
            {
                "source": noise_pixels(Canvas(TWO_STREAMS, PREPROCESS)),
                "network": {"tiles": TWO_STREAMS, "fusion": "film"},
                **REGRESSION,
            },
            (4, 4, 3, PX, PX),
        ),
        ("test_vit", "-1", {"loop": loop(grad_ckpt=True, mixup=0.2, dtype="bfloat16")}, (4, 1, 17, 64)),
        ("test_resnet", "-1", {"loop": loop(memory_format="channels_last", batch_norm="train")}, (4, 1, 192, 4, 4)),
    ],
)
def test_every_kind_of_training_can_be_tried(encoder: str, cut: str, changes: dict[str, Any], shape: tuple[int, ...]) -> None:
    seen: list[tuple[bool, tuple[int, ...]]] = []
    asked = trial(encoder, cut, **changes)
    with watching_networks(seen):
        assert measure(asked, 4).peak_bytes > 0
        assert measure(replace(asked, way="evaluation"), 4).peak_bytes > 0
    assert {found for _, found in seen} == {shape}
    assert {training for training, _ in seen} == {True, False}


def test_what_does_not_fit_is_told_and_not_halved() -> None:
    lack = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 3.94 GiB")
    asked_for: list[int] = []

    def refuse(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if isinstance(module, TiledNetwork):
            asked_for.append(len(args[0]))
            raise lack

    handle = torch.nn.modules.module.register_module_forward_pre_hook(refuse)
    try:
        for asked in (trial(), trial(way="evaluation")):
            (fact,) = run_trial(replace(asked, sizes=(4,)))
            assert "CUDA out of memory" in str(fact)
    finally:
        handle.remove()
    assert asked_for == [4, 4]


def problem(kind: str = "classification") -> Problem:
    targets = np.zeros(6, np.int64) if kind == "classification" else np.ones((6, 3), np.float32)
    names = ("a", "b") if kind == "classification" else NAMES
    return Problem(kind, names, targets, {"train": np.arange(6)}, [str(number) for number in range(6)])  # type: ignore[arg-type]


def test_job_over_noise_holds_no_data() -> None:
    activations = StoredActivations(Placement((), np.zeros(0, np.int32), np.zeros(0, np.int32)), (1, 17, 64), 0)
    spec = NetworkSpec("test_vit", "-1", weights="/nowhere.pt", weights_sha256="abc", input_px=PX)
    targets, inputs = plan_targets(NAMES), np.zeros((6, 2), np.float32)
    how: dict[str, Any] = {"network": spec, "loop": loop(), "metric": "r2", "device": "cpu"}
    noise = PhotoJob(source=activations, targets=targets, inputs=inputs, problem=problem("regression"), **how).over_noise(1)
    assert noise.inputs is not None
    assert noise.network == NetworkSpec("test_vit", "-1", input_px=PX, bare=True)
    assert vars(noise.source) == vars(StoredActivations(None, (1, 17, 64)))
    found = noise.problem
    assert (found.kind, found.names, noise.targets, noise.inputs.shape) == ("regression", NAMES, targets, (1, 2))
    canvas = Canvas(TilePlan(), PREPROCESS, 100)
    pixels = StoredPixels((), (), (), canvas, Choice("cache", "none", ""), Path("unused"), augment="strong")
    noise = PhotoJob(source=pixels, problem=problem(), **how).over_noise(1)
    assert (vars(noise.source), noise.inputs) == (vars(noise_pixels(canvas, "strong")), None)


def test_can_checkpoint_depends_on_trained_part() -> None:
    assert NetworkSpec("test_vit", "-1").can_checkpoint()
    assert NetworkSpec("test_efficientnet", "none").can_checkpoint()
    assert not NetworkSpec("test_vit", "end").can_checkpoint()
