"""From a scene to its tiles, a strip of windows at a time: plan the windows, read once, mask, normalise, write.

A `TileSpec` comes in, NPZ files and their records go out. Strips follow the files' blocks, so that few blocks belong to two of
them, and stay small enough that several fit in memory; each is read with one call per band, and its windows are cut from it.
Which scenes there are, in which order strips run, retries and manifests are the business of those who call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box, Edges, plan_starts
from unchoke.core.clock import Clock
from unchoke.scenes.handles import HandlePool, raster_env
from unchoke.scenes.mask_sources import MaskSource
from unchoke.scenes.npz import Compress, write_npz
from unchoke.scenes.raster import raw_dtype, read_box
from unchoke.scenes.scale import SceneScale, apply_scale, to_physical
from unchoke.scenes.scene_facts import IGNORE, Grid, SceneFacts, part_of
from unchoke.scenes.tiling.shared_blocks import (
    PixelBlock,
    SharedRows,
    SharedSource,
    SourceBlocks,
    block_shapes,
    pixel_bytes,
    plan_shared,
)

STRIP_BYTES = 128 << 20
_MOST_ROWS = 16
"""Rows of windows that one strip may join to end where a block ends."""
_ROOM_FOR_WHOLE_ROWS = 4
_LOW_BLOCKS = 8
"""Blocks this many times lower than a window: decoding one of them twice is not worth larger strips."""
STAGES = ("open", "read", "normalise", "mask", "write")


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
class TileStrip:
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


def plan_strips(facts: SceneFacts, spec: TileSpec, *, limit_bytes: int = STRIP_BYTES) -> list[TileStrip]:
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
    return [TileStrip(facts.scene_id, number, reading_box(part, facts.grid), tuple(part)) for number, part in enumerate(parts)]


def shared_rows(specs: Sequence[TileSpec], strips: Sequence[TileStrip]) -> SharedRows:
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

    def window(row: int, col: int, box: Box) -> TileWindow:
        inside = box if spec.edges == "padded" else box.within(grid.height, grid.width)
        return TileWindow(f"{spec.facts.scene_id}_r{box.top:05d}_c{box.left:05d}", row, col, inside)

    return [
        [window(row, col, Box(top, left, size_px, size_px)) for col, left in enumerate(lefts)] for row, top in enumerate(tops)
    ]


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


def reading_box(windows: Sequence[TileWindow], grid: Grid) -> Box:
    """What is read for these windows: the rectangle around them, as far as the scene goes."""
    top, left = min(window.box.top for window in windows), min(window.box.left for window in windows)
    bottom, right = max(window.box.bottom for window in windows), max(window.box.right for window in windows)
    return Box(top, left, bottom - top, right - left).within(grid.height, grid.width)


@dataclass(frozen=True)
class TileRecord:
    """What became of one window. A skipped one has no file: `size_bytes` is 0, `file` and `digest` are empty."""

    tile_id: str
    file: str
    row: int
    col: int
    box: Box
    valid_share: float
    class_counts: dict[int, int]
    digest: str
    size_bytes: int
    skipped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain values; `class_counts` by class number, 255 for pixels without a class."""
        counts = {str(label): number for label, number in self.class_counts.items()}
        return {**vars(self), "box": list(self.box), "class_counts": counts}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TileRecord:
        """What `to_dict` gave."""
        counts = {int(label): int(number) for label, number in values["class_counts"].items()}
        return cls(**{**values, "box": Box(*values["box"]), "class_counts": counts})


@dataclass(frozen=True)
class StripResult:
    """The records of a strip's windows in order, and the seconds and calls of each stage of `STAGES`."""

    records: tuple[TileRecord, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)


