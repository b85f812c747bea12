"""From a scene to its tiles, a strip of windows at a time: plan the windows, read once, mask, normalise, write.

A `TileSpec` comes in, NPZ files and their records go out. Strips follow the files' blocks, so that few blocks belong to two of
them, and stay small enough that several fit in memory; each is read with one call per file, and its windows are cut from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box, Edges, plan_starts
from unchoke.core.clock import Clock
from unchoke.scenes.handles import HandlePool, raster_env
from unchoke.scenes.mask_sources import LabelMask, MaskSource
from unchoke.scenes.npz import Compress, write_npz
from unchoke.scenes.raster import block_rows, read_box
from unchoke.scenes.scale import SceneScale, apply_scale, to_physical
from unchoke.scenes.scene_facts import IGNORE, Grid, SceneFacts, part_of
from unchoke.scenes.tiling.shared_blocks import SharedBlocks, SharedSource

STRIP_BYTES = 128 << 20
_MOST_ROWS = 16
"""Rows of windows that one strip may join to end where a block ends."""
_ROOM_FOR_WHOLE_ROWS = 4
_LOW_BLOCKS = 8
"""Blocks this many times lower than a window: decoding one of them twice is not worth larger strips."""
STAGES = ("open", "read", "normalise", "mask", "write")


@dataclass(frozen=True)
class TileSpec:
    """How the tiles of one scene are made; a plain value that crosses to other processes.

    `folder` gets the tiles of this scene; it counts from the folder that `run_strip` is given.
    """

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

    `box` is what is read for them; it does not reach beyond the scene. `own` is the part that no other strip reads.
    """

    scene_id: str
    number: int
    box: Box
    own: Box
    windows: tuple[TileWindow, ...]


def plan_strips(facts: SceneFacts, spec: TileSpec, *, limit_bytes: int = STRIP_BYTES) -> list[TileStrip]:
    """The windows of a scene in strips, from top to bottom and left to right.

    A strip is one row of windows, or as many as follow the files' blocks, over the whole width or the part that stays below
    `limit_bytes`. Files that store whole rows are given more room: a part of a row costs as much to decode as all of it.
    """
    lines, grid, overlap_px = plan_windows(spec), facts.grid, spec.overlap_px
    rows, columns = _choose_shape(facts, spec, lines[0], limit_bytes=limit_bytes)
    strips: list[TileStrip] = []
    for row in range(0, len(lines), rows):
        for column in range(0, len(lines[0]), columns):
            windows = [window for line in lines[row : row + rows] for window in line[column : column + columns]]
            box = reading_box(windows, grid)
            top, left = box.top + (overlap_px if row else 0), box.left + (overlap_px if column else 0)
            bottom = box.bottom - (overlap_px if row + rows < len(lines) else 0)
            right = box.right - (overlap_px if column + columns < len(lines[0]) else 0)
            own = Box(top, left, bottom - top, right - left)
            strips.append(TileStrip(facts.scene_id, len(strips), box, own, tuple(windows)))
    return strips


