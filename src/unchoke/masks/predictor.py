"""A trained segmenter at work: how it is opened, as a plain value, and what a batch of patches takes in memory.

In: the folder of a run and how its network is to be run. Out: two functions, patches to rows (the frozen part) and rows to
probabilities. The same value is opened by the command and by the processes that measure batch sizes for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.pyramid import Pyramid, PyramidSpec
from unchoke.machine.backend import keep_freed_memory, torch_device
from unchoke.machine.memory.memory_plan import StepCost
from unchoke.machine.memory.memory_watch import Gauge
from unchoke.masks.segmenter import WHOLE
from unchoke.masks.trained_segmenter import Predictor, TrainedSegmenter, load_segmenter

Encode = Callable[[NDArray[np.float16]], NDArray[np.float16]]
READ_AHEAD = 2
"""Batches that are read and encoded while another one is decoded."""
TARGET = "unchoke.masks.predictor:measure_batches"
_ENGINE_BATCH = 8


@dataclass(frozen=True)
class EngineUse:
    """Which engine makes the pyramids, as far as their numbers depend on it; `name` is empty where nothing is frozen."""

    name: str = ""
    precision: str = "f32"
    batch: int = _ENGINE_BATCH
    channels_last: bool = False

    @classmethod
    def of(cls, engine: dict[str, Any]) -> EngineUse:
        """As the run's own features were made, from what their engine said of itself."""
        if not engine:
            return cls()
        batch, channels_last = int(engine.get("batch", _ENGINE_BATCH)), bool(engine.get("channels_last", False))
        return cls(str(engine["engine"]), str(engine["precision"]), batch, channels_last)


@dataclass(frozen=True)
class PredictorSpec:
    """A segmenter and where it runs. `weights` are those of the frozen part, where they are not found by themselves."""

    folder: str
    weights: str | None
    device: str
    engine: EngineUse
    streams: int
    keep_in: str
    """Where a converted model is kept."""

    def identity(self) -> dict[str, Any]:
        """What the numbers depend on, besides the weights."""
        return {"engine": asdict(self.engine), "device": self.device, "torch": torch.__version__}


@dataclass(frozen=True, eq=False)
class OpenPredictor:
    """`encode` may be called from several threads, `decode` from one."""

    trained: TrainedSegmenter
    encode: Encode
    decode: Predictor
    threads: int
    frozen: FrozenPart | None = None
    """What makes the pyramids; None where nothing is frozen."""


@dataclass(frozen=True, eq=False)
class FrozenPart:
    """The frozen pyramid, and the engine that runs it."""

    network: Pyramid
    engine: FrozenEngine


def open_predictor(spec: PredictorSpec, *, batch: int, warn: Callable[[str], object] = lambda _: None) -> OpenPredictor:
    """Load the run's networks. `batch` patches go through the trained part at a time, padded: neighbours change nothing."""
    keep_freed_memory()
    trained = load_segmenter(Path(spec.folder))
    device = torch_device(spec.device)
    if trained.cut == WHOLE:
        return join_parts(trained, None, device=device, batch=batch)
    backbone = trained.load_backbone(Path(spec.weights) if spec.weights else None)
    frozen = FrozenPart(backbone, _engine(spec, backbone, warn))
    return replace(join_parts(trained, frozen.engine, device=device, batch=batch), frozen=frozen)


def join_parts(trained: TrainedSegmenter, engine: FrozenEngine | None, *, device: torch.device, batch: int) -> OpenPredictor:
    """The frozen part, run by `engine` (None where nothing is frozen), and the trained part on `device`."""
    decode = trained.decoder(device, batch)
    if engine is None:
        return OpenPredictor(trained, trained.shown, decode, threads=1)

    def encode(patches: NDArray[np.float16]) -> NDArray[np.float16]:
        return trained.shown(patches, engine.encode(patches).astype(np.float16))

    return OpenPredictor(trained, encode, decode, threads=max(1, engine.slots))


def _engine(spec: PredictorSpec, backbone: Pyramid, warn: Callable[[str], object]) -> FrozenEngine:
    use = spec.engine
    if use.name == OpenVinoEngine.name:
        return OpenVinoEngine(
            backbone, precision=use.precision, streams=spec.streams, batch=use.batch, keep_in=Path(spec.keep_in), warn=warn
        )
    return TorchEngine(
        backbone,
        device=torch_device(spec.device),
        precision=use.precision,
        batch=use.batch,
        channels_last=use.channels_last,
    )


@dataclass(frozen=True)
class BatchTrial:
    """What to measure: a predictor at some batch sizes, under a limit that the device enforces where it can."""

    predictor: PredictorSpec
    sizes: Sequence[int]
    limit_bytes: int | None = None


def measure_batches(trial: BatchTrial) -> Iterator[StepCost]:
    """What it takes to predict batches of each size: for a process of its own. The first one loads the networks, too."""
    device, opened, bare_bytes = torch_device(trial.predictor.device), None, 0
    for batch in trial.sizes:
        with Gauge(device, limit_bytes=trial.limit_bytes) as gauge:
            if opened is None:
                opened = open_predictor(trial.predictor, batch=batch)
            engine = opened.frozen.engine if opened.frozen else None
            sized = join_parts(opened.trained, engine, device=device, batch=batch)
            patches = noise_patches(opened.trained.spec, batch)
            for _ in range(2):  # the first time costs more, in time and perhaps in memory
                started_s = time.monotonic()
                ahead = [sized.encode(patches) for _ in range(1 + READ_AHEAD)]
                sized.decode(ahead[0])
                seconds = time.monotonic() - started_s
        bare_bytes = bare_bytes or gauge.baseline_bytes
        yield StepCost(batch, gauge.peak_bytes, seconds, {"baseline": bare_bytes})


def noise_patches(spec: PyramidSpec, number: int) -> NDArray[np.float16]:
    """Patches of noise, the same on every machine: to measure with, and to compare machines on."""
    shape = (number, spec.num_bands, spec.patch_px, spec.patch_px)
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(np.float16)
