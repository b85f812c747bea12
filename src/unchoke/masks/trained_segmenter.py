"""A trained segmenter in a file, and at work: `best_head.pt`, and from it functions from patches to probabilities.

Of a backbone that stayed frozen nothing is in the file: its weights come from where the training had them. At work there are two
functions, patches to rows (the frozen part) and rows to probabilities. The command and the process that measures batch sizes for
it open the same plain value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError, UsageError
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.pyramid import Pyramid, PyramidSpec, load_pyramid
from unchoke.machine.backend import autocast, keep_freed_memory, torch_device, torch_dtype
from unchoke.machine.memory.memory_plan import StepCost
from unchoke.machine.memory.memory_watch import Gauge
from unchoke.masks.patches import BandStandard
from unchoke.masks.pixel_trees import PixelScorer
from unchoke.masks.segmenter import WHOLE, Segmenter, SegmenterConfig
from unchoke.training.checkpoints import State, load_checkpoint, save_tensors

SEGMENTER_FORMAT = "segmenter-1"
HEAD_FILE = "checkpoints/best_head.pt"
READ_AHEAD = 2
"""Batches that are read and encoded while another one is decoded."""
TARGET = "unchoke.masks.trained_segmenter:measure_batches"
_ENGINE_BATCH = 8
Encode = Callable[[NDArray[np.float16]], NDArray[np.float16]]
Predictor = Callable[[NDArray[np.float16]], NDArray[np.float32]]
"""Standardised patches (n, bands, side, side) to probabilities (n, classes, side, side)."""


@dataclass(frozen=True, eq=False)
class TrainedSegmenter:
    """Weights and everything needed to run them on other scenes; `engine` made the pyramids it was trained on."""

    config: SegmenterConfig
    state: State
    class_names: tuple[str, ...]
    bands: tuple[str, ...]
    normalise: str
    standard: BandStandard
    overlap_px: int
    grid: str
    resampling: str
    engine: dict[str, Any]
    best_epoch: int
    val: dict[str, float]
    dtype: str = "float32"
    scorer: PixelScorer | None = None
    """Whose scores the decoder is shown, where it is."""
    colours: tuple[tuple[int, int, int], ...] = ()
    """Of the classes in the labels it learnt from, where those have some."""

    @property
    def spec(self) -> PyramidSpec:
        return self.config.spec

    @property
    def cut(self) -> str:
        return self.config.cut

    @property
    def num_classes(self) -> int:
        return self.config.num_classes

    def build(self) -> Segmenter:
        """The network in evaluation mode, on the CPU."""
        network = Segmenter(self.config)
        network.load_state_dict(self.state)
        return network.eval().requires_grad_(False)

    def load_backbone(self, weights: Path | None = None) -> Pyramid:
        """The frozen pyramid it was trained on; other weights are refused."""
        spec = self.spec
        found = load_pyramid(
            spec.encoder, weights=weights, num_bands=spec.num_bands, patch_px=spec.patch_px, strides=spec.strides
        )
        if found.spec.weights_sha256 != spec.weights_sha256:
            raise UsageError(
                f"these are not the weights of {spec.encoder} that the run was trained with",
                code="other-weights",
                why="the frozen part and the decoder must come from the same ones",
                try_="name the file the run was trained with: --weights FILE",
            )
        return found

    def predictor(self, device: torch.device, batch: int, engine: FrozenEngine | None = None) -> Predictor:
        """Runs batches of exactly `batch`, padded, so that a patch's numbers do not depend on its neighbours.

        `engine` makes the pyramids where the backbone is frozen; left out, it is plain torch.
        """
        if engine is None and self.cut != WHOLE:
            engine = TorchEngine(self.load_backbone(), device=device, batch=batch)
        opened = join_parts(self, engine, device=device, batch=batch)
        return lambda patches: opened.decode(opened.encode(patches))

    def shown(self, patches: NDArray[np.float16], maps: NDArray[np.float16] | None = None) -> NDArray[np.float16]:
        """What the trained part is given of patches: themselves, or their maps; with their detail, where it sees any."""
        scores = [] if self.scorer is None else [np.stack([self.scorer.scores(patch) for patch in patches])]
        if maps is None:
            return np.concatenate([patches, *scores], axis=1) if scores else patches
        detail = ([patches] if self.config.bands else []) + scores
        return np.concatenate([maps, *(part.reshape(len(part), -1) for part in detail)], axis=1) if detail else maps

    def decoder(self, device: torch.device, batch: int) -> Predictor:
        """From what the trained part is given (cached rows, or patches where nothing is frozen) to probabilities."""
        network, dtype = self.build().to(device), torch_dtype(self.dtype)

        def run(given: NDArray[np.float16]) -> NDArray[np.float32]:
            found = np.empty((len(given), self.num_classes, self.spec.patch_px, self.spec.patch_px), np.float32)
            for start in range(0, len(given), batch):
                part = given[start : start + batch]
                padded = np.zeros((batch, *given.shape[1:]), np.float16)
                padded[: len(part)] = part
                with torch.inference_mode(), autocast(device, dtype):
                    logits = network(torch.from_numpy(padded).to(device).float())
                found[start : start + len(part)] = logits.float().softmax(dim=1)[: len(part)].cpu().numpy()
            return found

        return run

    def save(self, path: Path, *, extra: dict[str, Any]) -> None:
        """Write it and `extra` (plain values) to `path`."""
        plain = {
            "config": self.config.to_dict(),
            "class_names": list(self.class_names),
            "bands": list(self.bands),
            "colours": [list(one) for one in self.colours],
            "standard": [list(self.standard.mean), list(self.standard.std)],
            "scorer": None if self.scorer is None else self.scorer.to_dict(),
        }
        save_tensors(path, {"format": SEGMENTER_FORMAT, **vars(self), **plain, "extra": extra})


def load_segmenter(folder: Path) -> TrainedSegmenter:
    """The segmenter of the run in `folder`."""
    path = folder / HEAD_FILE
    content = load_checkpoint(path)
    if content.get("format") != SEGMENTER_FORMAT:
        raise DataError(
            f"{path} holds no trained segmenter",
            code="wrong-model-file",
            why=f"its format is {content.get('format')!r}, not {SEGMENTER_FORMAT!r}",
            try_="give a run of `unchoke segment train`",
        )
    (mean, std), scorer = content["standard"], content.get("scorer")
    values = {
        **{name: value for name, value in content.items() if name not in ("format", "extra")},
        "config": SegmenterConfig.from_dict(content["config"]),
        "class_names": tuple(content["class_names"]),
        "bands": tuple(content["bands"]),
        "colours": tuple(map(tuple, content.get("colours", ()))),
        "standard": BandStandard(tuple(mean), tuple(std)),
        "scorer": None if scorer is None else PixelScorer.from_dict(scorer),
    }
    return TrainedSegmenter(**values)


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
    backbone: Pyramid | None = None
    engine: FrozenEngine | None = None
    """What makes the pyramids; None where nothing is frozen."""


def open_predictor(spec: PredictorSpec, *, batch: int, warn: Callable[[str], object] = lambda _: None) -> OpenPredictor:
    """Load the run's networks. `batch` patches go through the trained part at a time, padded: neighbours change nothing."""
    keep_freed_memory()
    trained = load_segmenter(Path(spec.folder))
    device = torch_device(spec.device)
    if trained.cut == WHOLE:
        return join_parts(trained, None, device=device, batch=batch)
    backbone, use = trained.load_backbone(Path(spec.weights) if spec.weights else None), spec.engine
    engine: FrozenEngine
    if use.name == OpenVinoEngine.name:
        keep_in, streams = Path(spec.keep_in), spec.streams
        engine = OpenVinoEngine(backbone, precision=use.precision, streams=streams, batch=use.batch, keep_in=keep_in, warn=warn)
    else:
        engine = TorchEngine(backbone, device=device, precision=use.precision, batch=use.batch, channels_last=use.channels_last)
    return join_parts(trained, engine, device=device, batch=batch, backbone=backbone)


def join_parts(
    trained: TrainedSegmenter,
    engine: FrozenEngine | None,
    *,
    device: torch.device,
    batch: int,
    backbone: Pyramid | None = None,
) -> OpenPredictor:
    """The frozen part, run by `engine` (None where nothing is frozen), and the trained part on `device`."""
    decode = trained.decoder(device, batch)
    if engine is None:
        return OpenPredictor(trained, trained.shown, decode, threads=1)

    def encode(patches: NDArray[np.float16]) -> NDArray[np.float16]:
        return trained.shown(patches, engine.encode(patches).astype(np.float16))

    return OpenPredictor(trained, encode, decode, max(1, engine.slots), backbone, engine)


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
            sized = join_parts(opened.trained, opened.engine, device=device, batch=batch)
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
