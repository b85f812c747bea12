"""The network that draws masks: a pyramid of maps, frozen and cached or trained along, and a decoder that grows it to a mask.

In: flattened pyramids (n, row_length) as they are cached, or patches (n, bands, side, side); with them, at full size, their bands
and what trees say of each pixel. Out: one logit per class and pixel, (n, classes, side, side). The decoders are those of
segmentation-models-pytorch, with their batch norms replaced by group norms: nothing then depends on which patches share a batch,
so that steps may be split, and a patch always gets the same mask.
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
_SPREAD_PX = 5
_DETAIL_HIDDEN, _DETAIL_WIDTH = 16, 8
"""Channels at full size are few: there are sixteen times as many pixels as in the finest map of an FPN."""


@dataclass(frozen=True)
class SegmenterConfig:
    """What a segmenter is, as plain values. Runs from before there was detail say nothing of it, and have none.

    `bands` are seen at full size, where the finest map has lost each pixel's spectrum; `scores` are what trees over the bands say
    of a pixel's class: seen too, and what the decoder's answer is added to.
    """

    spec: PyramidSpec
    num_classes: int
    cut: str = PYRAMID
    decoder: Decoder = "unet"
    bands: bool = False
    scores: bool = False
    spread_px: int = _SPREAD_PX
    """Over how many pixels scores are averaged to begin with; 1 leaves each as it is."""

    def __post_init__(self) -> None:
        if self.decoder not in get_args(Decoder):
            known = " and ".join(get_args(Decoder))
            raise UsageError(
                f"unknown decoder: {self.decoder!r}", code="unknown-choice", why=f"there are {known}", try_="--decoder unet"
            )
        if self.decoder == "fpn" and self.spec.strides != FPN_STRIDES:
            raise UsageError(
                f"the decoder fpn cannot be given the strides {','.join(map(str, self.spec.strides))}",
                code="bad-strides",
                why="it adds four levels, each twice as fine as the one before",
                try_=f"--strides {','.join(map(str, FPN_STRIDES))}, or --decoder unet",
            )

    @property
    def num_detail(self) -> int:
        """Channels that are seen at full size."""
        return self.spec.num_bands * self.bands + self.num_classes * self.scores

    @property
    def row_length(self) -> int:
        """Values of one patch as the decoder is given them: its maps, then its detail."""
        return self.spec.row_length + self.num_detail * self.spec.patch_px**2

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Of one patch where nothing is frozen: its bands, then its scores."""
        side = self.spec.patch_px
        return self.spec.num_bands + self.num_classes * self.scores, side, side

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
            self.detail = DetailBranch(width, config.num_detail) if config.num_detail else None
            self.head = nn.Conv2d(_DETAIL_WIDTH if self.detail else width, config.num_classes, kernel_size=1)
            self.spread = _Spread(config.spread_px) if config.scores else None
            if config.scores:  # the first answer is that of the trees
                nn.init.zeros_(self.head.weight)
                nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor, inputs: torch.Tensor | None = None) -> torch.Tensor:
        """Logits for cached pyramids (any shape with one row per patch) or for patches of pixels."""
        config, side = self.config, self.config.spec.patch_px
        if config.cut == WHOLE:
            levels, detail = list(self.suffix(x[:, : config.spec.num_bands])), x[:, -config.num_detail :]
        else:
            levels, detail = self._unfolded(x.flatten(1))
        decoded = self._decoded(levels)
        if self.detail is not None:
            decoded = self.detail(decoded, detail)
        logits = self.head(decoded)
        with torch.autocast(logits.device.type, enabled=False):
            answer = F.interpolate(logits.float(), size=(side, side), mode="bilinear", align_corners=False)
            return answer if self.spread is None else answer + self.spread(detail[:, -config.num_classes :].float())

    def _unfolded(self, rows: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Cached rows as the maps they were, the finest first, and the detail behind them."""
        shapes, side = self.config.spec.shapes, self.config.spec.patch_px
        *parts, detail = torch.split(rows, [*(math.prod(shape) for shape in shapes), self.config.num_detail * side**2], dim=1)
        maps = [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]
        return maps, detail.reshape(rows.shape[0], self.config.num_detail, side, side)

    def _decoded(self, levels: Sequence[torch.Tensor]) -> torch.Tensor:
        """A U-Net's last block doubles the finest level once more; only the size of the map put before the levels counts."""
        finest = levels[0]
        larger = finest.new_empty((finest.shape[0], 0, 2 * finest.shape[-2], 2 * finest.shape[-1]))
        decoded: torch.Tensor = self.decoder([larger, *levels])
        return decoded


class _Spread(nn.Module):
    """Scores of single pixels, each the mean of `begin_px`² around it to begin with: neighbours mostly belong together."""

    def __init__(self, begin_px: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            F.pad(torch.full((1, 1, begin_px, begin_px), begin_px**-2.0), ((_SPREAD_PX - begin_px) // 2,) * 4)
        )

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        around = _SPREAD_PX // 2
        singly = F.pad(scores.flatten(0, 1).unsqueeze(1), (around,) * 4, mode="replicate")
        return F.conv2d(singly, self.weight).reshape(scores.shape)


class DetailBranch(nn.Module):
    """What a decoder gives, enlarged, and what is seen of each pixel, joined at full size.

    Nothing is normalised by the patch: a pixel's values mean the same wherever it lies.
    """

    def __init__(self, width: int, num_detail: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, _DETAIL_WIDTH, kernel_size=1)
        self.pixels = nn.Sequential(
            nn.Conv2d(num_detail, _DETAIL_HIDDEN, kernel_size=1),
            nn.ReLU(),
            nn.Conv2d(_DETAIL_HIDDEN, _DETAIL_WIDTH, kernel_size=1),
            nn.ReLU(),
        )
        self.join = nn.Sequential(nn.Conv2d(2 * _DETAIL_WIDTH, _DETAIL_WIDTH, kernel_size=3, padding=1), nn.ReLU())

    def forward(self, decoded: torch.Tensor, detail: torch.Tensor) -> torch.Tensor:
        coarse = F.interpolate(self.reduce(decoded), size=detail.shape[-2:], mode="bilinear", align_corners=False)
        joined: torch.Tensor = self.join(torch.cat([coarse, self.pixels(detail)], dim=1))
        return joined


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
