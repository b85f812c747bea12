"""Networks for classes and values of photos, as plain values: which backbone, where it is cut, what it is shown, what it learns.

In: names, arrays and settings; no network, no open file. Out: a `PhotoJob`, from which any process builds the same network,
source and objective, or the same over noise, to see what they take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.errors import UsageError
from unchoke.core.mixing import hash_ids
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.data.targets import TargetPlan
from unchoke.features.cut import cut_network, is_all_frozen, pooled_dim
from unchoke.features.encoders import Encoder, bare_encoder, load_encoder
from unchoke.features.feature_store import FeatureStore, Placement
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.heads.heads import TrainedHead
from unchoke.training.network.objective import Objective
from unchoke.training.network.sources import ActivationSource, InputSource, NoiseRows, Rows
from unchoke.training.network.tiled_network import Fusion, TiledNetwork
from unchoke.training.network.training_job import TrainingJob
from unchoke.training.scoring.selection import column_scale


@dataclass(frozen=True)
class NetworkSpec:
    """Which backbone, where it is cut, and how pictures are shown to it. A `bare` one has the structure and random weights."""

    encoder: str
    cut: str
    weights: str | None = None
    weights_sha256: str = ""
    input_px: int | None = None
    tiles: TilePlan = field(default_factory=TilePlan)
    fusion: Fusion = "mean"
    bare: bool = False

    def load(self) -> Encoder:
        """The pretrained backbone; refused if its weights are not the ones the job was made for."""
        if self.bare:
            return bare_encoder(self.encoder, input_px=self.input_px)
        encoder = load_encoder(self.encoder, weights=Path(self.weights) if self.weights else None, input_px=self.input_px)
        if self.weights_sha256 not in ("", encoder.spec.weights_sha256):
            raise UsageError(
                f"the weights of {self.encoder} changed while the command ran",
                code="weights-changed",
                why="the frozen part and the trained part must come from the same ones",
                try_="run the same command again",
            )
        return encoder

    def can_checkpoint(self) -> bool:
        """Whether the part that trains can compute activations again instead of keeping them."""
        if is_all_frozen(self.cut):
            return False
        prepare_torchvision()
        import timm

        with torch.device("meta"):
            network: Any = timm.create_model(self.encoder, num_classes=0)
        try:
            network.set_grad_checkpointing(True)
        except (AttributeError, AssertionError, NotImplementedError):
            return False
        return True


class SourceSpec(Protocol):
    """Where inputs come from, as a plain value."""

    @property
    def sample_bytes(self) -> int:
        """Of one sample as it is read."""
        ...

    @property
    def ram_bytes(self) -> int:
        """What is kept in the memory of every process that reads from it."""
        ...

    @property
    def held_bytes(self) -> int:
        """How much of that this process holds already."""
        ...

    def open(self, sample_ids: Sequence[str], seed: int) -> InputSource: ...

    def noise(self) -> SourceSpec:
        """Noise of the same shape, which takes as much memory."""
        ...


@dataclass(frozen=True, eq=False)
class StoredActivations:
    """Activations cached by extraction; without a `placement`, noise of their shape."""

    placement: Placement | None
    row_shape: tuple[int, ...]
    num_augmented: int = 0
    ram_bytes = held_bytes = 0  # read from the disk as they are needed

    @property
    def sample_bytes(self) -> int:
        return 2 * math.prod(self.row_shape)

    def open(self, sample_ids: Sequence[str], seed: int) -> InputSource:
        rows: Rows = NoiseRows(self.row_shape)
        if self.placement is not None:
            rows = FeatureStore(self.placement, row_shape=self.row_shape, num_augmented=self.num_augmented)
        return ActivationSource(rows, hash_ids(sample_ids), seed)

    def noise(self) -> StoredActivations:
        return StoredActivations(None, self.row_shape)


@dataclass(frozen=True, eq=False)
class LinearStart:
    """Where a network's head begins: at a linear head that was solved on the features its blocks give before they train.

    Weights (outputs, dim) and bias (outputs,), float32, for features that nobody standardised.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]

    @classmethod
    def of(cls, head: TrainedHead) -> LinearStart:
        """Standardising first and multiplying then is one multiplication with other weights."""
        weight = head.params["weight"].double().numpy() / head.standardiser.std.astype(np.float64)
        bias = head.params["bias"].double().numpy() - weight @ head.standardiser.mean.astype(np.float64)
        return cls(weight.astype(np.float32), bias.astype(np.float32))

    @torch.no_grad()
    def fill(self, layer: nn.Linear) -> None:
        layer.weight.copy_(torch.from_numpy(self.weight))
        layer.bias.copy_(torch.from_numpy(self.bias))


@dataclass(frozen=True, eq=False, kw_only=True)
class PhotoJob(TrainingJob):
    """A network for classes or values of photos, trained on pixels or cached activations."""

    network: NetworkSpec
    source: SourceSpec
    targets: TargetPlan | None = None
    start: LinearStart | None = None
    """Where its head begins; left out, near zero."""

    @property
    def sample_bytes(self) -> int:
        return self.source.sample_bytes

    @property
    def ram_bytes(self) -> int:
        return self.source.ram_bytes

    @property
    def held_bytes(self) -> int:
        return self.source.held_bytes

    def can_checkpoint(self) -> bool:
        return self.network.can_checkpoint()

    def open(self, device: torch.device) -> tuple[InputSource, Objective]:
        problem, loop = self.problem, self.loop
        objective = Objective.of(
            problem, self.targets, label_smoothing=loop.label_smoothing, class_weights=loop.class_weights, device=device
        )
        return self.source.open(problem.sample_ids, loop.seed), objective

    def build_network(self, objective: Objective, *, seed: int) -> TiledNetwork:
        encoder = self.network.load()
        network = TiledNetwork.of(
            cut_network(encoder, self.network.cut, verify=False).suffix,
            objective,
            tiles=self.network.tiles,
            dim=pooled_dim(encoder, self.network.cut),
            fusion=self.network.fusion,
            input_scale=None if self.inputs is None else column_scale(self.inputs[self.problem.positions("train")]),
            seed=seed,
        )
        if self.start is not None:
            self.start.fill(network.head)
        return network

    def over_noise(self, num: int) -> PhotoJob:
        return replace(
            self,
            network=replace(self.network, weights=None, weights_sha256="", bare=True),
            source=self.source.noise(),
            problem=self.noise_problem(num),
            inputs=None if self.inputs is None else np.zeros((num, self.inputs.shape[1]), np.float32),
            folder=None,
        )
