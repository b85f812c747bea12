"""Photos as rows of the pixel cache: read, compared with their digest, decoded and drawn; here, or in reader processes.

In: paths, planned digests and a canvas. Out: uint8 rows as the canvas lays them out, or the reason why there is none. Keeping
rows is the cache's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from unchoke.core.ahead import map_ahead
from unchoke.core.clock import Loading, StageTally, during
from unchoke.jobs.loader_processes import LoaderProcesses, ReadChunk
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.image import DecodeError, Pixels, decode_image, read_planned
from unchoke.pixels.pixel_cache import PixelCache

RowFile = tuple[int, str, str]
"""A position in the cache, and the path and planned content of its photo ("" where nobody knows it)."""
_CHUNK = 16
_WRITERS = 4
Drawn = tuple[list[str], StageTally]
"""For each photo of a chunk the reason why it could not be drawn, "" where it was; and what its reader spent."""


def draw_row(path: str, content: str, canvas: Canvas) -> Pixels:
    """The row of one photo; a `DecodeError` where its file is not what was planned, or is no picture."""
    image = decode_image(read_planned(path, content), cover_px=canvas.cover_px)
    with during("transform"):
        return canvas.draw(image)


@dataclass(frozen=True)
class DrawProgram:
    """Draws rows into the memory of a reader process, one after the other."""

    canvas: Canvas

    def __call__(self, files: tuple[RowFile, ...], memory: memoryview) -> Drawn:
        import torch

        torch.set_num_threads(1)  # the readers are the parallelism
        rows, loading = _rows(memory, len(files), self.canvas), Loading()
        reasons: list[str] = []
        with loading.here():
            for row, (_, path, content) in zip(rows, files, strict=True):
                try:
                    row[...] = draw_row(path, content, self.canvas)
                    reasons.append("")
                except DecodeError as error:
                    reasons.append(str(error))
        return reasons, loading.tally()


def fill_in_processes(
    cache: PixelCache, canvas: Canvas, files: Sequence[RowFile], *, processes: int, loading: Loading
) -> Iterator[tuple[int, str]]:
    """Have reader processes draw `files`, and keep each; its position and "" or the reason as they come, in any order."""
    row_bytes = math.prod(canvas.row_shape) * 3
    readers: LoaderProcesses[tuple[RowFile, ...], Drawn] = LoaderProcesses(
        DrawProgram(canvas), processes=processes, region_bytes=_CHUNK * row_bytes
    )

    def keep(chunk: ReadChunk[tuple[RowFile, ...], Drawn]) -> tuple[list[tuple[int, str]], StageTally]:
        positions = [position for position, _, _ in chunk.task]
        if chunk.value is None:  # its process died: drawn by this one
            chunk.release()
            return [(position, cache.why_not(position)) for position in positions], {}
        reasons, tally = chunk.value
        with loading.here():
            for row, position, reason in zip(_rows(chunk.memory, len(positions), canvas), positions, reasons, strict=True):
                if not reason:
                    cache.keep(position, row)
        chunk.release()
        return list(zip(positions, reasons, strict=True)), tally

    with closing(readers):
        ahead = min(2 * _WRITERS, 2 * processes)  # fewer than there are pieces of memory, or all would be held
        chunks = readers.each(tuple(files[start : start + _CHUNK]) for start in range(0, len(files), _CHUNK))
        for found, tally in map_ahead(keep, chunks, threads=_WRITERS, ahead=ahead):
            loading.add_all(tally)
            yield from found


def _rows(memory: memoryview, num: int, canvas: Canvas) -> Pixels:
    height, width = canvas.row_shape
    return np.frombuffer(memory, np.uint8, count=num * height * width * 3).reshape(num, height, width, 3)
