"""Augmentation of whole batches of uint8 pixels, on whatever device they are on.

In: pixels (n, tiles, height, width, RGB) and a plan: a few numbers per sample that follow from (seed, epoch, sample id). Out:
normalised float32 (n, tiles, 3, size, size). Crop, flips and rotation are one affine sampling of the batch; brightness, contrast
and saturation are one affine map of the colours; all tiles of a sample are treated alike. There is no Python per sample. Every
operation works on each sample by itself, without sums over pixels, so a sample's values do not depend on its batch, bit for bit.

Sampling is bilinear and not antialiased: the pixel cache holds pictures near the network's scale, so that a crop shrinks by less
than 1.5 in usual pictures and less than 2 in the longest, where antialiasing changes little. Contrast is taken about the
encoder's mean colour, not the picture's own.
"""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import grid_sample

from unchoke.core.errors import UsageError
from unchoke.core.mixing import Hashes, mix_units
from unchoke.machine.backend import send

Three = tuple[float, float, float]
_GREY: Three = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class AugmentSpec:
    """What may happen to a picture. Colours vary by ± a share; `rotation` is in degrees to either side."""

    name: str
    meaning: str
    area: tuple[float, float] = (1.0, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    mirror: bool = False
    flip: bool = False
    rotation: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0

    @property
    def is_none(self) -> bool:
        """Whether pictures are shown as evaluation shows them."""
        return self.name == "none"

    @property
    def colours(self) -> bool:
        return max(self.brightness, self.contrast, self.saturation) > 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


SPECS = {
    spec.name: spec
    for spec in (
        AugmentSpec("none", "every epoch shows what evaluation shows"),
        AugmentSpec(
            "light",
            "crops of 35 to 100 % of the area, mirrored half the time, colours ± 10 %: safe for pictures that have an up",
            area=(0.35, 1.0), mirror=True, brightness=0.1, contrast=0.1, saturation=0.1,
        ),
        AugmentSpec(
            "strong",
            "crops of 25 to 100 % of the area, mirrored and upside down half the time, turned up to 30°, colours ± 30 %: for "
            "pictures that may be taken from any side, such as leaves, skin or ground",
            area=(0.25, 1.0), mirror=True, flip=True, rotation=30.0, brightness=0.3, contrast=0.3, saturation=0.3,
        ),
    )
}  # fmt: skip


def augment_spec(name: str) -> AugmentSpec:
    """The augmentation of that name."""
    if name not in SPECS:
        raise UsageError(
            f"no augmentation is called {name!r}",
            code="unknown-augmentation",
            why=f"there are {', '.join(SPECS)}",
            try_="--augment light",
        )
    return SPECS[name]


class AugmentDraws(NamedTuple):
    """What was drawn for a batch, one number for each sample; arrays from `plan_batch`, tensors on the device in `augment`."""

    area: Any
    ratio: Any
    across: Any
    down: Any
    mirror: Any
    flip: Any
    cos: Any
    sin: Any
    brightness: Any
    contrast: Any
    saturation: Any


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """float32 (n, number of `AugmentDraws` fields): mirror and flip are 1 or −1, colours are factors.

    `turns` and `colours` say whether any picture is turned, any colour changed; without, less is computed. Values that are on the
    device already are not sent there.
    """

    values: NDArray[np.float32] | torch.Tensor
    turns: bool = True
    colours: bool = True

    @property
    def drawn(self) -> AugmentDraws:
        return AugmentDraws(*np.asarray(self.values).T)


@dataclass(frozen=True, eq=False)
class Frames:
    """How far each picture reaches in its row, (n,) on the device: upright height and width, and whether it lies on its side."""

    heights: torch.Tensor
    widths: torch.Tensor
    turned: torch.Tensor


def plan_batch(spec: AugmentSpec, hashes: Hashes, *, seed: int, epoch: int) -> BatchPlan:
    """What happens in this epoch to the samples with these hashes."""

    def between(name: str, low: float, high: float) -> NDArray[np.float64]:
        return low + (high - low) * mix_units(hashes, seed, epoch, "augment", name)

    def sign(name: str, may: bool) -> NDArray[np.float64]:
        return np.where(between(name, 0, 1) < 0.5, -1.0, 1.0) if may else np.ones(len(hashes))

    turn = np.deg2rad(between("rotation", -spec.rotation, spec.rotation))
    drawn = AugmentDraws(
        area=between("area", *spec.area),
        ratio=np.exp(between("ratio", math.log(spec.ratio[0]), math.log(spec.ratio[1]))),
        across=between("across", 0, 1),
        down=between("down", 0, 1),
        mirror=sign("mirror", spec.mirror),
        flip=sign("flip", spec.flip),
        cos=np.cos(turn),
        sin=np.sin(turn),
        brightness=between("brightness", 1 - spec.brightness, 1 + spec.brightness),
        contrast=between("contrast", 1 - spec.contrast, 1 + spec.contrast),
        saturation=between("saturation", 1 - spec.saturation, 1 + spec.saturation),
    )
    return BatchPlan(np.stack(drawn, axis=1).astype(np.float32), turns=spec.rotation > 0, colours=spec.colours)


def augment(
    pixels: torch.Tensor, plan: BatchPlan, *, size_px: int, mean: Three, std: Three, frames: Frames | None = None
) -> torch.Tensor:
    """The batch as this epoch shows it, float32 (n, tiles, 3, size, size). Without `frames` every picture fills its row."""
    values = plan.values if isinstance(plan.values, torch.Tensor) else send(torch.from_numpy(plan.values), pixels.device)
    drawn = AugmentDraws(*values.unbind(1))
    grid = _grid(drawn, frames or _full(pixels), pixels.shape[2:4], size_px, turns=plan.turns)
    shown = _sample(pixels, grid, size_px)
    if plan.colours:
        _colour_(shown, drawn, mean)
    return _normalise_(shown, mean=mean, std=std)


def plain(pixels: torch.Tensor, *, mean: Three, std: Three) -> torch.Tensor:
    """Pixels that are network input already, as float32 (n, tiles, 3, size, size): what evaluation shows."""
    return _normalise_(_to_nchw(pixels), mean=mean, std=std)


def _normalise_(pixels: torch.Tensor, *, mean: Three, std: Three) -> torch.Tensor:
    """(…, 3, H, W) in 0…255 as the encoder wants it, in place: the arithmetic of `features.engines.FromPixels`."""
    offset, scale = _normaliser(tuple(mean), tuple(std), pixels.device)
    return pixels.sub_(offset).mul_(scale)


@functools.lru_cache(maxsize=64)
def _normaliser(mean: Three, std: Three, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """What is subtracted and what is multiplied by, sent to a device once."""
    with torch.inference_mode(False):
        offset = torch.tensor(mean, dtype=torch.float64).mul(255).float().view(3, 1, 1)
        scale = torch.tensor(std, dtype=torch.float64).mul(255).reciprocal().float().view(3, 1, 1)
        return send(offset, device), send(scale, device)


@functools.lru_cache(maxsize=64)
def _output_places(size_px: int, device: torch.device) -> torch.Tensor:
    """The middles of `size_px` output pixels, −½ to ½, sent to a device once."""
    with torch.inference_mode(False):
        return send(((torch.arange(size_px, dtype=torch.float64) + 0.5) / size_px - 0.5).float(), device)


def read_frames(raw: torch.Tensor) -> tuple[torch.Tensor, Frames]:
    """Rows of whole pictures (see `canvas`) without their last line, and what that line says."""
    values = raw[:, 0, -1].flatten(1)[:, :4].to(torch.int32)
    reach = (values[:, 0] + 256 * values[:, 1]).float()
    turned = values[:, 2] > 0
    short = torch.full_like(reach, raw.shape[2] - 1)
    return raw[:, :, :-1], Frames(torch.where(turned, reach, short), torch.where(turned, short, reach), turned)


def crop_inputs(raw: torch.Tensor, size_px: int) -> torch.Tensor:
    """Rows of whole pictures as evaluation shows them, (n, 1, size, size, RGB): the bytes of `Canvas.inputs`, on any device."""
    line = raw[:, 0, -1].flatten(1)[:, :8].to(torch.int64)
    _, turned, top, left = (line[:, 0::2] + 256 * line[:, 1::2]).view(-1, 4, 1, 1).unbind(1)
    step = torch.arange(size_px, device=raw.device)
    down, across = step.view(1, -1, 1), step.view(1, 1, -1)
    y, x = top + torch.where(turned > 0, across, down), left + torch.where(turned > 0, down, across)
    return raw[torch.arange(len(raw), device=raw.device).view(-1, 1, 1), 0, y, x].unsqueeze(1)


def _full(pixels: torch.Tensor) -> Frames:
    whole = torch.ones(len(pixels), device=pixels.device)
    return Frames(whole * pixels.shape[2], whole * pixels.shape[3], torch.zeros_like(whole, dtype=torch.bool))


def _to_nchw(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.permute(0, 1, 4, 2, 3).contiguous().float()


def _sample(pixels: torch.Tensor, grid: torch.Tensor, size_px: int) -> torch.Tensor:
    """All tiles of a sample at the same places: they are so many channels more."""
    num, tiles = pixels.shape[:2]
    if num == 0:
        return pixels.new_empty((0, tiles, 3, size_px, size_px), dtype=torch.float32)
    stacked = _to_nchw(pixels).flatten(1, 2)
    return grid_sample(stacked, grid, mode="bilinear", align_corners=True).view(num, tiles, 3, size_px, size_px)


def _grid(drawn: AugmentDraws, frames: Frames, row_hw: torch.Size, size_px: int, *, turns: bool) -> torch.Tensor:
    """Where each output pixel is taken from, (n, size, size, 2) as `grid_sample` wants it: across and down, −1 to 1."""
    across, down = _affine(drawn, frames)
    step = _output_places(size_px, frames.heights.device)
    u, v = step.view(1, 1, -1), step.view(1, -1, 1)
    x = _within_(across.places(u, v if turns else None), frames.widths)
    y = _within_(down.places(v, u if turns else None), frames.heights)
    turned = frames.turned.view(-1, 1, 1)
    grid = x.new_empty((len(x), size_px, size_px, 2))
    for axis, (upright, lying, length) in enumerate(((x, y, row_hw[1]), (y, x, row_hw[0]))):
        grid[..., axis] = torch.where(turned, lying, upright).mul_(2 / max(1, length - 1)).sub_(1)
    return grid


class _Line(NamedTuple):
    """One coordinate of a source place: `at`, plus `own` times the output's same coordinate, plus `other` times its other one."""

    own: torch.Tensor
    other: torch.Tensor
    at: torch.Tensor

    def places(self, own: torch.Tensor, other: torch.Tensor | None) -> torch.Tensor:
        """The coordinate for output places in −½…½; without `other` nothing is turned, and a row or column says it all."""
        found = own * self.own.view(-1, 1, 1)
        if other is not None:
            found = found + other * self.other.view(-1, 1, 1)
        return found.add_(self.at.view(-1, 1, 1))


def _affine(drawn: AugmentDraws, frames: Frames) -> tuple[_Line, _Line]:
    """Crop, flips and rotation as one map from output to upright picture, in pixels. What a crop has too much is clipped."""
    area = frames.heights * frames.widths * drawn.area
    width = torch.minimum((area * drawn.ratio).sqrt(), frames.widths)
    height = torch.minimum((area / drawn.ratio).sqrt(), frames.heights)
    x = (frames.widths - width) * drawn.across + width / 2
    y = (frames.heights - height) * drawn.down + height / 2
    wide, high = width * drawn.mirror, height * drawn.flip
    return _Line(drawn.cos * wide, -drawn.sin * high, x), _Line(drawn.cos * high, drawn.sin * wide, y)


def _within_(place: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Pixel edges to pixel centres, in place; beyond an edge lies the picture's mirror image."""
    limit = length.view(-1, 1, 1)
    mirrored = place.abs_().sub_(limit).abs_().neg_().add_(limit)
    return torch.minimum(mirrored.sub_(0.5).clamp_(min=0), limit - 1, out=mirrored)


def _colour_(pixels: torch.Tensor, drawn: AugmentDraws, mean: Three) -> None:
    """Brightness, then contrast about the encoder's mean colour, then saturation, in place, as one map; kept in 0…255."""
    brightness, contrast, saturation = (value.view(-1, 1, 1, 1) for value in drawn[-3:])
    middle = [255 * value for value in mean]
    middle_grey = sum(weight * value for weight, value in zip(_GREY, middle, strict=True))
    grey = pixels[:, :, 0] * _GREY[0]
    grey.add_(pixels[:, :, 1] * _GREY[1]).add_(pixels[:, :, 2] * _GREY[2])
    common = grey.mul_((1 - saturation) * contrast * brightness)
    own = saturation * contrast * brightness
    for channel in range(3):
        level = (saturation * middle[channel] + (1 - saturation) * middle_grey) * (1 - contrast)
        pixels[:, :, channel].mul_(own).add_(common).add_(level).clamp_(0, 255)
