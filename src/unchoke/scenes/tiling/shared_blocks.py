"""Blocks of files that several strips of windows need, decoded once: the first reads them and keeps them for the others.

A file is stored in blocks, and a block is decoded whole. Where strips overlap, or end within a block, the rows of blocks at their
border are cut out as pieces of their own (`plan_pieces`) and handed on in memory (`SharedRows`), between threads of one process.
Files whose blocks follow no strip (bands that are resampled, which takes a margin of pixels around a window, and label rasters)
are kept as they are stored, the most recently used, within a bound (`SourceBlocks`).
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.scenes.raster import block_rows
from unchoke.scenes.scene_facts import SceneFacts

KEPT_BYTES = 256 << 20
"""What may wait for neighbours at once; beyond it the oldest is let go and would be read again."""
PIECE_BYTES = KEPT_BYTES // 2
_LEAST_PX = 1 << 16
"""Blocks smaller than this are read several at once."""


class PixelBlock(NamedTuple):
    """A rectangle of a scene as it was read: (B, h, w), (h, w), and classes (h, w) where they come from a raster too."""

    bands: NDArray[Any]
    valid: NDArray[np.bool_]
    classes: NDArray[np.uint8] | None

    @property
    def nbytes(self) -> int:
        return self.bands.nbytes + self.valid.nbytes + (0 if self.classes is None else self.classes.nbytes)

    def copy(self) -> PixelBlock:
        """Arrays of its own: a view would hold on to the whole strip it was read into."""
        return PixelBlock(self.bands.copy(), self.valid.copy(), None if self.classes is None else self.classes.copy())


Key = TypeVar("Key", bound=tuple[Any, ...])
Kept = TypeVar("Kept", PixelBlock, NDArray[Any])


class _SharedReads(Generic[Key, Kept]):
    """What several threads of one process need, read by the first of them and kept for the others within a bound.

    If a read fails, only its reader fails: the others read it themselves. Not picklable.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Future[Kept]] = OrderedDict()

    def _share(
        self,
        keys: Sequence[Key],
        read: Callable[[Key], Kept],
        use: Callable[[Key, Kept], None],
        *,
        wanted: Callable[[Key], bool] | None = None,
        keep: Callable[[Kept], Kept] | None = None,
    ) -> None:
        """Hand each to `use`: read by this thread if it is the first to need it, else as another thread read it.

        `wanted` says what others need too (None: all of it), `keep` in which form it is kept. A thread reads all it claimed
        before it waits for others, so no two threads wait for each other.
        """
        claimed, others = self._claim(keys, wanted)
        try:
            while claimed:
                key, future = claimed[0]
                value = read(key)
                if future is not None:
                    future.set_result(value if keep is None else keep(value))
                claimed.pop(0)
                use(key, value)
        finally:
            for key, future in claimed:  # tell those who wait for it that it never will be read
                if future is not None:
                    with self._lock:
                        self._kept.pop(key, None)
                    future.cancel()
        for key, promise in others:
            try:
                value = promise.result()
            except CancelledError:
                value = read(key)
            use(key, value)

    def _claim(
        self, keys: Sequence[Key], wanted: Callable[[Key], bool] | None
    ) -> tuple[list[tuple[Key, Future[Kept] | None]], list[tuple[Key, Future[Kept]]]]:
        """What this thread reads, first what others need too, with a promise to them; and what others promised."""
        mine: list[tuple[Key, Future[Kept] | None]] = []
        others = []
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    others.append((key, self._kept[key]))
                elif wanted is None or wanted(key):
                    self._kept[key] = Future()
                    mine.append((key, self._kept[key]))
                else:
                    mine.append((key, None))
        return sorted(mine, key=lambda claim: claim[1] is None), others

    def _trim(self) -> None:
        """Beyond the limit the least recently used of what was read goes. The caller holds the lock."""
        sizes = {key: future.result().nbytes for key, future in self._kept.items() if future.done()}
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total <= self._limit_bytes:
                return
            total -= size
            del self._kept[key]


class SourceBlocks(_SharedReads[tuple[str, int, Box], NDArray[Any]]):
    """Decoded blocks by file, band and place, the most recently used."""

    def __init__(self, *, limit_bytes: int = KEPT_BYTES) -> None:
        super().__init__(limit_bytes)

    def read(self, dataset: Any, path: str, number: int, box: Box) -> NDArray[Any]:
        """The pixels of `box`, of band `number` of an open dataset."""
        from rasterio.windows import Window

        out = np.empty((box.height, box.width), dataset.dtypes[number - 1])

        def read_block(key: tuple[str, int, Box]) -> NDArray[Any]:
            block = key[2]
            pixels: NDArray[Any] = dataset.read(number, window=Window(block.left, block.top, block.width, block.height))
            return pixels

        def copy(key: tuple[str, int, Box], pixels: NDArray[Any]) -> None:
            if both := box.common(key[2]):
                out[both.slices_in(box)] = pixels[both.slices_in(key[2])]

        self._share([(path, number, block) for block in _blocks(dataset, number, box)], read_block, copy)
        with self._lock:
            self._trim()
        return out


class SharedSource:
    """An open dataset whose bands are read through `SourceBlocks`; everything else is the dataset's own."""

    def __init__(self, dataset: Any, path: str, blocks: SourceBlocks) -> None:
        self._dataset = dataset
        self._path = path
        self._blocks = blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def read(self, number: int, *, window: Any) -> NDArray[Any]:
        """One band's window, as rasterio's own `read` gives it."""
        box = Box(int(window.row_off), int(window.col_off), int(window.height), int(window.width))
        return self._blocks.read(self._dataset, self._path, number, box)