def run_strip(
    strip: TileStrip, spec: TileSpec, *, pool: HandlePool | None = None, shared: SharedRows | None = None
) -> StripResult:
    """Write the tiles of a strip into the scene's folder, each atomically, and say what was written.

    Without `pool` one is used that this process keeps; `shared` is for strips that run in threads of one process. The same strip
    gives the same bytes again. Tiles are not flushed to disk one by one: whoever records the strip has their sizes and digests.
    A file that breaks or changed raises a `SceneError` that names it; a full disk a `MachineError`.
    """
    clock = Clock(STAGES)
    with raster_env():
        sources = None if shared is None else shared.sources
        clocked = _ClockedPool(pool if pool is not None else _pool_of_process(), clock, _stray_files(spec.facts), sources)
        pixels = _read_strip(strip, spec, clocked, clock, shared)
        scratch = np.empty(spec.facts.num_bands * spec.size_px**2, pixels.bands.dtype)
        cutting = _StripCutter(strip.box, spec, pixels, scratch, clocked, clock)
        records = tuple(cutting.make_tile(window) for window in strip.windows)
    tally = clock.tally()
    return StripResult(records, {name: tally[name][0] for name in STAGES}, {name: tally[name][1] for name in STAGES})


class _ClockedPool(HandlePool):
    """Another pool, seen through: the time to hand out a file counts as `open`, and blocks of `stray` files are shared."""

    def __init__(self, pool: HandlePool, clock: Clock, stray: Collection[str], sources: SourceBlocks | None) -> None:
        # Not the pool's own start: this one opens nothing itself.
        self._pool = pool
        self._clock = clock
        self._stray = stray
        self._sources = sources

    @contextmanager
    def open(self, path: str, *, onto: Grid | None = None, resampling: str = "nearest") -> Iterator[Any]:
        with ExitStack() as stack:
            with self._clock.stage("open"):
                dataset = stack.enter_context(self._pool.open(path, onto=onto, resampling=resampling))
            if self._sources is not None and onto is None and path in self._stray:
                dataset = SharedSource(dataset, path, self._sources)
            yield dataset

    def photo(self, path: str) -> NDArray[np.uint8]:
        return self._pool.photo(path)


def _stray_files(facts: SceneFacts) -> set[str]:
    """Files whose blocks do not follow the strips: those of resampled bands, and a label raster of its own."""
    files = {band.path for band in facts.bands if band.warped}
    if facts.label is not None and all(band.path != facts.label.path for band in facts.bands):
        files.add(facts.label.path)
    return files


@cache
def _pool_of_process() -> HandlePool:
    return HandlePool()


def _read_strip(strip: TileStrip, spec: TileSpec, pool: HandlePool, clock: Clock, shared: SharedRows | None) -> PixelBlock:
    """The whole strip, piece by piece where neighbours need some of it too."""
    facts, box = spec.facts, strip.box
    dtype = raw_dtype(facts) if spec.store == "raw" else np.dtype(np.float32)
    has_classes = spec.mask is not None and spec.mask.reads_file
    whole = PixelBlock(
        np.empty((facts.num_bands, box.height, box.width), dtype),
        np.empty((box.height, box.width), np.bool_),
        np.empty((box.height, box.width), np.uint8) if has_classes else None,
    )

    def read(piece: Box) -> PixelBlock:
        """A piece that lies within the strip is read into its place."""
        place = whole.bands[:, *piece.slices_in(box)] if piece.common(box) == piece else None
        bands, valid = read_box(facts, piece, pool=pool, dtype=spec.store, out=place)
        return PixelBlock(bands, valid, _read_classes(spec, piece, bands, valid, pool, clock))

    def use(piece: Box, pixels: PixelBlock) -> None:
        inside = piece.common(box)
        if inside is None:
            return
        for target, source in zip(whole, pixels, strict=True):
            if target is not None and source is not None:
                _copy(target[..., *inside.slices_in(box)], source[..., *inside.slices_in(piece)])

    with clock.stage("read"):
        pieces = shared.pieces(strip.scene_id, strip.number) if shared is not None else ()
        if shared is None or not pieces:
            use(box, read(box))
        else:
            shared.take(strip.scene_id, pieces, read, use)
    return whole


def _read_classes(
    spec: TileSpec, box: Box, bands: NDArray[Any], valid: NDArray[np.bool_], pool: HandlePool, clock: Clock
) -> NDArray[np.uint8] | None:
    if spec.mask is None or not spec.mask.reads_file:
        return None
    with clock.stage("mask"):
        return spec.mask.mask(spec.facts, box, bands, valid, pool)


def _copy(target: NDArray[Any], source: NDArray[Any]) -> None:
    if target.__array_interface__["data"] != source.__array_interface__["data"]:
        target[...] = source


