"""Pixels of any size to a network's input inside the model: the very numbers of `photos.pixels.resize`, by two matrix products.

In: uint8 pixels (n, height, width, RGB). Out: whole numbers 0…255 as float32 (n · tiles, RGB, size, size). Runtimes have no
antialiased resize that keeps torch's rounding, so its weights are computed in the graph from the picture's size: torch's own
fixed-point weights, as whole numbers in float32. Each is split in two parts so small that all products and sums are exact.
Decoding and turning upright are not done here.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import nn

from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan

Filter = Literal["bilinear", "bicubic"]
_CPU = torch.device("cpu")
_MOST_BITS = 22
_INT16_END = 1 << 15
_PART = 256
"""Weights are whole numbers up to 2¹⁵: so many of them make one of the coarse part. 512 pixels may then lie under one filter."""


class PhotoInput(nn.Module):
    """What `fit_to_input` does to a picture, or `cut_tiles` where there are tiles, for a batch of one size."""

    def __init__(self, preprocess: Preprocess, tiles: TilePlan) -> None:
        super().__init__()
        known = preprocess.interpolation in ("bilinear", "bicubic")
        self.filter = cast(Filter, preprocess.interpolation if known else "bicubic")
        self.size_px, self.short_px, self.tiles = preprocess.size_px, preprocess.resize_px, tiles

    def forward(self, pixels_nhwc: torch.Tensor) -> torch.Tensor:
        pixels = pixels_nhwc.permute(0, 3, 1, 2).float()
        return self._whole(pixels) if self.tiles.is_whole else self._cut(pixels)

    def _whole(self, pixels: torch.Tensor) -> torch.Tensor:
        """The short side to `short_px`, and of that the central square."""
        height, width = pixels.shape[2:]
        smaller: Any = torch.sym_min  # torch leaves it untyped
        short = smaller(height, width)
        return self._resize(pixels, self.short_px * height // short, self.short_px * width // short)

    def _cut(self, pixels: torch.Tensor) -> torch.Tensor:
        """Every tile resized whole, in the order of `tile_windows`."""
        height, width = pixels.shape[2:]
        plan = self.tiles
        tiles = []
        for stream in range(plan.streams):
            left, right = width * stream // plan.streams, width * (stream + 1) // plan.streams
            for row in range(plan.rows):
                top, bottom = height * row // plan.rows, height * (row + 1) // plan.rows
                for column in range(plan.cols):
                    begin, end = (left + (right - left) * place // plan.cols for place in (column, column + 1))
                    tiles.append(self._resize(pixels[:, :, top:bottom, begin:end], self.size_px, self.size_px))
        return torch.stack(tiles, dim=1).flatten(0, 1)

    def _resize(self, pixels: torch.Tensor, height_px: int, width_px: int) -> torch.Tensor:
        """To `height_px` × `width_px`, across first, as torch does it; of the result only the central square is computed."""
        (height, width), device = pixels.shape[2:], pixels.device
        across, unit = fixed_weights(width, width_px, self.size_px, self.filter, device)
        coarse, fine = _split(across.T + _PART / 2, 1 / _PART)
        pixels = _rounded(torch.matmul(pixels, coarse / _PART), torch.matmul(pixels, fine - _PART / 2), unit)
        down, unit = fixed_weights(height, height_px, self.size_px, self.filter, device)
        coarse, fine = _split(down + _PART / 2, 1 / _PART)
        return _rounded(torch.matmul(coarse / _PART, pixels), torch.matmul(fine - _PART / 2, pixels), unit)


def fixed_weights(
    in_px: int, out_px: int, size_px: int, filter_: Filter, device: torch.device = _CPU
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (size_px, in_px) that give the central `size_px` of `out_px` numbers, and what they add up to, a power of two.

    torch computes them in float64 and rounds them to whole numbers. OpenVINO has no float64, so each is the sum of two float32
    here: one that is exact in all that is done with it, and a small rest.
    """
    ends = _centre(out_px, size_px) + torch.arange(size_px, dtype=torch.int64, device=device)[:, None]
    places = torch.arange(in_px, dtype=torch.int64, device=device)[None]
    weights, rest = _filtered(*_distance(ends, places, in_px, out_px), filter_)
    total, total_rest = weights.sum(dim=1, keepdim=True), rest.sum(dim=1, keepdim=True)
    shares = (weights + rest) / (total + total_rest)
    powers = 2.0 ** torch.arange(1, _MOST_BITS + 1, dtype=torch.float32, device=device)
    unit = 2.0 ** ((_largest_share(in_px, out_px, filter_, device) * powers + 0.5).floor() < _INT16_END).float().sum()
    whole = (shares * unit + 0.5).floor()
    # What is left over after that rounding, part by part so that each product is exact, tells whether it was the right one.
    ones, parts = _split(total, 1)
    parts, last = _split(parts, 256)
    left = ((unit * weights - whole * ones) - whole * parts) - whole * last + (unit * rest - whole * total_rest)
    half = (total + total_rest) / 2
    return whole + (left > half).float() - (left < -half).float(), unit


