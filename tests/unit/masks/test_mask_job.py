from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from errors import refused
from trials import measure
from unchoke.core.events import ignore
from unchoke.features.cut import layer_numbers
from unchoke.features.encoders import digest_tensors
from unchoke.features.engines import TorchEngine
from unchoke.machine.memory.memory_plan import StepCost
from unchoke.masks.mask_job import MaskJob
from unchoke.masks.patches import BandStandard
from unchoke.masks.segmenter import PYRAMID, WHOLE, SegmenterConfig
from unchoke.masks.trained_segmenter import HEAD_FILE, TrainedSegmenter, load_segmenter
from unchoke.training.checkpoints import save_tensors
from unchoke.training.data import Problem
from unchoke.training.network.estimate_memory import estimate_memory
from unchoke.training.network.loop_config import LoopConfig, LoopResult
from unchoke.training.network.memory_trial import MemoryTrial
from unchoke.training.network.training_job import TrainingJob, run_job

NUM, TRAIN = 12, 8


def job(patches: Any, cut: str, *, folder: Path | None = None, epochs: int = 2, sees: bool = False, **loop: Any) -> TrainingJob:
    splits = {"train": np.arange(TRAIN), "val": np.arange(TRAIN, NUM)}
    problem = Problem("segmentation", ("land", "water"), np.zeros(NUM, np.int64), splits, [f"p{n}" for n in range(NUM)])
    config = LoopConfig(
        **{"epochs": epochs, "batch_size": 4, "sub_batch": 4, "eval_batch": 4, "lr": 2e-3, "body_lr": 3e-4, **loop}
    )
    network, pyramids = SegmenterConfig(patches.spec, 2, cut, "fpn", sees, sees), patches if cut == PYRAMID else None
    return MaskJob(
        network=network, patches=patches, pyramids=pyramids, num_turns=1 if cut == PYRAMID else 8, weights=str(patches.weights),
        problem=problem, loop=config, metric="mean_iou", device="cpu", folder=folder,
    )  # fmt: skip


@pytest.mark.parametrize("cut", [PYRAMID, WHOLE])
def test_masks_are_learnt(make_patches: Callable[[int], Any], cut: str) -> None:
    done = run_job(job(make_patches(NUM), cut, epochs=6 if cut == PYRAMID else 16, body_lr=1e-3), on_event=ignore)
    assert done.val["mean_iou"] > 0.9
    assert done.outputs["val"].shape == (NUM - TRAIN, 5)
    assert done.outputs["val"][:, 1:].sum(axis=1).tolist() == [62 * 64] * (NUM - TRAIN)  # two rows have no label


@pytest.mark.parametrize("cut", [PYRAMID, WHOLE])
def test_gradient_accumulation_same_weights(make_patches: Callable[[int], Any], cut: str) -> None:
    patches = make_patches(NUM)
    whole = run_job(job(patches, cut, epochs=1), on_event=ignore)
    parts = run_job(job(patches, cut, epochs=1, sub_batch=1), on_event=ignore)
    for name, value in whole.state.items():
        assert torch.allclose(parts.state[name], value, atol=2e-5), name


@pytest.mark.parametrize(("cut", "sees"), [(WHOLE, False), (PYRAMID, True), (WHOLE, True)])
def test_resume_after_stop_same_weights(make_patches: Callable[[int], Any], tmp_path: Path, cut: str, sees: bool) -> None:
    patches = make_patches(NUM)
    unbroken = run_job(job(patches, cut, sees=sees), on_event=ignore)
    asked = iter([False, False, True])
    with refused("interrupted"):
        run_job(job(patches, cut, sees=sees, folder=tmp_path), on_event=ignore, stop=lambda: next(asked))
    resumed: LoopResult = run_job(job(patches, cut, sees=sees, folder=tmp_path), on_event=ignore)
    assert resumed.resumed_step == 3
    assert digest_tensors(resumed.state) == digest_tensors(unbroken.state)


def test_backbone_layers_numbered_for_learning_rates(make_patches: Callable[[int], Any]) -> None:
    training = job(make_patches(NUM), WHOLE)
    network, _, _ = training.build(torch.device("cpu"))
    numbers = layer_numbers(network.suffix)
    assert numbers["conv1.0.weight"] == 0
    assert set(numbers.values()) == set(range(1 + max(numbers.values()))) and max(numbers.values()) > 3


@pytest.mark.parametrize("sees", [False, True])
@pytest.mark.parametrize("cut", [PYRAMID, WHOLE])
def test_a_rehearsal_tells_what_a_step_takes(make_patches: Callable[[int], Any], cut: str, sees: bool) -> None:
    measured: StepCost = measure(MemoryTrial(job(make_patches(NUM), cut, sees=sees)), 2)
    assert measured.peak_bytes > 0
    assert measured.parts["optimizer"] >= 2 * measured.parts["gradients"] * 0.99


@pytest.mark.parametrize("cut", [PYRAMID, WHOLE])
def test_what_a_segmenter_takes_at_most_can_be_counted(make_patches: Callable[[int], Any], cut: str) -> None:
    asked = job(make_patches(NUM), cut)
    counted, measured = estimate_memory(asked, batch=4, eval_batch=8, base_bytes=0), measure(MemoryTrial(asked), 4)
    assert counted.train(4).parts["gradients"] == measured.parts["gradients"]
    assert counted.train(4).parts["optimizer"] == pytest.approx(measured.parts["optimizer"], rel=0.01)
    assert counted.train(4).peak_bytes > counted.evaluation(4).peak_bytes
    assert counted.eval_bytes > 8 * 2 * 64**2 * 4  # logits alone


@pytest.mark.parametrize("cut", [PYRAMID, WHOLE])
def test_a_saved_segmenter_draws_what_the_trained_one_does(make_patches: Callable[[int], Any], tmp_path: Path, cut: str) -> None:
    patches = make_patches(NUM)
    training = job(patches, cut, epochs=1)
    done = run_job(training, on_event=ignore)
    standard = BandStandard((0.0,) * 4, (1.0,) * 4)
    trained = TrainedSegmenter(
        config=training.network, state=done.state, class_names=("land", "water"), bands=("b1", "b2", "b3", "b4"),
        normalise="none",
        standard=standard, overlap_px=16, grid="finest", resampling="bilinear", engine={}, best_epoch=1, val=done.val,
    )  # fmt: skip
    trained.save(tmp_path / HEAD_FILE, extra={})
    loaded = load_segmenter(tmp_path)
    positions, cpu = np.arange(3), torch.device("cpu")
    engine = TorchEngine(loaded.load_backbone(patches.weights), device=cpu, batch=2) if cut == PYRAMID else None
    probabilities = loaded.predictor(cpu, 2, engine)(patches.pixels(positions))
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)
    again = trained.decoder(cpu, 2)(patches.pixels(positions) if cut == WHOLE else patches.rows(positions))
    assert probabilities == pytest.approx(again, abs=1e-4)
    alone = loaded.predictor(cpu, 2, engine)(patches.pixels(positions[2:]))
    assert np.array_equal(alone[0], probabilities[2])  # its neighbours change nothing
    assert loaded.standard == standard


def test_another_kind_of_checkpoint_is_refused(tmp_path: Path) -> None:
    save_tensors(tmp_path / HEAD_FILE, {"format": "network-1"})
    with refused("wrong-model-file", "'network-1'", HEAD_FILE):
        load_segmenter(tmp_path)
