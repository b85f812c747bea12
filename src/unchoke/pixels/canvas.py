"""How one picture lies in a row of the pixel cache: training may crop it anywhere, and evaluation still gets its exact pixels.

In: a decoded picture. Out: a uint8 row of fixed size; and from rows, the network's evaluation input. Three kinds of rows:

- Whole pictures: the picture at the scale of the evaluation transform (short side `resize_px`, antialiased), all of it. The
  evaluation input is a crop of just these pixels, so it is equal to `fit_to_input`'s byte for byte and needs no row of its own;
  training crops any part of the picture, in its true proportions. Squashing pictures into one square would distort training
  and need a second row for evaluation. Pictures higher than wide lie on their side, so that one row size suits both; what a row
  leaves free repeats the picture's edge and is never shown. A last line of the row says how far the picture reaches and where the
  evaluation crop begins: it is stored and checked together with the pixels.
- Tiles: every tile at the network's input size, one below the other. Evaluation shows the row as it is.
- Whole pictures whose evaluation transform is an unusual one (squash, border): the input that transform gives.

Pictures longer than the row lose their ends, as they do in evaluation; `plan_canvas` sees to it that few do. Nothing is decoded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.pixels.image import DecodeError, Pixels
from unchoke.pixels.resize import Preprocess, centre_offset, fit_to_input, resize_short_side
from unchoke.pixels.tile_grid import TilePlan, cover_px, cut_tiles

RECIPE = "canvas 1"
_RATIOS = (1.0, 4 / 3, 3 / 2, 16 / 9, 2.0)
_TOLERANCE = 1.01
_SHARE = 0.95
_LINE_BYTES = 8


@dataclass(frozen=True)
class Canvas:
    """The layout of a row. `long_px` is the longer side of a whole picture's row; 0 where rows are network inputs."""

    tiles: TilePlan
    preprocess: Preprocess
    long_px: int = 0

    @property
    def row_shape(self) -> tuple[int, int]:
        """Height and width of a row, as the cache counts them."""
        _, height, width, _ = self.raw_shape
        return self.tiles.num_tiles * height, width

    @property
    def raw_shape(self) -> tuple[int, int, int, int]:
        """A row as (tiles, height, width, RGB): what training is handed."""
        side = self.preprocess.size_px
        if self.long_px:
            return 1, self.preprocess.resize_px + 1, self.long_px, 3
        return self.tiles.num_tiles, side, side, 3

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """A sample as evaluation shows it: (tiles, size, size, RGB)."""
        side = self.preprocess.size_px
        return self.tiles.num_tiles, side, side, 3

    @property
    def cover_px(self) -> int:
        """How much of a picture's short side decoding must keep, the same as for features."""
        return cover_px(self.tiles, self.preprocess)

    def to_dict(self) -> dict[str, Any]:
        """Everything the pixels of a row depend on."""
        shown = {name: value for name, value in self.preprocess.to_dict().items() if name not in ("mean", "std")}
        return {"recipe": RECIPE, "tiles": asdict(self.tiles), "preprocess": shown, "long_px": self.long_px}

    def draw(self, image_hwc: Pixels) -> Pixels:
        """The row of one picture."""
        if self.long_px:
            return _draw_whole(image_hwc, self.preprocess, self.long_px)
        if self.tiles.is_whole:
            return np.ascontiguousarray(fit_to_input(image_hwc, self.preprocess))
        return cut_tiles(image_hwc, self.tiles, self.preprocess).reshape(*self.row_shape, 3)

    def inputs(self, rows: Pixels) -> Pixels:
        """Rows as evaluation shows them, (n, *input_shape): for whole pictures exactly the pixels of `fit_to_input`."""
        if not self.long_px:
            return rows.reshape(len(rows), *self.input_shape)
        side = self.preprocess.size_px
        out: Pixels = np.empty((len(rows), 1, side, side, 3), np.uint8)
        for place, row in enumerate(rows):
            _, turned, top, left = _read_line(row)
            part = row[top : top + side, left : left + side]
            out[place, 0] = part.transpose(1, 0, 2) if turned else part
        return out


def plan_canvas(tiles: TilePlan, preprocess: Preprocess, sizes: Sequence[tuple[int, int]]) -> Canvas:
    """The layout for pictures of these sizes (width and height). Nearly all are held whole, those up to 2:1 at most."""
    if not tiles.is_whole or not preprocess.is_plain:
        return Canvas(tiles, preprocess)
    ratios = np.array([max(size) / min(size) for size in sizes if min(size) > 0] or [1.0])
    usual = float(np.quantile(ratios, _SHARE, method="higher")) / _TOLERANCE
    ratio = next((ratio for ratio in _RATIOS if usual <= ratio), _RATIOS[-1])
    return Canvas(tiles, preprocess, max(math.ceil(preprocess.resize_px * ratio), -(-_LINE_BYTES // 3)))


def _draw_whole(image_hwc: Pixels, preprocess: Preprocess, long_px: int) -> Pixels:
    resized = resize_short_side(image_hwc, preprocess.resize_px, interpolation=preprocess.interpolation)
    turned = resized.shape[0] > resized.shape[1]
    lying = resized.transpose(1, 0, 2) if turned else resized
    short, long = lying.shape[:2]
    start = max(0, centre_offset(long, long_px))
    kept = lying[:, start : start + long_px]
    top, left = centre_offset(short, preprocess.size_px), centre_offset(long, preprocess.size_px) - start
    if min(top, left) < 0 or left + preprocess.size_px > kept.shape[1]:
        raise DecodeError("unreadable", f"{image_hwc.shape[1]}×{image_hwc.shape[0]} pixels do not cover the network's input")
    row: Pixels = np.zeros((short + 1, long_px, 3), np.uint8)
    row[:short, : kept.shape[1]] = kept
    row[:short, kept.shape[1] :] = kept[:, -1:]
    line = np.array([kept.shape[1], turned, top, left], "<u2")
    row[-1].reshape(-1)[:_LINE_BYTES] = line.view(np.uint8)
    return row


def _read_line(row: Pixels) -> tuple[int, bool, int, int]:
    """How far the picture reaches, whether it lies on its side, and where the evaluation crop begins."""
    values: NDArray[np.uint16] = np.ascontiguousarray(row[-1]).reshape(-1)[:_LINE_BYTES].view("<u2")
    reach, turned, top, left = (int(value) for value in values)
    return reach, bool(turned), top, left
