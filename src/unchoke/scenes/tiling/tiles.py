"""From a scene to its tiles, a strip of windows at a time: read once, mask, normalise, write.

A strip, planned by `strips`, comes in; NPZ files and their records go out. It is read with one call per band and stays in memory
while its windows are cut from it. Which scenes there are, in which order strips run, retries and manifests are the business of
those who call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.core.clock import Clock
from unchoke.scenes.handles import HandlePool, raster_env
from unchoke.scenes.npz import write_npz
from unchoke.scenes.raster import raw_dtype, read_box
from unchoke.scenes.scale import apply_scale, to_physical
from unchoke.scenes.scene_facts import IGNORE, Grid, SceneFacts
from unchoke.scenes.tiling.block_rows import Pixels, SharedRows
from unchoke.scenes.tiling.row_sources import SharedSource, SourceBlocks
from unchoke.scenes.tiling.strips import Strip, TileSpec, TileWindow, plan_strips, plan_windows, shared_rows

__all__ = ["STAGES", "Strip", "StripResult", "TileRecord", "TileSpec", "TileWindow", "plan_strips", "plan_windows", "run_strip",
           "shared_rows"]  # fmt: skip

STAGES = ("open", "read", "normalise", "mask", "write")


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


@dataclass(frozen=True)
class StripResult:
    """The records of a strip's windows in order, and the seconds and calls of each stage of `STAGES`."""

    records: tuple[TileRecord, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)


def run_strip(strip: Strip, spec: TileSpec, *, pool: HandlePool | None = None, shared: SharedRows | None = None) -> StripResult:
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
        cutting = _Cutting(strip.box, spec, pixels, scratch, clocked, clock)
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


def _read_strip(strip: Strip, spec: TileSpec, pool: HandlePool, clock: Clock, shared: SharedRows | None) -> Pixels:
    """The whole strip, piece by piece where neighbours need some of it too."""
    facts, box = spec.facts, strip.box
    dtype = raw_dtype(facts) if spec.store == "raw" else np.dtype(np.float32)
    has_classes = spec.mask is not None and spec.mask.reads_file
    whole = Pixels(
        np.empty((facts.num_bands, box.height, box.width), dtype),
        np.empty((box.height, box.width), np.bool_),
        np.empty((box.height, box.width), np.uint8) if has_classes else None,
    )

    def read(piece: Box) -> Pixels:
        """A piece that lies within the strip is read into its place."""
        place = _part(whole.bands, piece, box) if piece.common(box) == piece else None
        bands, valid = read_box(facts, piece, pool=pool, dtype=spec.store, out=place)
        return Pixels(bands, valid, _read_classes(spec, piece, bands, valid, pool, clock))

    def use(piece: Box, pixels: Pixels) -> None:
        inside = piece.common(box)
        if inside is None:
            return
        for target, source in zip(whole, pixels, strict=True):
            if target is not None and source is not None:
                _copy(_part(target, inside, box), _part(source, inside, piece))

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


def _part(array: NDArray[Any], part: Box, whole: Box) -> NDArray[Any]:
    """A view of `part` in the last two axes of an array that covers `whole`."""
    top, left = part.top - whole.top, part.left - whole.left
    return array[..., top : top + part.height, left : left + part.width]


def _copy(target: NDArray[Any], source: NDArray[Any]) -> None:
    if target.__array_interface__["data"] != source.__array_interface__["data"]:
        target[...] = source


@dataclass(frozen=True)
class _Cutting:
    """A strip that was read, and what it takes to make tiles of it. `scratch` holds the bands of one tile at a time."""

    box: Box
    spec: TileSpec
    pixels: Pixels
    scratch: NDArray[Any]
    pool: HandlePool
    clock: Clock

    def make_tile(self, window: TileWindow) -> TileRecord:
        """Mask, normalise and write one window; or skip it, where too little of it is valid."""
        spec, box = self.spec, window.box
        inside = box.within(spec.facts.grid.height, spec.facts.grid.width)
        bands, valid = _part(self.pixels.bands, inside, self.box), _part(self.pixels.valid, inside, self.box)
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
            return _part(self.pixels.classes, inside, self.box)
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
    grid = spec.facts.grid
    a, b, c, d, e, f = grid.transform
    place = (a, b, c + a * box.left + b * box.top, d, e, f + d * box.left + e * box.top)
    arrays: dict[str, NDArray[Any] | None] = {
        "bands": values,
        "mask": classes,
        "valid": valid,
        "window": np.array(box, np.int64),
        "transform": np.array(place, np.float64),
        "crs": np.array(grid.crs),
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
