"""How a scene is cut: windows, and the strips of them that are read together. Pure: a plan of tiles in, boxes out.

Strips follow the files' blocks, so that few blocks belong to two of them, and stay small enough that several fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from unchoke.core.boxes import Box, Edges, plan_starts
from unchoke.scenes.mask_sources import MaskSource
from unchoke.scenes.npz import Compress
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import Grid, SceneFacts
from unchoke.scenes.tiling.block_rows import SharedRows, block_shapes, pixel_bytes, plan_shared

STRIP_BYTES = 128 << 20
_MOST_ROWS = 16
"""Rows of windows that one strip may join to end where a block ends."""
_ROOM_FOR_WHOLE_ROWS = 4
_LOW_BLOCKS = 8
"""Blocks this many times lower than a window: decoding one of them twice is not worth larger strips."""


@dataclass(frozen=True)
class TileSpec:
    """How the tiles of one scene are made; a plain value that crosses to other processes. `folder` gets this scene's tiles."""

    facts: SceneFacts
    scale: SceneScale
    folder: str
    size_px: int = 512
    overlap_px: int = 0
    edges: Edges = "smaller"
    mask: MaskSource | None = None
    compress: Compress = "isal"
    store: Literal["float32", "raw"] = "float32"
    min_valid: float = 0.0


@dataclass(frozen=True)
class TileWindow:
    """One window of a scene. `row` and `col` count windows; a padded `box` may reach beyond the scene."""

    tile_id: str
    row: int
    col: int
    box: Box


@dataclass(frozen=True)
class Strip:
    """Windows that are read together: rows of windows over the whole width of the scene, or over part of it.

    `box` is what is read for them; it does not reach beyond the scene.
    """

    scene_id: str
    number: int
    box: Box
    windows: tuple[TileWindow, ...]


def plan_windows(spec: TileSpec) -> list[TileWindow]:
    """Every window of the scene, row by row."""
    return [window for line in _window_rows(spec) for window in line]


def plan_strips(facts: SceneFacts, spec: TileSpec, *, limit_bytes: int = STRIP_BYTES) -> list[Strip]:
    """The windows of a scene in strips, from top to bottom and left to right.

    A strip is one row of windows, or as many as follow the files' blocks, over the whole width or the part that stays below
    `limit_bytes`. Files that store whole rows are given more room: a part of a row costs as much to decode as all of it.
    """
    lines = _window_rows(spec)
    rows, columns = _choose_shape(facts, spec, lines[0], limit_bytes=limit_bytes)
    parts = [
        [window for line in lines[row : row + rows] for window in line[column : column + columns]]
        for row in range(0, len(lines), rows)
        for column in range(0, len(lines[0]), columns)
    ]
    return [Strip(facts.scene_id, number, _reading_box(part, facts.grid), tuple(part)) for number, part in enumerate(parts)]


def shared_rows(specs: Sequence[TileSpec], strips: Sequence[Strip]) -> SharedRows:
    """What the strips that are still to be run need of each other's rows, for `run_strip` in the threads of one process."""
    facts = {spec.facts.scene_id: spec.facts for spec in specs}
    pieces: dict[tuple[str, int], tuple[Box, ...]] = {}
    for scene_id in dict.fromkeys(strip.scene_id for strip in strips):
        mine = [strip for strip in strips if strip.scene_id == scene_id]
        planned = plan_shared(facts[scene_id], [strip.box for strip in mine])
        pieces.update({(scene_id, strip.number): boxes for strip, boxes in zip(mine, planned, strict=True)})
    return SharedRows(pieces)


def _window_rows(spec: TileSpec) -> list[list[TileWindow]]:
    grid, size_px = spec.facts.grid, spec.size_px
    tops = plan_starts(grid.height, size_px, spec.overlap_px)
    lefts = plan_starts(grid.width, size_px, spec.overlap_px)
    return [
        [_window(spec, row, col, Box(top, left, size_px, size_px)) for col, left in enumerate(lefts)]
        for row, top in enumerate(tops)
    ]


def _window(spec: TileSpec, row: int, col: int, box: Box) -> TileWindow:
    inside = box if spec.edges == "padded" else box.within(spec.facts.grid.height, spec.facts.grid.width)
    return TileWindow(f"{spec.facts.scene_id}_r{box.top:05d}_c{box.left:05d}", row, col, inside)


def _choose_shape(facts: SceneFacts, spec: TileSpec, line: Sequence[TileWindow], *, limit_bytes: int) -> tuple[int, int]:
    """Rows and columns of windows in a strip: by the largest blocks for which a strip one block wide fits."""
    for block_rows_px, block_columns_px in block_shapes(facts):
        rows = _rows_to_join(spec, block_rows_px)
        height = min(facts.grid.height, rows * (spec.size_px - spec.overlap_px) + spec.overlap_px)
        room_px = limit_bytes // pixel_bytes(facts) // height
        if block_columns_px >= facts.grid.width:
            room_px *= _ROOM_FOR_WHOLE_ROWS
        if min(facts.grid.width, max(block_columns_px, spec.size_px)) <= room_px:
            return rows, _columns_to_join(line, room_px, block_columns_px)
    room_px = limit_bytes // pixel_bytes(facts) // min(facts.grid.height, spec.size_px)
    return 1, _columns_to_join(line, room_px, block_px=1)


def _rows_to_join(spec: TileSpec, block_px: int) -> int:
    """Rows of windows so that a strip ends where a row of blocks ends; where none does, enough that few blocks are shared."""
    if block_px * _LOW_BLOCKS <= spec.size_px:
        return 1
    aligned = (count for count in range(1, _MOST_ROWS + 1) if not spec.overlap_px and count * spec.size_px % block_px == 0)
    step_px = spec.size_px - spec.overlap_px
    return next(aligned, 1 if block_px <= step_px else -(-2 * block_px // step_px))


def _columns_to_join(line: Sequence[TileWindow], room_px: int, block_px: int) -> int:
    """Windows of one row that are read together: all, or as many as fit, ending where a block ends if that costs little."""
    fitting = [count for count, window in enumerate(line, start=1) if window.box.right - line[0].box.left <= room_px]
    most = max(fitting, default=1)
    if most == len(line):
        return most
    aligned = (count for count in range(most, most // 2, -1) if line[count].box.left % block_px == 0)
    return next(aligned, most)


def _reading_box(windows: Sequence[TileWindow], grid: Grid) -> Box:
    top, left = min(window.box.top for window in windows), min(window.box.left for window in windows)
    bottom, right = max(window.box.bottom for window in windows), max(window.box.right for window in windows)
    return Box(top, left, bottom - top, right - left).within(grid.height, grid.width)
