"""Small networks and problems for tests of the training loop: made the same way every time, learnable, done in a moment."""

from __future__ import annotations

import copy
import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.events import Event, ignore
from unchoke.core.mixing import hash_ids
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.data.targets import TargetPlan, plan_targets
from unchoke.features.cut import Cut, cut_network
from unchoke.features.encoders import Encoder, EncoderSpec, digest_tensors
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import Positions, Problem
from unchoke.training.network.finetune import finetune
from unchoke.training.network.loop_config import LoopConfig, LoopContext, LoopResult
from unchoke.training.network.objective import Objective
from unchoke.training.network.parallel import ALONE, Ranks
from unchoke.training.network.sources import ActivationSource
from unchoke.training.network.tiled_network import TiledNetwork
from unchoke.training.scoring.selection import choose_metric, column_scale

CPU = torch.device("cpu")
SIZE_PX = 32
NUM_TRAIN, NUM_VAL, NUM_TEST = 36, 14, 10
STEPS_PER_EPOCH = 5
"""36 samples in batches of 8: the last batch of an epoch has 4."""
NAMES = ("dead", "green", "total")
SUMS = {"total": ("dead", "green")}
WEIGHTS = {"dead": 0.2, "green": 0.3, "total": 0.5}
NO_GPU_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 3.94 GiB")
NO_MEMORY = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 1073741824 bytes. Error code 12 (Cannot allocate memory)"
)


@functools.cache
def encoder(name: str = "test_vit") -> Encoder:
    """A small timm network with random weights; batch norm has seen something, so that its statistics are not the default."""
    prepare_torchvision()
    import timm

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        size = {"img_size": SIZE_PX} if "vit" in name else {}
        module = timm.create_model(name, num_classes=0, **size).train()
        with torch.no_grad():
            dim = int(module(torch.randn(16, 3, SIZE_PX, SIZE_PX)).shape[1])
    preprocess = Preprocess(SIZE_PX, 0.9, "center", "bicubic", (0.5,) * 3, (0.5,) * 3)
    return Encoder(module.eval().requires_grad_(False), EncoderSpec(name, "random", "0", dim, preprocess))


class MemoryRows:
    """Cached activations, as a feature store holds them: (samples, views, tiles, *activation). Remembers what was asked for."""

    def __init__(self, views: NDArray[np.float16]) -> None:
        self._views = views
        self.num_samples, self.num_views = views.shape[:2]
        self.row_shape = views.shape[2:]
        self.asked: list[Positions] = []
        self._lock = threading.Lock()

    def rows(
        self, positions: Positions, views: Positions | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]:
        with self._lock:
            self.asked.append(positions)
        found = self._views[positions, views]
        if out is not None:
            out[:] = found
        return found


@dataclass
class Shortage:
    """When a `StarvedNetwork` runs out of memory: `lacks(samples, call)` says so, `stage` where in the pass it happens."""

    lacks: Callable[[int, int], bool] = lambda samples, call: False
    error: Exception = NO_MEMORY
    stage: str = "forward"
    calls: int = 0
    shown: list[torch.Tensor] = field(default_factory=list)
    """What went through without running out, in order."""


class StarvedNetwork(TiledNetwork):
    """A network that runs out of memory when it is told to."""

    shortage: Shortage | None = None

    def forward(self, x: torch.Tensor, inputs: torch.Tensor | None = None) -> torch.Tensor:
        shortage = self.shortage
        if shortage is None:
            return super().forward(x, inputs)
        shortage.calls += 1
        lacks = shortage.lacks(len(x), shortage.calls)
        if lacks and shortage.stage == "forward":
            raise shortage.error
        outputs = super().forward(x, inputs)
        if lacks and not outputs.requires_grad:
            raise shortage.error
        if lacks:
            _first_trained(self).register_hook(_raise(shortage.error))
        else:
            shortage.shown.append(x)
        return outputs


def _first_trained(network: TiledNetwork) -> torch.Tensor:
    """The weight whose gradient comes last: when it fails, the others have theirs already."""
    return next(iter(network.suffix.parameters()))


def _raise(error: Exception) -> Callable[[torch.Tensor], None]:
    raised: list[bool] = []

    def hook(gradient: torch.Tensor) -> None:
        if not raised:  # the hook stays on the weight
            raised.append(True)
            raise error

    return hook


@dataclass
class Small:
    """A training that has not begun."""

    network: StarvedNetwork
    source: ActivationSource
    store: MemoryRows
    problem: Problem
    objective: Objective
    inputs: NDArray[np.float32] | None
    metric: str

    def train(
        self,
        *,
        folder: Path | None = None,
        workers: int = 0,
        stop: Callable[[], bool] = lambda: False,
        on_event: Callable[[Event], None] = ignore,
        checkpoint_every_s: float = 3600.0,
        ranks: Ranks = ALONE,
        ends_s: float = math.inf,
        **changes: Any,
    ) -> LoopResult:
        where = LoopContext(CPU, folder, on_event, workers, False, stop, checkpoint_every_s, ranks, ends_s=ends_s)
        return finetune(
            self.network,
            self.source,
            self.problem,
            self.objective,
            config(**changes),
            metric=self.metric,
            where=where,
            inputs=self.inputs,
        )


