"""The trained network: the suffix of a backbone, the fusion of a picture's tiles, and a linear head.

In: activations or pixels of tiles (n, tiles, …), and extra numbers per sample (n, inputs). Out: logits, or values in the targets'
own units with every declared sum derived from its parts. All tiles of all pictures go through the suffix in one pass. How the
tiles were cut, and how the network is trained, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from unchoke.core.fingerprint import hash_int
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.data import ProblemKind, Standardiser
from unchoke.training.network.objective import Objective

Fusion = Literal["mean", "film", "attention"]
_HEAD_STD = 1e-3
"""Head weights begin this small: the first outputs are the bias, and gradients still reach the suffix in the first step."""
_ATTENTION_HIDDEN = 128


@dataclass(frozen=True)
class NetworkConfig:
    """`dim` is what the suffix gives per tile; `num_outputs` what is learned; `num_derived` how many sums follow from it."""

    tiles: TilePlan
    dim: int
    fusion: Fusion
    num_inputs: int
    kind: ProblemKind
    num_outputs: int
    positive: bool = False
    num_derived: int = 0

    @property
    def head_inputs(self) -> int:
        return self.tiles.streams * self.dim + self.num_inputs

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint or a record."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NetworkConfig:
        return cls(**{**values, "tiles": TilePlan(**values["tiles"])})


class TileFusion(nn.Module):
    """The tiles of one stream (n, tiles, dim) as one vector (n, dim). This one is their mean, and every other begins as that."""

    def forward(self, tiles_ntd: torch.Tensor) -> torch.Tensor:
        return tiles_ntd.mean(dim=1)

    def init(self, generator: torch.Generator) -> None:
        """Begin anew, by `generator` alone. A mean has nothing to begin with."""


class FilmFusion(TileFusion):
    """The mean of tiles·(1 + γ) + β, where γ and β are linear in the mean of the tiles and begin at zero."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.modulation = _linear(dim, 2 * dim)

    def forward(self, tiles_ntd: torch.Tensor) -> torch.Tensor:
        context = tiles_ntd.mean(dim=1, keepdim=True)
        gamma, beta = self.modulation(context).chunk(2, dim=-1)
        modulated: torch.Tensor = tiles_ntd * (1 + gamma) + beta
        return modulated.mean(dim=1)

    def init(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)


