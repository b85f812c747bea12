"""Blocks of files that the strips of a scene do not follow, decoded once for all threads.

To resample a window takes a margin of the pixels around it, so strips meet in the middle of the blocks of such files, whatever
their size; and a label raster has a layout of its own. Their blocks are kept here as the files have them, the most recently
used, within a bound.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box

KEPT_BYTES = 256 << 20
_LEAST_PX = 1 << 16
"""Blocks smaller than this are read several at once."""

_Key = tuple[str, int, Box]
_Block = NDArray[Any]


class SourceBlocks:
    """Decoded blocks by file, band and place. For threads of one process; not picklable.

    A block that one thread is reading is waited for by the others; if that fails, each tries it itself.
    """

    def __init__(self, *, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, Future[_Block]] = OrderedDict()

    def read(self, dataset: Any, path: str, number: int, box: Box) -> _Block:
        """The pixels of `box`, of band `number` of an open dataset."""
        out = np.empty((box.height, box.width), dataset.dtypes[number - 1])
        claimed, others = self._claim([(path, number, block) for block in _blocks(dataset, number, box)])
        try:
            while claimed:
                key, future = claimed[0]
                pixels = _read_block(dataset, number, key[2])
                future.set_result(pixels)
                claimed.pop(0)
                _copy_common(out, box, pixels, key[2])
        finally:
            self._disclaim(claimed)
        for key, future in others:
            try:
                pixels = future.result()
            except CancelledError:
                pixels = _read_block(dataset, number, key[2])
            _copy_common(out, box, pixels, key[2])
        self._trim()
        return out

    def _claim(self, keys: Sequence[_Key]) -> tuple[list[tuple[_Key, Future[_Block]]], list[tuple[_Key, Future[_Block]]]]:
        """What this thread reads, and what is there or promised by others."""
        mine, others = [], []
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    others.append((key, self._kept[key]))
                else:
                    self._kept[key] = Future()
                    mine.append((key, self._kept[key]))
        return mine, others

    def _disclaim(self, claimed: Sequence[tuple[_Key, Future[_Block]]]) -> None:
        for key, future in claimed:
            with self._lock:
                self._kept.pop(key, None)
            future.cancel()

    def _trim(self) -> None:
        with self._lock:
            sizes = {key: future.result().nbytes for key, future in self._kept.items() if future.done()}
            total = sum(sizes.values())
            for key, size in sizes.items():
                if total <= self._limit_bytes:
                    return
                total -= size
                del self._kept[key]


class SharedSource:
    """An open dataset whose bands are read through `SourceBlocks`; everything else is the dataset's own."""

    def __init__(self, dataset: Any, path: str, blocks: SourceBlocks) -> None:
        self._dataset = dataset
        self._path = path
        self._blocks = blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def read(self, number: int, *, window: Any) -> _Block:
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


def _read_block(dataset: Any, number: int, box: Box) -> _Block:
    from rasterio.windows import Window

    pixels: _Block = dataset.read(number, window=Window(box.left, box.top, box.width, box.height))
    return pixels


def _copy_common(out: _Block, box: Box, pixels: _Block, block: Box) -> None:
    both = box.common(block)
    if both is None:
        return
    to_row, to_column = both.top - box.top, both.left - box.left
    from_row, from_column = both.top - block.top, both.left - block.left
    out[to_row : to_row + both.height, to_column : to_column + both.width] = pixels[
        from_row : from_row + both.height, from_column : from_column + both.width
    ]
