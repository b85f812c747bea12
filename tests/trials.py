"""Small trials of memory: tiny networks over noise, with one setting or another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from unchoke.data.targets import plan_targets
from unchoke.features.cut import cut_network
from unchoke.features.encoders import bare_encoder
from unchoke.machine.memory.memory_plan import StepCost
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import Problem
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.memory_trial import MemoryTrial, run_trial
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, StoredActivations

PX = 64
PREPROCESS = Preprocess(PX, 0.9, "center", "bicubic", (0.5,) * 3, (0.5,) * 3)
NAMES = ("dead", "green", "total")
TWO_STREAMS = TilePlan(2, 2, 1)
REGRESSION = {
    "kind": "regression",
    "names": NAMES,
    "targets": plan_targets(NAMES, sums={"total": ("dead", "green")}, weights=dict.fromkeys(NAMES, 1.0), positive=True),
    "num_inputs": 2,
}


def loop(**changes: Any) -> LoopConfig:
    plain: dict[str, Any] = {"epochs": 1, "batch_size": 4, "sub_batch": 4, "eval_batch": 4, "lr": 1e-3, "body_lr": 1e-4}
    return LoopConfig(**{**plain, **changes})


def noise_job(encoder: str = "test_vit", cut: str = "-2", **changes: Any) -> PhotoJob:
    network = NetworkSpec(encoder, cut, input_px=PX, bare=True, **changes.pop("network", {}))
    source, names = changes.pop("source", None), changes.pop("names", ("a", "b"))
    if source is None:
        shape = cut_network(bare_encoder(encoder, input_px=PX), cut, verify=False).shape
        source = StoredActivations(None, (network.tiles.num_tiles, *shape))
    inputs = np.zeros((2, changes.pop("num_inputs", 0)), np.float32)
    problem = Problem(changes.pop("kind", "classification"), names, np.zeros(2, np.int64), {"train": np.arange(2)}, ["0", "1"])
    return PhotoJob(
        network=network, source=source, problem=problem, inputs=inputs if inputs.size else None, metric="loss", device="cpu",
        **{"loop": loop(), **changes},
    )  # fmt: skip


def trial(encoder: str = "test_vit", cut: str = "-2", **changes: Any) -> MemoryTrial:
    how = {name: changes.pop(name) for name in ("way", "sizes", "room", "most_evaluated") if name in changes}
    return MemoryTrial(noise_job(encoder, cut, **changes), **how)


def measure(asked: MemoryTrial, size: int) -> StepCost:
    """What `size` samples at once take, measured in this process."""
    found = next(run_trial(replace(asked, sizes=(size,))))
    assert isinstance(found, StepCost), found
    return found
