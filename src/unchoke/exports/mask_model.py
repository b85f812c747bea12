"""A run that draws masks as one network: windows of a scene in, the probabilities of each pixel's classes out.

In: the parts of a segmenter as modules: the frozen pyramid (where one is), what scores single pixels (where something does), the
trained decoder. Out: a module in evaluation mode, on the CPU, whose arithmetic is that of `segment predict` with plain float32
torch: numbers are rounded to float16 where the run keeps them so. Cutting windows and blending them is not done here: the script
that is shipped does both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from unchoke.exports.whole_model import PortableModel
from unchoke.features.engines import round_to_half


@dataclass(frozen=True, eq=False)
class MaskParts:
    """`pyramid` gives one flat row of maps for each window; `decoder` is given these rows, or the window where there is none.

    `limit` is where standardised bands are clipped; `sees_bands` tells whether the decoder is shown them behind the maps.
    """

    decoder: nn.Module
    pyramid: nn.Module | None
    scorer: nn.Module | None
    sees_bands: bool
    mean: Sequence[float]
    std: Sequence[float]
    limit: float
    side_px: int


class MaskModel(PortableModel):
    """Windows (n, bands, side, side), float32 on the scene's scale, not a number where a pixel has no value, to ``masks``."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, parts: MaskParts) -> None:
        super().__init__("masks")
        self.decoder, self.pyramid, self.scorer = parts.decoder, parts.pyramid, parts.scorer
        self.sees_bands, self.limit, self.side_px = parts.sees_bands, parts.limit, parts.side_px
        self.register_buffer("mean", torch.tensor(parts.mean, dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(parts.std, dtype=torch.float32)[:, None, None])
        self.eval().requires_grad_(False)

    def example(self) -> torch.Tensor:
        return torch.zeros((2, len(self.mean), self.side_px, self.side_px))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        known = (pixels == pixels).all(dim=1, keepdim=True)
        # The divisor depends on the pixels: runtimes multiply by the inverse of a constant, which rounds otherwise.
        divisor = torch.where(known, self.std, torch.ones_like(self.std))
        bands = (torch.where(known, pixels, torch.zeros_like(pixels)) - self.mean) / divisor
        bands = round_to_half(torch.where(known, bands.clamp(-self.limit, self.limit), torch.zeros_like(bands)))
        shown = [] if self.scorer is None else [self.scorer(bands)]
        if self.pyramid is None:
            logits = self.decoder(torch.cat([bands, *shown], dim=1))
        else:
            detail = ([bands] if self.sees_bands else []) + shown
            maps = round_to_half(self.pyramid(bands))
            logits = self.decoder(torch.cat([maps, *(part.flatten(1) for part in detail)], dim=1))
        answered: torch.Tensor = logits.softmax(dim=1)
        return answered