class AttentionFusion(TileFusion):
    """The mean of the tiles by learned shares, which begin equal."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.hidden = _linear(dim, _ATTENTION_HIDDEN)
        self.query = _linear(_ATTENTION_HIDDEN, 1, bias=False)

    def forward(self, tiles_ntd: torch.Tensor) -> torch.Tensor:
        return (tiles_ntd * self.shares(tiles_ntd)).sum(dim=1)

    def shares(self, tiles_ntd: torch.Tensor) -> torch.Tensor:
        """(n, tiles, 1): how much each tile counts."""
        scores: torch.Tensor = self.query(self.hidden(tiles_ntd).tanh())
        return scores.softmax(dim=1)

    def init(self, generator: torch.Generator) -> None:
        _draw_normal(self.hidden.weight, self.hidden.in_features**-0.5, generator)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.query.weight)


class TrainableNetwork(nn.Module):
    """What the loop trains: a pretrained `suffix`, whose layers learn at rates of their own, and new parts around it."""

    suffix: nn.Module


class TiledNetwork(TrainableNetwork):
    """`suffix`, one fusion per stream, and a linear head; everything but the suffix computes in full precision."""

    target_mean: torch.Tensor
    target_std: torch.Tensor
    target_matrix: torch.Tensor | None
    input_mean: torch.Tensor
    input_std: torch.Tensor

    def __init__(self, suffix: nn.Module, config: NetworkConfig) -> None:
        """Scales are filled in by `load_state_dict`; `TiledNetwork.of` builds a network to be trained."""
        super().__init__()
        self.config, self.suffix = config, suffix
        self.fusion = nn.ModuleList(_build_fusion(config) for _ in range(config.tiles.streams))
        self.head = _linear(config.head_inputs, config.num_outputs)
        learned, derived = config.num_outputs, config.num_derived
        self.register_buffer("target_mean", torch.zeros(learned))
        self.register_buffer("target_std", torch.ones(learned))
        self.register_buffer("target_matrix", torch.eye(learned, learned + derived) if derived else None)
        self.register_buffer("input_mean", torch.zeros(config.num_inputs))
        self.register_buffer("input_std", torch.ones(config.num_inputs))
        self.init_head(0)

    @classmethod
    def of(
        cls,
        suffix: nn.Module,
        objective: Objective,
        *,
        tiles: TilePlan,
        dim: int,
        fusion: Fusion = "mean",
        input_scale: Standardiser | None = None,
        seed: int,
    ) -> TiledNetwork:
        """A network for `objective`, its head begun from `seed`; `input_scale` is that of extra columns on the train split."""
        plan, scale = objective.plan, objective.scale
        num_derived = len(plan.sums) if plan else 0
        config = NetworkConfig(
            tiles=tiles,
            dim=dim,
            fusion=fusion,
            num_inputs=len(input_scale.mean) if input_scale else 0,
            kind=objective.kind,
            num_outputs=objective.num_outputs,
            positive=plan.positive if plan else False,
            num_derived=num_derived,
        )
        network = cls(suffix, config)
        network.target_mean.copy_(scale.mean)
        network.target_std.copy_(scale.std)
        if network.target_matrix is not None and plan is not None:
            network.target_matrix.copy_(plan.matrix)
        if input_scale is not None:
            network.input_mean.copy_(torch.from_numpy(input_scale.mean))
            network.input_std.copy_(torch.from_numpy(input_scale.std))
        network.init_head(seed, scale.bias)
        return network

    @torch.no_grad()
    def init_head(self, seed: int, bias: torch.Tensor | None = None) -> None:
        """Begin fusion and head anew: a function of `seed` and the shapes alone. `bias` is what the raw outputs begin as."""
        generator = torch.Generator().manual_seed(hash_int(seed, "head") >> 1)
        for fuse in self.fusion:
            cast(TileFusion, fuse).init(generator)
        _draw_normal(self.head.weight, _HEAD_STD, generator)
        self.head.bias.copy_(torch.zeros(self.config.num_outputs) if bias is None else bias)

    def forward(self, x: torch.Tensor, inputs: torch.Tensor | None = None) -> torch.Tensor:
        """Outputs (n, names) for tiles (n, tiles, …) and extra columns (n, inputs) as they stand in the table."""
        if x.shape[1] != self.config.tiles.num_tiles:
            raise ValueError(f"{x.shape[1]} tiles were given, {self.config.tiles.num_tiles} are expected")
        feats = self.suffix(x.flatten(0, 1))
        with torch.autocast(x.device.type, enabled=False):
            return self.answer(feats.to(torch.promote_types(feats.dtype, torch.float32)), inputs)

    def answer(self, feats: torch.Tensor, inputs: torch.Tensor | None = None) -> torch.Tensor:
        """Outputs (n, names) for what the suffix gave (n · tiles, dim), in full precision."""
        tiles = self.config.tiles
        feats_nstd = feats.reshape(-1, tiles.streams, tiles.rows * tiles.cols, self.config.dim)
        raw: torch.Tensor = self.head(self._fused(feats_nstd, inputs))
        if self.config.kind != "regression":
            return raw
        values = (F.softplus(raw) if self.config.positive else raw) * self.target_std + self.target_mean
        if self.target_matrix is None:
            return values
        # Multiplied and summed, not as a matrix product: those may be rounded (TF32), and a sum is exact.
        return (values.unsqueeze(-1) * self.target_matrix).sum(dim=1)

    def _fused(self, feats_nstd: torch.Tensor, inputs: torch.Tensor | None) -> torch.Tensor:
        """(n, head inputs): each stream's tiles as one vector, side by side, then the extra columns, standardised."""
        if (0 if inputs is None else inputs.shape[1]) != self.config.num_inputs:
            raise ValueError(f"{self.config.num_inputs} extra columns are expected")
        parts = [fuse(tiles_ntd) for fuse, tiles_ntd in zip(self.fusion, feats_nstd.unbind(1), strict=True)]
        if inputs is not None:
            parts.append((inputs - self.input_mean) / self.input_std)
        return torch.cat(parts, dim=1)


def _build_fusion(config: NetworkConfig) -> TileFusion:
    if config.fusion == "mean":
        return TileFusion()
    return FilmFusion(config.dim) if config.fusion == "film" else AttentionFusion(config.dim)


def _linear(num_in: int, num_out: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer that draws nothing from torch's global random state; its values are whatever memory held."""
    skip: Any = skip_init  # torch leaves it untyped
    layer: nn.Linear = skip(nn.Linear, num_in, num_out, bias=bias)
    return layer


def _draw_normal(parameter: torch.Tensor, std: float, generator: torch.Generator) -> None:
    """Drawn on the CPU, so that every device begins with the same numbers."""
    parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
