"""The network that draws masks: a pyramid of maps, frozen and cached or trained along, and a decoder that grows it to a mask.

In: flattened pyramids (n, row_length) as they are cached, or patches (n, bands, side, side). Out: one logit per class and pixel,
(n, classes, side, side). The decoders are those of segmentation-models-pytorch, with their batch norms replaced by group norms:
nothing then depends on which patches share a batch, so that steps may be split, and a patch always gets the same mask.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import nn
from torch.nn import functional as F

from unchoke.core.errors import UsageError, missing_extra
from unchoke.core.fingerprint import hash_int
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.pyramid import PyramidSpec, bare_pyramid
from unchoke.training.network.tiled_network import TrainableNetwork

if TYPE_CHECKING:
    from collections.abc import Sequence

Decoder = Literal["unet", "fpn"]
PYRAMID, WHOLE = "pyramid", "none"
"""Where the network is cut: the whole backbone is frozen, or nothing is."""
_WIDTHS = (128, 64, 48, 32, 16)
"""Channels of the U-Net's blocks, coarse to fine: about a million weights, which two cores train in minutes."""
_FPN_CHANNELS, _FPN_SEGMENTATION = 128, 64
FPN_STRIDES = (4, 8, 16, 32)
_GROUPS = 8


@dataclass(frozen=True)
class SegmenterConfig:
    """What a segmenter is, as plain values."""

    spec: PyramidSpec
    num_classes: int
    cut: str = PYRAMID
    decoder: Decoder = "unet"

    def __post_init__(self) -> None:
        if self.decoder not in get_args(Decoder):
            known = " and ".join(get_args(Decoder))
            raise UsageError(f"unknown decoder: {self.decoder!r}", why=f"there are {known}", try_="--decoder unet")
        if self.decoder == "fpn" and self.spec.strides != FPN_STRIDES:
            raise UsageError(
                f"the decoder fpn cannot be given the strides {','.join(map(str, self.spec.strides))}",
                why="it adds four levels, each twice as fine as the one before",
                try_=f"--strides {','.join(map(str, FPN_STRIDES))}, or --decoder unet",
            )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SegmenterConfig:
        return cls(**{**values, "spec": PyramidSpec.from_dict(values["spec"])})


class Segmenter(TrainableNetwork):
    """`suffix` is the backbone where it trains, and nothing where its pyramids are cached."""

    def __init__(self, config: SegmenterConfig, *, backbone: nn.Module | None = None, seed: int = 0) -> None:
        """A decoder that begins from `seed` alone. `backbone` brings weights; without it, trained ones are loaded afterwards."""
        super().__init__()
        self.config = config
        self.suffix = (backbone or bare_pyramid(config.spec)) if config.cut == WHOLE else nn.Identity()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hash_int(seed, "decoder") >> 1)
            self.decoder, width = _build_decoder(config)
            self.head = nn.Conv2d(width, config.num_classes, kernel_size=1)

    def forward(self, x: torch.Tensor, inputs: torch.Tensor | None = None) -> torch.Tensor:
        """Logits for cached pyramids (any shape with one row per patch) or for patches of pixels."""
        levels = list(self.suffix(x)) if self.config.cut == WHOLE else self._unfolded(x.flatten(1))
        side = self.config.spec.patch_px
        logits = self.head(self._decoded(levels))
        with torch.autocast(logits.device.type, enabled=False):
            return F.interpolate(logits.float(), size=(side, side), mode="bilinear", align_corners=False)

    def _unfolded(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Cached rows as the maps they were, the finest first."""
        shapes = self.config.spec.shapes
        parts = torch.split(rows, [math.prod(shape) for shape in shapes], dim=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]

    def _decoded(self, levels: Sequence[torch.Tensor]) -> torch.Tensor:
        """A U-Net's last block doubles the finest level once more; only the size of the map put before the levels counts."""
        finest = levels[0]
        larger = finest.new_empty((len(finest), 0, 2 * finest.shape[-2], 2 * finest.shape[-1]))
        decoded: torch.Tensor = self.decoder([larger, *levels])
        return decoded


def _build_decoder(config: SegmenterConfig) -> tuple[nn.Module, int]:
    """The decoder, and how many channels it gives."""
    prepare_torchvision()
    try:
        from segmentation_models_pytorch.decoders.fpn.decoder import FPNDecoder
        from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoder
    except ImportError as error:
        raise missing_extra("segmentation-models-pytorch", extra="segment", purpose="training masks") from error
    channels = [0, *config.spec.channels]
    if config.decoder == "fpn":
        decoder: nn.Module = FPNDecoder(
            channels, encoder_depth=4, pyramid_channels=_FPN_CHANNELS, segmentation_channels=_FPN_SEGMENTATION, dropout=0.0
        )
        return decoder, _FPN_SEGMENTATION
    widths = _WIDTHS[-len(config.spec.channels) :]
    decoder = UnetDecoder(channels, widths, n_blocks=len(widths))
    _use_group_norm(decoder)
    return decoder, widths[-1]


def _use_group_norm(module: nn.Module) -> None:
    """Put a group norm in the place of every batch norm below `module`."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(math.gcd(_GROUPS, child.num_features), child.num_features))
        else:
            _use_group_norm(child)
