"""A trained segmenter in a file: tensors and plain values, enough to draw masks of other scenes.

In: what a training gave. Out: `best_head.pt`, and from it something that turns patches into probabilities. Of a backbone that
stayed frozen nothing is in the file: its weights come from where the training had them. Reading scenes is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError, UsageError
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.pyramid import Pyramid, PyramidSpec, load_pyramid
from unchoke.machine.backend import autocast, torch_dtype
from unchoke.masks.patches import BandStandard
from unchoke.masks.pixel_trees import PixelScorer
from unchoke.masks.segmenter import WHOLE, Segmenter, SegmenterConfig
from unchoke.training.checkpoints import State, load_checkpoint, save_tensors

SEGMENTER_FORMAT = "segmenter-1"
HEAD_FILE = "checkpoints/best_head.pt"
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
        decode = self.decoder(device, batch)
        if self.cut == WHOLE:
            return lambda patches: decode(self.shown(patches))
        encode = engine or TorchEngine(self.load_backbone(), device=device, batch=batch)
        return lambda patches: decode(self.shown(patches, encode.encode(patches).astype(np.float16)))

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
        content = {
            "format": SEGMENTER_FORMAT,
            "config": self.config.to_dict(),
            "state": self.state,
            "class_names": list(self.class_names),
            "bands": list(self.bands),
            "normalise": self.normalise,
            "standard": [list(self.standard.mean), list(self.standard.std)],
            "overlap_px": self.overlap_px,
            "grid": self.grid,
            "resampling": self.resampling,
            "engine": self.engine,
            "best_epoch": self.best_epoch,
            "val": self.val,
            "dtype": self.dtype,
            "scorer": None if self.scorer is None else self.scorer.to_dict(),
            "extra": extra,
        }
        save_tensors(path, content)


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
    mean, std = content["standard"]
    return TrainedSegmenter(
        config=SegmenterConfig.from_dict(content["config"]),
        state=content["state"],
        class_names=tuple(content["class_names"]),
        bands=tuple(content["bands"]),
        normalise=content["normalise"],
        standard=BandStandard(tuple(mean), tuple(std)),
        overlap_px=content["overlap_px"],
        grid=content["grid"],
        resampling=content["resampling"],
        engine=content["engine"],
        best_epoch=content["best_epoch"],
        val=content["val"],
        dtype=content["dtype"],
        scorer=None if content.get("scorer") is None else PixelScorer.from_dict(content["scorer"]),
    )
