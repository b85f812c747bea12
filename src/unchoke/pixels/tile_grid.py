"""One picture as several tiles: streams side by side, and a grid on each.

In: a plan (how many streams, rows and columns) and a picture, or only its size. Out: windows that cover every pixel exactly once,
and the tiles themselves, each resized whole to the network's input square. Sides that do not divide evenly give tiles that differ
by one pixel; nothing is cropped, padded or overlapped. Which network sees the tiles, and how its answers are merged, is decided
elsewhere.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import hash_int
from unchoke.pixels.image import DecodeError, Pixels
from unchoke.pixels.resize import Preprocess, resize

COVER = 2.0
"""A JPEG is decoded smaller only while it keeps this many times the side needed: at just enough, features drift too far."""
_UINT8_RESIZES = ("bilinear", "bicubic")
RECIPE = "random-resized-crop 0.35–1.0 of the area, sides 3:4 to 4:3, mirrored half the time"
_AREA = (0.35, 1.0)
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10


@dataclass(frozen=True)
class Window:
    """A rectangle of a picture, in pixels, perhaps mirrored left to right."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool = False


def plan_view(sample_id: str, number: int, *, height: int, width: int) -> Window:
    """The window that view `number` (from 1) of this sample shows; number 0 is the whole picture."""
    if number == 0:
        return Window(0, 0, height, width)
    random = np.random.Generator(np.random.PCG64(hash_int("view", sample_id, number)))
    mirrored = bool(random.random() < 0.5)
    for _ in range(_TRIES):
        area = height * width * random.uniform(*_AREA)
        ratio = math.exp(random.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            top = int(random.integers(0, height - high + 1))
            left = int(random.integers(0, width - wide + 1))
            return Window(top, left, high, wide, mirrored)
    side = min(height, width)
    return Window((height - side) // 2, (width - side) // 2, side, side, mirrored)


@dataclass(frozen=True)
class TilePlan:
    """`streams` vertical strips, left to right, each cut into `rows` × `cols` tiles. The default is the whole picture."""

    streams: int = 1
    rows: int = 1
    cols: int = 1

    def __post_init__(self) -> None:
        if min(self.streams, self.rows, self.cols) < 1:
            raise UsageError(
                f"a picture cannot be cut into {self.text} tiles",
                code="bad-tiles",
                why="streams, rows and columns count from one",
                try_="--streams 2 --tiles 2x2, or neither for the whole picture",
            )

    @property
    def num_tiles(self) -> int:
        """Tiles of one picture, over all streams."""
        return self.streams * self.rows * self.cols

    @property
    def is_whole(self) -> bool:
        return self.num_tiles == 1

    @property
    def least_px(self) -> tuple[int, int]:
        """Columns and rows that a picture must have: a pixel for each tile."""
        return self.streams * self.cols, self.rows

    @property
    def text(self) -> str:
        """``2×(2×2)``: streams, then rows and columns of each."""
        return f"{self.streams}×({self.rows}×{self.cols})"

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def plan_tiles(*, streams: int, tiles: str) -> TilePlan:
    """The plan of ``--streams 2 --tiles 2x2``."""
    rows, cols = parse_tiles(tiles)
    return TilePlan(streams, rows, cols)


def parse_tiles(text: str) -> tuple[int, int]:
    """``"2x3"`` to (2, 3): rows and columns."""
    match = re.fullmatch(r"\s*([0-9]{1,4})\s*[x×X]\s*([0-9]{1,4})\s*", text)
    if match is None or int(match[1]) < 1 or int(match[2]) < 1:
        raise UsageError(
            f"not a grid of tiles: {text!r}",
            code="bad-tiles",
            why="a grid is rows x columns, each at least 1",
            try_="--tiles 2x2",
        )
    return int(match[1]), int(match[2])


def edges(length_px: int, parts: int) -> list[tuple[int, int]]:
    """`parts` neighbouring (start, stop) pairs that cover 0…`length_px`; they differ by at most one pixel."""
    if length_px < parts:
        raise ValueError(f"{length_px} pixels cannot be divided into {parts} parts")
    bounds = [length_px * number // parts for number in range(parts + 1)]
    return list(pairwise(bounds))


def tile_windows(plan: TilePlan, height: int, width: int) -> list[Window]:
    """The windows of every tile: stream by stream from left to right, row by row in a stream, left to right in a row."""
    return [
        Window(top, left + inner_left, bottom - top, inner_right - inner_left)
        for left, right in edges(width, plan.streams)
        for top, bottom in edges(height, plan.rows)
        for inner_left, inner_right in edges(right - left, plan.cols)
    ]


def cover_px(plan: TilePlan, preprocess: Preprocess, *, times: float = COVER) -> int:
    """The short side a decoded picture must keep so that its tiles have `times` the pixels per side that the network sees."""
    across = max(plan.rows, plan.streams * plan.cols)
    return int((preprocess.resize_px if plan.is_whole else across * preprocess.size_px) * times)


def cut_tiles(image_hwc: Pixels, plan: TilePlan, preprocess: Preprocess) -> Pixels:
    """(tiles, size, size, 3): every tile of the picture, resized whole to the network's input. A picture too small is refused."""
    height, width = image_hwc.shape[:2]
    if width < plan.least_px[0] or height < plan.least_px[1]:
        raise DecodeError("unreadable", f"{width}×{height} pixels are too few for {plan.text} tiles")
    side = preprocess.size_px
    how = preprocess.interpolation if preprocess.interpolation in _UINT8_RESIZES else "bicubic"
    tiles = np.empty((plan.num_tiles, side, side, 3), np.uint8)
    for number, window in enumerate(tile_windows(plan, height, width)):
        part = image_hwc[window.top : window.top + window.height, window.left : window.left + window.width]
        tiles[number] = resize(np.ascontiguousarray(part), side, side, interpolation=how)
    return tiles
