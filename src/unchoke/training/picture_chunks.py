"""Pictures in chunks, and what a model answers to one: the same chunks and the same answers wherever they are worked out.

In: paths in their order. Out: for each chunk the outputs of its pictures, and the reasons of those that could not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.fingerprint import digest_bytes
from unchoke.features.extractor import decode_views
from unchoke.pixels.image import DecodeError, Pixels, read_bytes
from unchoke.training.open_models import OpenModel


@dataclass(frozen=True)
class PictureChunk:
    """Pictures that are answered together; `first` is the place of the first among all."""

    first: int
    paths: tuple[str, ...]

    @property
    def placed(self) -> list[tuple[int, str]]:
        """Each path with its place among all."""
        return list(enumerate(self.paths, start=self.first))


@dataclass(frozen=True, eq=False)
class ChunkAnswer:
    """One row of `outputs` for each picture of the chunk that could be read, in order; `broken` has the reasons of the others."""

    chunk: PictureChunk
    outputs: NDArray[np.float32]
    broken: dict[str, str]


def cut_chunks(paths: Sequence[str], size: int) -> list[PictureChunk]:
    """All pictures, `size` at a time: which go together depends on their order alone, and so do the last bits of answers."""
    return [PictureChunk(first, tuple(paths[first : first + size])) for first in range(0, len(paths), size)]


def show_picture(model: OpenModel, path: str, read: Callable[[str], bytes]) -> list[Pixels] | DecodeError:
    """A picture as the model wants it, or why there is none."""
    try:
        data = read(path)
        return decode_views(data, digest_bytes(data), model.recipe)[: model.shown]  # by content: a path is spelt in many ways
    except DecodeError as error:
        return error


def answer_chunk(model: OpenModel, chunk: PictureChunk, shown: Sequence[list[Pixels] | DecodeError]) -> ChunkAnswer:
    """What the model says of a chunk whose pictures were read and decoded."""
    pairs = list(zip(chunk.paths, shown, strict=True))
    broken = {path: str(views) for path, views in pairs if isinstance(views, DecodeError)}
    good = [path for path, views in pairs if not isinstance(views, DecodeError)]
    pixels = [view for _, views in pairs if not isinstance(views, DecodeError) for view in views]
    outputs = model.answer(good, np.stack(pixels)) if good else np.empty((0, len(model.names)), np.float32)
    return ChunkAnswer(chunk, outputs, broken)


def answer_here(
    model: OpenModel, chunks: Sequence[PictureChunk], read: Callable[[str], bytes] = read_bytes
) -> Iterator[ChunkAnswer]:
    """The answers of this machine; later pictures are read and decoded meanwhile."""
    pictures = (path for chunk in chunks for path in chunk.paths)
    ahead = map_ahead(lambda path: show_picture(model, path, read), pictures, threads=2, ahead=min(32, 2 * model.chunk))
    with closing(ahead):
        for chunk in chunks:
            yield answer_chunk(model, chunk, list(islice(ahead, len(chunk.paths))))