def _largest_share(in_px: int, out_px: int, filter_: Filter, device: torch.device) -> torch.Tensor:
    """Of any of the `out_px` numbers, not of the central ones alone: each is looked at where its filter reaches."""
    ends = torch.arange(out_px, dtype=torch.int64, device=device)[:, None]
    reach = 2 * _larger(in_px, out_px) // out_px + 2
    around = torch.arange(2 * reach + 1, dtype=torch.int64, device=device)[None] - reach
    places = (2 * ends + 1) * in_px // (2 * out_px) + around
    weights, rest = _filtered(*_distance(ends, places, in_px, out_px), filter_)
    weights = (weights + rest) * ((places >= 0) & (places < in_px)).float()
    return (weights / weights.sum(dim=1, keepdim=True)).max()


def _distance(ends: torch.Tensor, places: torch.Tensor, in_px: int, out_px: int) -> tuple[torch.Tensor, torch.Tensor]:
    """How far `places` (of `in_px`) are from where `ends` (of `out_px`) lie, in widths of the filter: in 512ths, and the rest.

    Distances are whole numbers over a whole number; beyond the filter's reach all are alike.
    """
    width = _larger(2 * in_px, 2 * out_px)
    over = ((2 * places + 1) * out_px - (2 * ends + 1) * in_px).abs().clamp(max=2 * width).float()
    coarse = (over / width * 512).floor()
    left = over * 512 - coarse * width
    fine = (left / width * 2048).floor()
    left = left * 2048 - fine * width
    return coarse / 512, (fine + left / width) / 2**20


def _filtered(coarse: torch.Tensor, fine: torch.Tensor, filter_: Filter) -> tuple[torch.Tensor, torch.Tensor]:
    """The filter at the distance `coarse` + `fine`, in 65,536ths and the rest.

    The cubic one is 1 − t²(2.5 − 1.5 t) up to a distance of 1, and −s²(1 − s)/2 with s = 2 − t from there to 2.
    """
    if filter_ == "bilinear":
        value, rest = 1 - coarse, -fine
        reach = value + rest > 0
    else:
        near, reach = coarse < 1, coarse < 2
        at, at_rest = torch.where(near, coarse, 2 - coarse), torch.where(near, fine, -fine)
        times, times_rest = torch.where(near, 2.5 - 1.5 * at, 0.5 - 0.5 * at), torch.where(near, -1.5, -0.5) * at_rest
        square, square_rest = at * at, 2 * at * at_rest + at_rest * at_rest
        high, low = _split(square, 512)
        value = near.float() - high * times
        rest = -(square * times_rest + square_rest * times + square_rest * times_rest) - low * times
    zero = torch.zeros_like(value)
    value, more = _split(torch.where(reach, value, zero), 65536)
    return value, torch.where(reach, rest, zero) + more


def _split(values: torch.Tensor, parts: float) -> tuple[torch.Tensor, torch.Tensor]:
    """In so many parts of 1, rounded down, and the rest."""
    whole = (values * parts).floor() / parts
    return whole, values - whole


def _larger(first: int, second: int) -> int:
    larger: Any = torch.sym_max  # torch leaves it untyped
    return cast(int, larger(first, second))


def _centre(length_px: int, size_px: int) -> int:
    """`resize.centre_offset`, which rounds halves to the even number, in whole numbers."""
    half = (length_px - size_px) // 2
    return half + (length_px - size_px) % 2 * (half % 2)


def _rounded(coarse: torch.Tensor, fine: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    """Sums of the two parts of the weights, in units, rounded: what the coarse part has no room for is carried over to it."""
    carried = coarse + ((fine + unit / 2) / _PART).floor()
    return (carried / (unit / _PART)).floor().clamp(0, 255)