def plan_windows(spec: TileSpec) -> list[list[TileWindow]]:
    """Every window of the scene, in rows."""
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
    """Rows and columns of windows in a strip, by the blocks of all bands, else by those of bands that are not resampled."""
    size_px, step_px, height, width = spec.size_px, spec.size_px - spec.overlap_px, facts.grid.height, facts.grid.width
    pixel_bytes = 4 * facts.num_bands + 2  # bands as float32, validity and class
    plain = tuple(band for band in facts.bands if not band.warped) or facts.bands
    for bands in (facts.bands, plain):
        block_down_px, block_across_px = block_rows(replace(facts, bands=bands)), max(band.block[1] for band in bands)
        if block_down_px * _LOW_BLOCKS <= size_px:
            rows = 1
        else:  # so many that a strip ends where a row of blocks ends; if none does, enough that few blocks are shared
            aligned = (
                count for count in range(1, _MOST_ROWS + 1) if not spec.overlap_px and count * size_px % block_down_px == 0
            )
            rows = next(aligned, 1 if block_down_px <= step_px else -(-2 * block_down_px // step_px))
        room_px = limit_bytes // pixel_bytes // min(height, rows * step_px + spec.overlap_px)
        if block_across_px >= width:
            room_px *= _ROOM_FOR_WHOLE_ROWS
        if min(width, max(block_across_px, size_px)) <= room_px:
            return rows, _columns_to_join(line, room_px, block_across_px)
    return 1, _columns_to_join(line, limit_bytes // pixel_bytes // min(height, size_px), block_px=1)


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
    """One window as it was made. A skipped one has no file: `size_bytes` is 0, `file` and `digest` are empty."""

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
        counts = {int(label): int(number) for label, number in values["class_counts"].items()}
        return cls(**{**values, "box": Box(*values["box"]), "class_counts": counts})


@dataclass(frozen=True)
class StripResult:
    """The records of a strip's windows in order, and the seconds and calls of each stage of `STAGES`."""

    records: tuple[TileRecord, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)


def run_strip(
    strip: TileStrip,
    spec: TileSpec,
    *,
    root: Path | str = "",
    pool: HandlePool | None = None,
    shared: SharedBlocks | None = None,
) -> StripResult:
    """Write the tiles of a strip, each atomically, into the scene's folder below `root`.

    Without `pool` one is used that this process keeps; `shared` is for strips that run in threads of one process. The same strip
    gives the same bytes again. Tiles are not flushed to disk one by one: the record of the strip has their sizes and digests.
    A file that breaks or changed raises a `SceneError` that names it; a full disk a `MachineError`.
    """
    clock, facts, folder = Clock(STAGES), spec.facts, Path(root, spec.folder)
    with raster_env():
        files = _StripFiles(pool if pool is not None else _pool_of_process(), clock, strip, facts, shared)
        with clock.stage("read"):
            bands, valid = read_box(facts, strip.box, pool=files, dtype=spec.store)
        classes = None
        if isinstance(spec.mask, LabelMask):  # one read for all windows
            with clock.stage("mask"):
                classes = spec.mask.mask(facts, strip.box, bands, valid, files)
        # windows overlap, so the strip must stay as it was read: each tile is normalised in `scratch`
        scratch = np.empty(facts.num_bands * spec.size_px**2, bands.dtype)

        def make_tile(window: TileWindow) -> TileRecord:
            box, inside = window.box, window.box.within(facts.grid.height, facts.grid.width)
            part = inside.slices_in(strip.box)
            here, its_valid = bands[:, *part], valid[part]
            valid_share = int(np.count_nonzero(its_valid)) / (box.height * box.width)
            if valid_share < spec.min_valid:
                return TileRecord(window.tile_id, "", window.row, window.col, box, valid_share, {}, "", 0, skipped=True)
            mask, counts = None, {}
            if spec.mask is not None:
                with clock.stage("mask"):
                    if classes is not None:
                        mask = classes[part]
                    else:
                        physical = to_physical(here, facts) if spec.store == "raw" else here
                        mask = spec.mask.mask(facts, inside, physical, its_valid, files)
                    mask = _padded(mask, box, fill=IGNORE)
                    counts = _count_classes(mask)
            with clock.stage("normalise"):
                values = scratch[: len(here) * box.height * box.width].reshape(-1, box.height, box.width)
                inner = values[:, : inside.height, : inside.width]
                if inside != box:
                    values[...] = 0
                if spec.store == "raw":
                    inner[...] = here
                else:
                    apply_scale(here, spec.scale, its_valid, out=inner)
            with clock.stage("write"):
                arrays = _arrays(values, _padded(its_valid, box, fill=False), mask, box, spec)
                file = f"{window.tile_id}.npz"
                digest, size_bytes = write_npz(folder / file, arrays, compress=spec.compress, durable=False)
            return TileRecord(window.tile_id, file, window.row, window.col, box, valid_share, counts, digest, size_bytes)

        records = tuple(make_tile(window) for window in strip.windows)
    tally = clock.tally()
    return StripResult(records, {name: tally[name][0] for name in STAGES}, {name: tally[name][1] for name in STAGES})


class _StripFiles(HandlePool):
    """Another pool as a strip uses it: the time to hand out a file counts as `open`, and blocks are shared with other strips."""

    def __init__(
        self, pool: HandlePool, clock: Clock, strip: TileStrip, facts: SceneFacts, shared: SharedBlocks | None
    ) -> None:  # not HandlePool's own start: this one opens nothing itself
        self._pool, self._clock, self._shared = pool, clock, shared
        own = strip.own
        self._own_boxes = {
            band.path: Box(own.top + band.origin[0], own.left + band.origin[1], own.height, own.width)
            for band in facts.bands
            if not band.warped
        }

    @contextmanager
    def open(self, path: str, *, onto: Grid | None = None, resampling: str = "nearest") -> Iterator[Any]:
        with ExitStack() as stack:
            with self._clock.stage("open"):
                dataset = stack.enter_context(self._pool.open(path, onto=onto, resampling=resampling))
            if self._shared is not None and onto is None:
                dataset = SharedSource(dataset, path, self._own_boxes.get(path), self._shared)
            yield dataset

    def photo(self, path: str) -> NDArray[np.uint8]:
        return self._pool.photo(path)


@cache
def _pool_of_process() -> HandlePool:
    return HandlePool()


def _padded(array: NDArray[Any], box: Box, *, fill: int) -> NDArray[Any]:
    if array.shape == (box.height, box.width):
        return array
    whole = np.full((box.height, box.width), fill, array.dtype)
    whole[: array.shape[0], : array.shape[1]] = array
    return whole


def _arrays(
    values: NDArray[Any], valid: NDArray[Any], classes: NDArray[Any] | None, box: Box, spec: TileSpec
) -> dict[str, NDArray[Any]]:
    """The members of a tile's file, by name."""
    facts = spec.facts
    arrays: dict[str, NDArray[Any] | None] = {
        "bands": values,
        "mask": classes,
        "valid": valid,
        "window": np.array(box, np.int64),
        "transform": np.array(part_of(facts.grid, box).transform, np.float64),
        "crs": np.array(facts.grid.crs),
        "band_names": np.array(facts.band_names),
    }
    if spec.store == "raw":
        arrays["divide"], arrays["low"] = np.array(spec.scale.divide), np.array(spec.scale.low)
        arrays["scale"] = np.array([band.scale for band in facts.bands])
        arrays["offset"] = np.array([band.offset for band in facts.bands])
    return {name: array for name, array in arrays.items() if array is not None}


def _count_classes(classes: NDArray[np.uint8]) -> dict[int, int]:
    """Pixels of each class; most masks hold 0, 1 and none, which are counted without looking at every other value."""
    counts = {label: int(np.count_nonzero(classes == label)) for label in (0, 1, IGNORE)}
    if sum(counts.values()) < classes.size:
        counts = dict(enumerate(np.bincount(classes.ravel()).tolist()))
    return {label: number for label, number in counts.items() if number}