def _blocks(dataset: Any, number: int, box: Box) -> list[Box]:
    """The blocks, or piles of low ones, that a box touches, as far as the file goes."""
    rows, columns = dataset.block_shapes[number - 1]
    rows *= max(1, _LEAST_PX // (rows * columns))
    return [
        Box(top, left, rows, columns).within(dataset.height, dataset.width)
        for top in range(box.top // rows * rows, box.bottom, rows)
        for left in range(box.left // columns * columns, box.right, columns)
    ]


def block_shapes(facts: SceneFacts) -> list[tuple[int, int]]:
    """Rows and columns that whole blocks fill: of every band, and where that is another size, of those that are not resampled."""
    own = [band for band in facts.bands if not band.warped] or list(facts.bands)
    every = (block_rows(facts), max(band.block[1] for band in facts.bands))
    return list(dict.fromkeys([every, (block_rows(replace(facts, bands=tuple(own))), max(band.block[1] for band in own))]))


def plan_shared(facts: SceneFacts, boxes: Sequence[Box], *, limit_bytes: int = PIECE_BYTES) -> list[tuple[Box, ...]]:
    """Each box as the pieces it is read in; in one, where pieces that are shared would be larger than `limit_bytes`.

    Bands that are resampled play no part: their blocks are shared as the files have them (`SourceBlocks`).
    """
    alone: list[tuple[Box, ...]] = [(box,) for box in boxes]
    if all(band.warped for band in facts.bands):
        return alone
    planned = plan_pieces(facts, boxes, block_shape=block_shapes(facts)[-1])
    users = Counter(piece for pieces in planned for piece in pieces)
    largest_px = max((piece.height * piece.width for piece, count in users.items() if count > 1), default=0)
    return planned if largest_px * pixel_bytes(facts) <= limit_bytes else alone


def pixel_bytes(facts: SceneFacts) -> int:
    """What one pixel takes: its bands as float32, validity and class."""
    return 4 * facts.num_bands + 2


def plan_pieces(facts: SceneFacts, boxes: Sequence[Box], *, block_shape: tuple[int, int]) -> list[tuple[Box, ...]]:
    """Each box as pieces that cover it: those that several boxes need are made of whole blocks, the same for each of them.

    A piece that only one box needs is cut to that box; one that is shared may reach beyond it.
    """
    rows, columns = block_shape
    top, left = next((band.origin for band in facts.bands if not band.warped), (0, 0))
    down = _segments({(box.top, box.bottom) for box in boxes}, block_px=rows, offset_px=top, length_px=facts.grid.height)
    across = _segments({(box.left, box.right) for box in boxes}, block_px=columns, offset_px=left, length_px=facts.grid.width)
    return [
        tuple(
            Box(row[0], column[0], row[1] - row[0], column[1] - column[0])
            for row, column in product(down[box.top, box.bottom], across[box.left, box.right])
        )
        for box in boxes
    ]


def _segments(
    intervals: Iterable[tuple[int, int]], *, block_px: int, offset_px: int, length_px: int
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For each interval the segments that cover it. They are cut where the set of intervals that need a block changes."""
    needed = {one: _whole_blocks(one, block_px=block_px, offset_px=offset_px, length_px=length_px) for one in intervals}
    cuts = sorted({cut for blocks in needed.values() for cut in blocks})
    users = {segment: sum(_covers(blocks, segment) for blocks in needed.values()) for segment in pairwise(cuts)}
    return {
        one: [
            segment if count > 1 else (max(segment[0], one[0]), min(segment[1], one[1]))
            for segment, count in users.items()
            if count and _covers(blocks, segment)
        ]
        for one, blocks in needed.items()
    }


def _whole_blocks(interval: tuple[int, int], *, block_px: int, offset_px: int, length_px: int) -> tuple[int, int]:
    first = (interval[0] + offset_px) // block_px * block_px - offset_px
    last = -(-(interval[1] + offset_px) // block_px) * block_px - offset_px
    return max(0, first), min(length_px, last)


def _covers(blocks: tuple[int, int], segment: tuple[int, int]) -> bool:
    return blocks[0] <= segment[0] and segment[1] <= blocks[1]


class SharedRows(_SharedReads[tuple[str, Box], PixelBlock]):
    """Pieces on their way from the strip that read them to those that still need them.

    `pieces` are those of every strip that is to be run, by scene and number of the strip. A piece is kept while another of these
    strips needs it. `sources` is for files whose blocks follow no strip: bands that are resampled, labels.
    """

    def __init__(self, pieces: Mapping[tuple[str, int], tuple[Box, ...]], *, limit_bytes: int = KEPT_BYTES) -> None:
        super().__init__(limit_bytes)
        self._pieces = pieces
        self._waiting = Counter((scene_id, box) for (scene_id, _), boxes in pieces.items() for box in boxes)
        self.sources = SourceBlocks()

    def pieces(self, scene_id: str, number: int) -> tuple[Box, ...]:
        """What to read for a strip; nothing for one that was not announced."""
        return self._pieces.get((scene_id, number), ())

    def take(
        self, scene_id: str, boxes: Sequence[Box], read: Callable[[Box], PixelBlock], use: Callable[[Box, PixelBlock], None]
    ) -> None:
        """Hand each piece to `use`, read by this strip or by another; one strip less needs them then."""
        keys = [(scene_id, box) for box in boxes]
        self._share(
            keys,
            lambda key: read(key[1]),
            lambda key, pixels: use(key[1], pixels),
            wanted=lambda key: self._waiting[key] > 1,
            keep=PixelBlock.copy,
        )
        with self._lock:
            for key in keys:
                self._waiting[key] -= 1
                if self._waiting[key] <= 0:
                    self._kept.pop(key, None)
            self._trim()
