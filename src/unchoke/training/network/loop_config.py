"""What the loop that trains a network begins and ends with, as plain values.

In and out of `finetune.py`: how to train (`LoopConfig`, frozen at the start of a run), where it runs and whom it tells
(`LoopContext`), and what came of it (`LoopResult`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.clock import NO_PROFILER, LoopProfiler
from unchoke.core.events import OnEvent
from unchoke.core.timeline import Timeline
from unchoke.training.checkpoints import State
from unchoke.training.heads.heads import ClassWeights
from unchoke.training.network.parallel import ALONE, Ranks

USUAL_LR = 1e-3
"""The learning rate of a new head where none was asked for."""


@dataclass(frozen=True)
class LoopConfig:
    """How to train, frozen at the start of a run. A step is `batch_size` samples, of which `sub_batch` run at once."""

    epochs: int
    batch_size: int
    sub_batch: int
    eval_batch: int
    lr: float
    body_lr: float
    weight_decay: float = 0.02
    layer_decay: float = 0.8
    warmup_epochs: float = 1.0
    ema_decay: float = 0.0
    clip: float = 1.0
    mixup: float = 0.0
    label_smoothing: float = 0.0
    class_weights: ClassWeights = "none"
    dtype: str = "float32"
    memory_format: str = "contiguous"
    compile: bool = False
    grad_ckpt: bool = False
    batch_norm: str = "frozen"
    patience: int = 0
    threads: int = 1
    seed: int = 0
    keep_freed: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """What the resulting weights depend on: everything but how the work is cut up for memory."""
        cut_up = ("eval_batch", "grad_ckpt", "threads", "keep_freed", *(("sub_batch",) if self.batch_norm == "frozen" else ()))
        return {name: value for name, value in asdict(self).items() if name not in cut_up}


@dataclass(frozen=True)
class TrainingPlan:
    """What is settled before the first step and stands from then on, as `loop.json` keeps it. Some materials add to it."""

    loop: LoopConfig

    def to_dict(self) -> dict[str, Any]:
        return self.loop.to_dict()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(LoopConfig(**values))


@dataclass(frozen=True)
class LoopContext:
    """Where the loop runs and whom it tells. None of this changes the result."""

    device: torch.device
    folder: Path | None
    on_event: OnEvent
    workers: int = 0
    pin: bool = False
    stop: Callable[[], bool] = lambda: False
    checkpoint_every_s: float = 60.0
    ranks: Ranks = ALONE
    unit: str = "images"
    profiler: LoopProfiler = NO_PROFILER
    limit_bytes: int | None = None
    """What this process may take of the device; None: all that others leave."""
    planned_bytes: int = 0
    """What the memory plan says that steps and evaluation take of it."""
    ends_s: float = math.inf
    """When training ends, after an epoch, by `time.monotonic`."""


@dataclass(frozen=True, eq=False)
class LoopResult:
    """The weights of the best epoch and their outputs for val and test, the learning curve, and what it cost."""

    state: State
    outputs: dict[str, NDArray[np.float32]]
    best_epoch: int
    curve: list[dict[str, float]]
    metric: str
    resumed_step: int
    num_steps: int
    sub_batch: int
    eval_batch: int
    halvings: int
    timeline: Timeline
    """The time of this process alone: what was trained before the run was stopped and continued is not counted."""
    beside_bytes: int = 0
    """What rows on a GPU and a CUDA graph took there beside what steps and evaluation take."""

    @property
    def val(self) -> dict[str, float]:
        reached = self.curve[self.best_epoch - 1]
        return {name.removeprefix("val_"): value for name, value in reached.items() if name.startswith("val_")}

    @property
    def seconds(self) -> dict[str, float]:
        """The few sums a reader asks for first. Preparing data is part of the steps."""
        spent = self.timeline.seconds
        return {
            "step": spent("copy", "prepare", "forward", "backward", "exchange", "optimizer", "replay", "device"),
            "evaluate": spent("evaluate"),
            "checkpoint": spent("checkpoint"),
            "waiting for data": spent("wait"),
            "preparing data": spent("copy", "prepare"),
        }