@dataclass(frozen=True)
class _StripCutter:
    """A strip that was read, and what it takes to make tiles of it. `scratch` holds the bands of one tile at a time."""

    box: Box
    spec: TileSpec
    pixels: PixelBlock
    scratch: NDArray[Any]
    pool: HandlePool
    clock: Clock

    def make_tile(self, window: TileWindow) -> TileRecord:
        """Mask, normalise and write one window; or skip it, where too little of it is valid."""
        spec, box = self.spec, window.box
        inside = box.within(spec.facts.grid.height, spec.facts.grid.width)
        rows, columns = inside.slices_in(self.box)
        bands, valid = self.pixels.bands[:, rows, columns], self.pixels.valid[rows, columns]
        valid_share = int(np.count_nonzero(valid)) / (box.height * box.width)
        if valid_share < spec.min_valid:
            return TileRecord(window.tile_id, "", window.row, window.col, box, valid_share, {}, "", 0, skipped=True)
        with self.clock.stage("mask"):
            classes = _padded(self._classes(inside, bands, valid), box, fill=IGNORE)
            counts = _count_classes(classes)
        with self.clock.stage("normalise"):
            values = self._values(bands, valid, box)
        with self.clock.stage("write"):
            arrays = _arrays(values, _padded(valid, box, fill=False), classes, box, spec)
            file = f"{window.tile_id}.npz"
            digest, size_bytes = write_npz(Path(spec.folder) / file, arrays, compress=spec.compress, durable=False)
        return TileRecord(window.tile_id, file, window.row, window.col, box, valid_share, counts, digest, size_bytes)

    def _classes(self, inside: Box, bands: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[np.uint8] | None:
        if self.pixels.classes is not None:
            return self.pixels.classes[inside.slices_in(self.box)]
        if self.spec.mask is None:
            return None
        physical = to_physical(bands, self.spec.facts) if self.spec.store == "raw" else bands
        return self.spec.mask.mask(self.spec.facts, inside, physical, valid, self.pool)

    def _values(self, bands: NDArray[Any], valid: NDArray[np.bool_], box: Box) -> NDArray[Any]:
        """The bands as they are stored, in `scratch`: windows overlap, so the strip itself must stay as it was read."""
        num_bands, height, width = bands.shape
        values = self.scratch[: num_bands * box.height * box.width].reshape(num_bands, box.height, box.width)
        inner = values[:, :height, :width]
        if inner.shape != values.shape:
            values[...] = 0
        if self.spec.store == "raw":
            inner[...] = bands
        else:
            apply_scale(bands, self.spec.scale, valid, out=inner)
        return values


def _padded(array: NDArray[Any] | None, box: Box, *, fill: int) -> NDArray[Any] | None:
    if array is None or array.shape == (box.height, box.width):
        return array
    whole = np.full((box.height, box.width), fill, array.dtype)
    whole[: array.shape[0], : array.shape[1]] = array
    return whole


def _arrays(
    values: NDArray[Any], valid: NDArray[Any] | None, classes: NDArray[Any] | None, box: Box, spec: TileSpec
) -> dict[str, NDArray[Any]]:
    """The members of a tile's file, by name."""
    place = part_of(spec.facts.grid, box)
    arrays: dict[str, NDArray[Any] | None] = {
        "bands": values,
        "mask": classes,
        "valid": valid,
        "window": np.array(box, np.int64),
        "transform": np.array(place.transform, np.float64),
        "crs": np.array(place.crs),
        "band_names": np.array(spec.facts.band_names),
    }
    if spec.store == "raw":
        arrays["divide"], arrays["low"] = np.array(spec.scale.divide), np.array(spec.scale.low)
        arrays["scale"] = np.array([band.scale for band in spec.facts.bands])
        arrays["offset"] = np.array([band.offset for band in spec.facts.bands])
    return {name: array for name, array in arrays.items() if array is not None}


def _count_classes(classes: NDArray[np.uint8] | None) -> dict[int, int]:
    """How many pixels each class has; most masks hold 0, 1 and none, which are counted without a look at every other value."""
    if classes is None:
        return {}
    counts = {label: int(np.count_nonzero(classes == label)) for label in (0, 1, IGNORE)}
    if sum(counts.values()) < classes.size:
        counts = dict(enumerate(np.bincount(classes.ravel()).tolist()))
    return {label: number for label, number in counts.items() if number}