def config(**changes: Any) -> LoopConfig:
    plain: dict[str, Any] = {
        "epochs": 3,
        "batch_size": 8,
        "sub_batch": 8,
        "eval_batch": 16,
        "lr": 3e-3,
        "body_lr": 1e-3,
        "warmup_epochs": 0.5,
    }
    return LoopConfig(**{**plain, **changes})


def small(
    name: str = "test_vit",
    *,
    cut: str = "-1",
    kind: str = "classes",
    views: int = 1,
    tiles: TilePlan = TilePlan(),  # noqa: B008 (frozen)
    num_inputs: int = 0,
    splits: tuple[str, ...] = ("train", "val", "test"),
    num_train: int = NUM_TRAIN,
    order: NDArray[np.int64] | None = None,
    shortage: Shortage | None = None,
    seed: int = 0,
) -> Small:
    """Samples whose target is in their activations. `order` stores the same samples in another order."""
    found = _cut(name, cut)
    problem, plan, signal = _problem(kind, splits, num_train)
    count = len(problem.sample_ids)
    generator = np.random.default_rng(5)
    directions = generator.normal(size=(signal.shape[1], *found.shape))
    noise = generator.normal(size=(count, views, tiles.num_tiles, *found.shape)) * 0.7
    activations = (np.tensordot(signal, directions, 1)[:, None, None] + noise).astype(np.float16)
    inputs = generator.normal(size=(count, num_inputs)).astype(np.float32) * 5 + 20 if num_inputs else None
    if order is not None:
        problem, activations = _reordered(problem, order), activations[order]
        inputs = None if inputs is None else inputs[order]
    objective = Objective.of(problem, plan, device=CPU)
    network = StarvedNetwork.of(
        copy.deepcopy(found.suffix),  # trained in place
        objective,
        tiles=tiles,
        dim=encoder(name).spec.dim,
        input_scale=None if inputs is None else column_scale(inputs[problem.positions("train")]),
        seed=seed,
    )
    assert isinstance(network, StarvedNetwork)
    network.shortage = shortage
    store = MemoryRows(activations)
    source = ActivationSource(store, hash_ids(problem.sample_ids), seed)
    return Small(network, source, store, problem, objective, inputs, str(choose_metric(problem, plan).value))


@functools.cache
def _cut(name: str, cut: str) -> Cut:
    return cut_network(encoder(name), cut, verify=False)


def _problem(kind: str, splits: tuple[str, ...], num_train: int) -> tuple[Problem, TargetPlan | None, NDArray[np.float64]]:
    """The problem, what is declared about its targets, and the numbers that its samples show."""
    count = num_train + NUM_VAL + NUM_TEST
    ids = [f"sample {number}" for number in range(count)]
    ends = (0, num_train, num_train + NUM_VAL, count)
    where = {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(("train", "val", "test")) if name in splits}
    generator = np.random.default_rng(3)
    if kind == "classes":
        classes = generator.integers(0, 4, count)
        return Problem("classification", tuple("abcd"), classes, where, ids), None, np.eye(4)[classes]
    parts = generator.gamma(2.0, [[4.0], [9.0]], size=(2, count))
    values = np.stack([*parts, parts.sum(axis=0) + generator.normal(size=count) * 0.1], axis=1).astype(np.float32)
    plan = plan_targets(NAMES, sums=SUMS, weights=WEIGHTS, positive=True)
    return Problem("regression", NAMES, values, where, ids), plan, parts.T / 10


def _reordered(problem: Problem, order: NDArray[np.int64]) -> Problem:
    place = np.argsort(order)
    splits = {name: np.sort(place[positions]) for name, positions in problem.splits.items()}
    return Problem(problem.kind, problem.names, problem.targets[order], splits, [problem.sample_ids[i] for i in order])


def after(num_steps: int) -> Callable[[], bool]:
    """A stop request that arrives during step number `num_steps` (from 1); the loop asks once in every step."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked >= num_steps

    return stop


def fingerprint(done: LoopResult) -> tuple[Any, ...]:
    """Everything that must not depend on interruptions: the bytes of the weights and outputs, and the history."""
    outputs = {split: values.tobytes() for split, values in done.outputs.items()}
    return digest_tensors(done.state), outputs, done.curve, done.best_epoch, done.num_steps


def distance(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """The largest relative difference of any tensor, by norms."""
    assert list(found) == list(wanted)
    pairs = [(found[name].double(), wanted[name].double()) for name in wanted]
    return max(float((one - other).norm() / other.norm().clamp(min=1e-12)) for one, other in pairs)
