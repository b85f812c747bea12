"""A segmenter as plain values: from them any process builds the same network, patches and objective, or the same over noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.clock import during
from unchoke.core.errors import UsageError
from unchoke.core.mixing import hash_ids
from unchoke.features.pyramid import load_pyramid
from unchoke.masks.mask_objective import MaskObjective, Masks, Turns, turn_each
from unchoke.masks.patches import turn
from unchoke.masks.segmenter import WHOLE, Segmenter, SegmenterConfig
from unchoke.training.data import Positions
from unchoke.training.network.sources import ActivationSource, InputSource, NoiseRows, Rows
from unchoke.training.network.training_job import TrainingJob


class PatchRows(Masks, Protocol):
    """Patches by position: their masks and, at full size, their bands and what trees say of them. Travels as paths."""

    def pixels(self, positions: Positions) -> NDArray[np.float16]: ...
    def scores(self, positions: Positions) -> NDArray[np.float16]: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class MaskJob(TrainingJob):
    """`dice` is the share of the Dice loss, `num_turns` in how many ways patches are shown. Without weights they are random."""

    network: SegmenterConfig
    patches: PatchRows
    pyramids: Rows | None
    dice: float = 0.5
    class_weights: tuple[float, ...] | None = None
    num_turns: int = 1
    weights: str | None = None

    unit: ClassVar[str] = "patches"

    @property
    def sample_bytes(self) -> int:
        network = self.network
        return 2 * (math.prod(network.input_shape) if network.cut == WHOLE else network.row_length)

    def open(self, device: torch.device) -> tuple[InputSource, MaskObjective]:
        turns = Turns(hash_ids(self.problem.sample_ids), self.loop.seed, self.num_turns)
        weights = None if self.class_weights is None else torch.tensor(self.class_weights, device=device)
        objective = MaskObjective(self.patches, self.network.num_classes, turns, device, self.dice, weights)
        source: InputSource = PatchSource(self.patches, turns, self.network)
        if self.pyramids is not None:
            source = ActivationSource(shown_rows(self.network, self.pyramids, self.patches), turns.hashes, self.loop.seed)
        return source, objective

    def build_network(self, objective: MaskObjective, *, seed: int) -> Segmenter:
        return Segmenter(self.network, backbone=self._backbone(), seed=seed)

    def _backbone(self) -> nn.Module | None:
        """The pretrained backbone where it trains; refused if its weights are not those the job was made for."""
        spec = self.network.spec
        if self.network.cut != WHOLE or not spec.weights_sha256:
            return None
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
                code="weights-changed",
                why="a training goes on from the weights it began with",
                try_="run the same command again",
            )
        return grouped_as(module.requires_grad_(True), spec.encoder)

    def over_noise(self, num: int) -> MaskJob:
        network = replace(self.network, spec=replace(self.network.spec, weights_sha256=""))
        pyramids = None if self.pyramids is None else NoiseRows((network.spec.row_length,))
        problem = self.noise_problem(num)
        return replace(
            self, network=network, patches=NoisePatches(network), pyramids=pyramids, weights=None, problem=problem, folder=None
        )


@dataclass(frozen=True, eq=False)
class DetailRows:
    """Cached pyramids by position, each followed by the detail of its patch, turned as the pyramid's view is."""

    network: SegmenterConfig
    pyramids: Rows
    patches: PatchRows

    @property
    def num_views(self) -> int:
        return self.pyramids.num_views

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.network.row_length,)

    def rows(
        self, positions: Positions, views: Positions | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]:
        found = np.empty((len(positions), self.network.row_length), np.float16) if out is None else out
        start = self.network.spec.row_length
        found[:, :start] = self.pyramids.rows(positions, views)
        parts = ([self.patches.pixels(positions)] if self.network.bands else []) + (
            [self.patches.scores(positions)] if self.network.scores else []
        )
        ways = np.broadcast_to(np.asarray(views), len(positions)).tolist()
        for part in parts:
            stop = start + math.prod(part.shape[1:])
            for place, way in enumerate(ways):
                found[place, start:stop] = turn(part[place], way).reshape(-1)
            start = stop
        return found


def shown_rows(network: SegmenterConfig, pyramids: Rows, patches: PatchRows) -> Rows:
    """What a decoder on cached pyramids is given."""
    return DetailRows(network, pyramids, patches) if network.num_detail else pyramids


def shown_pixels(network: SegmenterConfig, patches: PatchRows, positions: Positions) -> NDArray[np.float16]:
    """What a network that trains as a whole is given."""
    pixels = patches.pixels(positions)
    return np.concatenate([pixels, patches.scores(positions)], axis=1) if network.scores else pixels


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
        self._rows, self._turns, self._network = rows, turns, network
        self.sample_shape = network.input_shape
        self.sample_bytes = 2 * int(np.prod(self.sample_shape))

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        with during("read"):
            pixels = torch.from_numpy(shown_pixels(self._network, self._rows, positions))
        return pixels.pin_memory() if pin else pixels

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        return turn_each(raw.float(), self._turns.of(positions, epoch))


@dataclass(frozen=True)
class NoisePatches:
    """Patches of noise, all alike."""

    network: SegmenterConfig

    @cached_property
    def _mask(self) -> NDArray[np.uint8]:
        side = self.network.spec.patch_px
        return np.random.default_rng(0).integers(0, self.network.num_classes, (side, side), np.uint8)

    @cached_property
    def _pixels(self) -> NDArray[np.float16]:
        spec = self.network.spec
        noise = np.random.default_rng(0).standard_normal((spec.num_bands, spec.patch_px, spec.patch_px), np.float32)
        return noise.astype(np.float16)

    def masks(self, positions: Positions) -> NDArray[np.uint8]:
        return np.repeat(self._mask[None], len(positions), axis=0)

    def pixels(self, positions: Positions) -> NDArray[np.float16]:
        return np.repeat(self._pixels[None], len(positions), axis=0)

    def scores(self, positions: Positions) -> NDArray[np.float16]:
        side = self.network.spec.patch_px
        return np.zeros((len(positions), self.network.num_classes, side, side), np.float16)
