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
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.memory_trial import MemoryTrial, run_trial
from unchoke.training.network.photo_blueprint import NetworkSpec, NoiseActivations, PhotoBlueprint

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


def trial(encoder: str = "test_vit", cut: str = "-2", **changes: Any) -> MemoryTrial:
    network = NetworkSpec(encoder, cut, input_px=PX, **changes.pop("network", {}))
    source = changes.pop("source", None)
    if source is None:
        shape = cut_network(bare_encoder(encoder, input_px=PX), cut, verify=False).shape
        source = NoiseActivations((network.tiles.num_tiles, *shape))
    inputs = np.zeros((1, changes.pop("num_inputs", 0)), np.float32)
    blueprint = PhotoBlueprint(network, source, changes.pop("targets", None), inputs if inputs.size else None)
    return MemoryTrial(blueprint, **{"loop": loop(), "device": "cpu", **changes})


def measure(asked: MemoryTrial, size: int) -> StepCost:
    """What `size` samples at once take, measured in this process."""
    return next(run_trial(replace(asked, sizes=(size,))))
