"""Photos read by processes of their own: the programs they run, and the source that `stream.py` takes from.

In: items with the paths of their files. Out: their inputs, decoded and resized on every core; or, where a card decodes, the bytes
of each file, read, compared with the planned digest and found to be whole. Either lies in shared memory. Reading for a card needs
no torch: such readers start in a tenth of a second.
"""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unchoke.core.clock import Loading, StageTally, during
from unchoke.core.errors import MachineError
from unchoke.data.inspect_samples import FOR_FILES
from unchoke.jobs.loader_processes import LoaderProcesses, ReadChunk
from unchoke.pixels.image import DecodeError, Pixels, jpeg_shape, orientation, read_planned

if TYPE_CHECKING:
    from unchoke.features.recipe import PictureRecipe
    from unchoke.features.stream import Found, StreamChunk, StreamItem

FOR_CARD = (*FOR_FILES, "unchoke.features.reader_source")
FOR_PIXELS = (*FOR_CARD, "torch", "unchoke.features.worker_imports")
"""What readers import beforehand, for one kind of work and the other."""
_CHUNK = 16
_REGION_BYTES = 16_000_000
_ATTEMPTS = 3

ReaderTask = tuple[tuple[str, str, str], ...]
"""Items: id, path and planned content."""


@dataclass(frozen=True, slots=True)
class FoundPiece:
    """Where an item lies in a chunk's memory, and what a card has to know of it."""

    offset: int
    num_bytes: int
    for_card: bool = False
    height: int = 0
    width: int = 0
    orientation: int = 1


ItemAnswer = FoundPiece | str | None
"""None: there was no room for it beside the others."""
Answer = tuple[list[ItemAnswer], StageTally]


def _answer(task: ReaderTask, memory: memoryview, read: Callable[[tuple[str, str, str], memoryview], tuple[int, Any]]) -> Answer:
    """What `read` makes of each item, one after the other in the memory; a reason where there is nothing to make of it."""
    loading, out, offset = Loading(), list[ItemAnswer](), 0
    with loading.here():
        for item in task:
            try:
                num_bytes, about = read(item, memory[offset:])
            except DecodeError as error:
                out.append(str(error))
                continue
            out.append(None if about is None else FoundPiece(offset, num_bytes, *about))
            offset += num_bytes
    return out, loading.tally()


@dataclass(frozen=True)
class PixelProgram:
    """Decodes pictures to inputs. The recipe is pickled: opening it loads torch."""

    recipe: bytes

    def __call__(self, task: ReaderTask, memory: memoryview) -> Answer:
        return _answer(task, memory, self._read)

    def _read(self, item: tuple[str, str, str], memory: memoryview) -> tuple[int, Any]:
        from unchoke.features.extractor import load_views

        item_id, path, content = item
        views = load_views(path, item_id, content, _opened(self.recipe))
        num_bytes = sum(view.nbytes for view in views)
        if num_bytes > len(memory):
            return 0, None
        with during("hand over"):
            np.stack(views, out=np.frombuffer(memory[:num_bytes], np.uint8).reshape(len(views), *views[0].shape))
        return num_bytes, ()


@cache
def _opened(recipe: bytes) -> PictureRecipe:
    import torch

    torch.set_num_threads(1)  # the readers are the parallelism
    found: PictureRecipe = pickle.loads(recipe)
    return found


@dataclass(frozen=True)
class CardProgram:
    """Reads files for a card to decode, and makes sure that they are what was planned and are whole."""

    def __call__(self, task: ReaderTask, memory: memoryview) -> Answer:
        return _answer(task, memory, self._read)

    def _read(self, item: tuple[str, str, str], memory: memoryview) -> tuple[int, Any]:
        _, path, content = item
        data = read_planned(path, content)
        if len(data) > len(memory):
            return 0, None
        about = examine(data)
        with during("hand over"):
            memory[: len(data)] = data
        return len(data), about


def examine(data: bytes) -> tuple[bool, int, int, int]:
    """Whether a card may decode the file, its height and width as stored, and its EXIF orientation."""
    with during("decode"):
        shape = jpeg_shape(data)
        return (False, 0, 0, 1) if shape is None else (True, *shape, orientation(data))


