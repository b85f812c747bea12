"""Blocks of files that several strips of windows need, decoded once: the first strip reads them, the others get them from memory.

A file is stored in blocks, and a block is decoded whole. Blocks at the border of a strip are needed by its neighbours too, and so
are most blocks of resampled bands and label rasters, whose blocks follow no strip. Threads of one process share them here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

from unchoke.core.boxes import Box

KEPT_BYTES = 512 << 20
"""Beyond this the least recently used blocks are dropped; they are decoded again if another strip needs them."""
_LEAST_PX = 1 << 16
"""Blocks smaller than this are read several at once."""
Key = tuple[str, tuple[int, ...], Box]
"""A file, its bands, and the block or the pile of low blocks."""


class SharedBlocks:
    """Decoded blocks, for all threads of one process. Not picklable."""

    def __init__(self, *, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Future[NDArray[Any]]] = OrderedDict()

    def load(self, keys: Iterable[Key], read: Callable[[Key], NDArray[Any]]) -> dict[Key, NDArray[Any]]:
        """Every block: read here if this thread asks first, else as another thread read it.

        A thread reads all it claimed before it waits for others, so no two threads wait for each other. If a read fails, only
        its own thread fails; the others read the block themselves.
        """
        claimed: list[tuple[Key, Future[NDArray[Any]]]] = []
        promises: dict[Key, Future[NDArray[Any]]] = {}
        with self._lock:
            for key in keys:
                if key not in self._kept:
                    self._kept[key] = Future()
                    claimed.append((key, self._kept[key]))
                self._kept.move_to_end(key)
                promises[key] = self._kept[key]
        try:
            for key, promise in claimed:
                promise.set_result(read(key))
        finally:
            for key, promise in claimed:
                if not promise.done():
                    with self._lock:
                        self._kept.pop(key, None)
                    promise.cancel()
        found = {}
        for key, promise in promises.items():
            try:
                found[key] = promise.result()
            except CancelledError:
                found[key] = read(key)
        self._trim()
        return found

    def _trim(self) -> None:
        with self._lock:
            sizes = {key: promise.result().nbytes for key, promise in self._kept.items() if promise.done()}
            total = sum(sizes.values())
            for key, size in sizes.items():
                if total <= self._limit_bytes:
                    break
                total -= size
                del self._kept[key]


class SharedSource:
    """An open dataset whose `read` shares blocks; everything else is the dataset's own.

    Blocks inside `own` (in pixels of the file) are needed by this strip alone and read directly; None shares every block.
    """

    def __init__(self, dataset: Any, path: str, own: Box | None, blocks: SharedBlocks) -> None:
        self._dataset, self._path, self._own, self._blocks = dataset, path, own, blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def read(self, numbers: int | list[int], *, window: Window, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The window of one band (h, w) or of several (n, h, w), as rasterio's own `read` gives it."""
        bands = (numbers,) if isinstance(numbers, int) else tuple(numbers)
        box = Box(int(window.row_off), int(window.col_off), int(window.height), int(window.width))
        target = np.empty((len(bands), box.height, box.width), self._dataset.dtypes[bands[0] - 1]) if out is None else out
        inside, shared = self._split(bands[0], box)
        if inside is not None:
            self._dataset.read(list(bands), window=_window(inside), out=target[:, *inside.slices_in(box)])

        def read_block(key: Key) -> NDArray[Any]:
            pixels: NDArray[Any] = self._dataset.read(list(bands), window=_window(key[2]))
            return pixels

        for (_, _, block), pixels in self._blocks.load([(self._path, bands, block) for block in shared], read_block).items():
            both = box.common(block)
            assert both is not None, "blocks are those that the window touches"
            target[:, *both.slices_in(box)] = pixels[:, *both.slices_in(block)]
        return target[0] if isinstance(numbers, int) else target

    def _split(self, number: int, box: Box) -> tuple[Box | None, list[Box]]:
        """The part of `box` to read directly, and the blocks that cover the rest."""
        rows, columns = self._dataset.block_shapes[number - 1]
        rows *= max(1, _LEAST_PX // (rows * columns))
        height, width = self._dataset.height, self._dataset.width
        blocks = [
            Box(top, left, rows, columns).within(height, width)
            for top in range(box.top // rows * rows, box.bottom, rows)
            for left in range(box.left // columns * columns, box.right, columns)
        ]
        inside = [block for block in blocks if self._own is not None and block.common(self._own) == block]
        if not inside:
            return None, blocks
        first, last = inside[0], inside[-1]  # blocks form a grid, so those inside a box form a rectangle
        direct = Box(first.top, first.left, last.bottom - first.top, last.right - first.left).common(box)
        kept = set(inside)
        return direct, [block for block in blocks if block not in kept]


def _window(box: Box) -> Window:
    return Window(box.left, box.top, box.width, box.height)
