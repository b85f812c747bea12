"""A segmenter's training as one plain value that any process can run; `training_job.py` is the same for classes and values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.clock import during
from unchoke.core.errors import UsageError
from unchoke.core.mixing import hash_ids
from unchoke.features.pyramid import load_pyramid
from unchoke.masks.mask_objective import MaskObjective, Masks, Turns, turn_each
from unchoke.masks.segmenter import WHOLE, Segmenter, SegmenterConfig
from unchoke.training.data import Positions, Problem
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.sources import ActivationSource, Rows, Source


class PatchRows(Masks, Protocol):
    """Patches by position: their masks and, where the whole network trains, their pixels. Travels as paths."""

    def pixels(self, positions: Positions) -> NDArray[np.float16]: ...


@dataclass(frozen=True, eq=False)
class SegmentJob:
    """Everything a training of masks depends on, and where it keeps its snapshots."""

    network: SegmenterConfig
    patches: PatchRows
    pyramids: Rows | None
    problem: Problem
    loop: LoopConfig
    metric: str
    device: str
    folder: Path | None
    dice: float = 0.5
    class_weights: tuple[float, ...] | None = None
    num_turns: int = 1
    weights: str | None = None
    workers: int = 0
    pin: bool = False
    checkpoint_every_s: float = 60.0
    limit_bytes: int | None = None
    inputs: None = None

    @property
    def unit(self) -> str:
        return "patches"

    @property
    def sample_bytes(self) -> int:
        spec = self.network.spec
        return 2 * (spec.num_bands * spec.patch_px**2 if self.network.cut == WHOLE else spec.row_length)

    def build(self, device: torch.device) -> tuple[Segmenter, Source, MaskObjective]:
        turns = Turns(hash_ids(self.problem.sample_ids), self.loop.seed, self.num_turns)
        weights = None if self.class_weights is None else torch.tensor(self.class_weights, device=device)
        objective = MaskObjective(self.patches, self.network.num_classes, turns, device, self.dice, weights)
        return Segmenter(self.network, backbone=self._backbone(), seed=self.loop.seed), self._source(turns), objective

    def _backbone(self) -> nn.Module | None:
        """The pretrained backbone where it trains; refused if its weights are not those the job was made for."""
        if self.network.cut != WHOLE:
            return None
        spec = self.network.spec
        module, found = load_pyramid(
            spec.encoder,
            weights=Path(self.weights) if self.weights else None,
            num_bands=spec.num_bands,
            patch_px=spec.patch_px,
            strides=spec.strides,
        )
        if found.weights_sha256 != spec.weights_sha256:
            raise UsageError(
                f"the weights of {spec.encoder} changed while the command ran",
                why="a training goes on from the weights it began with",
                try_="run the same command again",
            )
        return grouped_as(module.requires_grad_(True), spec.encoder)

    def _source(self, turns: Turns) -> Source:
        if self.pyramids is not None:
            return ActivationSource(self.pyramids, turns.hashes, self.loop.seed)
        return PatchSource(self.patches, turns, self.network)


def grouped_as(module: nn.Module, encoder: str) -> nn.Module:
    """Tell the layers of a pyramid apart as timm does those of the whole network: their parameters have the same names."""
    import timm

    with torch.device("meta"):
        whole: Any = timm.create_model(encoder, num_classes=0)
    module.group_matcher = whole.group_matcher
    return module


class PatchSource:
    """Pixels of patches, turned another way in each epoch."""

    def __init__(self, rows: PatchRows, turns: Turns, network: SegmenterConfig) -> None:
        spec = network.spec
        self._rows, self._turns = rows, turns
        self.num_samples = len(turns.hashes)
        self.sample_shape = (spec.num_bands, spec.patch_px, spec.patch_px)
        self.sample_bytes = 2 * int(np.prod(self.sample_shape))

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        with during("read"):
            pixels = torch.from_numpy(self._rows.pixels(positions))
        return pixels.pin_memory() if pin else pixels

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        return turn_each(raw.float(), self._turns.of(positions, epoch))