@dataclass(frozen=True)
class CardReader:
    """The same in threads of this process: an item's file, ready for a card, or the reason why not."""

    paths: Mapping[str, str]

    def __call__(self, item_id: str, content: str) -> Found:
        from unchoke.features.card_decoder import EncodedPicture

        try:
            data = read_planned(self.paths[item_id], content)
            return EncodedPicture(data, *examine(data))
        except DecodeError as error:
            return str(error)


class PictureReaders:
    """The source: photos as reader processes read them, by `program`. `input_bytes` is what one photo's inputs take, 0 for files.

    Photos that did not fit beside others are read again by themselves, and so are those whose reader died: one that ends its
    reader every time is set aside.
    """

    def __init__(
        self, program: PixelProgram | CardProgram, paths: Mapping[str, str], *, processes: int, input_shape: tuple[int, ...] = ()
    ) -> None:
        self._paths, self.readers, self._input_shape = paths, processes, input_shape
        item_bytes = math.prod(input_shape) if input_shape else 0
        region = max(_REGION_BYTES, item_bytes)
        self.chunk_size = max(1, min(_CHUNK, region // max(1, item_bytes)))
        self._readers: LoaderProcesses[ReaderTask, Answer] = LoaderProcesses(program, processes=processes, region_bytes=region)
        self._items: dict[ReaderTask, Sequence[StreamItem]] = {}
        self._again: deque[StreamItem] = deque()
        self._attempts: dict[str, int] = {}

    @property
    def has_room(self) -> bool:
        self._resubmit()
        return self._readers.has_room

    @property
    def in_flight(self) -> int:
        self._resubmit()
        return self._readers.in_flight

    def submit(self, items: Sequence[StreamItem]) -> None:
        task = tuple((item.item_id, self._paths.get(item.item_id, ""), item.content) for item in items)
        self._items[task] = items
        self._readers.submit(task)

    def take(self) -> StreamChunk:
        from unchoke.features.stream import StreamChunk

        chunk = self._readers.take()
        items = self._items.pop(chunk.task)
        if chunk.value is None:
            chunk.release()
            if isinstance(chunk.error, MachineError):
                raise chunk.error  # a store that answers nobody: no photo is to blame
            return self._lost(items, chunk)
        answers, loading = chunk.value
        late = [item for item, answer in zip(items, answers, strict=True) if answer is None]
        if late:
            self.chunk_size = max(1, len(items) - len(late))
        if late and len(items) > 1:
            self._again.extend(late)
            kept = [(item, answer) for item, answer in zip(items, answers, strict=True) if answer is not None]
            items, answers = [item for item, _ in kept], [answer for _, answer in kept]
        found = [self._found(item, answer, chunk.memory) for item, answer in zip(items, answers, strict=True)]
        return StreamChunk(items, found, loading, chunk.release)

    def close(self) -> None:
        self._readers.close()

    def _found(self, item: StreamItem, answer: ItemAnswer, memory: memoryview) -> Found:
        from unchoke.features.card_decoder import EncodedPicture

        if answer is None:
            return CardReader(self._paths)(item.item_id, item.content)  # a file larger than a reader's memory
        if isinstance(answer, str):
            return answer
        piece = memory[answer.offset : answer.offset + answer.num_bytes]
        if self._input_shape:
            inputs: Pixels = np.frombuffer(piece, np.uint8).reshape(self._input_shape)
            return list(inputs)
        return EncodedPicture(piece, answer.for_card, answer.height, answer.width, answer.orientation)

    def _lost(self, items: Sequence[StreamItem], chunk: ReadChunk[ReaderTask, Answer]) -> StreamChunk:
        """A reader that died: each of its items is tried by itself, a few times."""
        from unchoke.features.stream import StreamChunk

        given_up: list[StreamItem] = []
        for item in items:
            self._attempts[item.item_id] = tried = self._attempts.get(item.item_id, 0) + 1
            (given_up if tried >= _ATTEMPTS else self._again).append(item)
        reason = f"missing: whoever read it was ended every time ({chunk.error})"  # which says nothing of its content
        return StreamChunk(given_up, [reason] * len(given_up), {}, _no_memory)

    def _resubmit(self) -> None:
        while self._again and self._readers.has_room:
            self.submit([self._again.popleft()])


def _no_memory() -> None:
    """There is none to let go of."""
