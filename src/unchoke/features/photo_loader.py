"""Photos loaded ahead of a GPU, by threads of this process or by loader processes.

In: items as the stream asks for them. Out: each with its inputs, decoded and resized on every core; or, where the GPU decodes,
with the bytes of its file, compared with the planned digest and found to be whole. Loader processes write either to shared
memory. Loading files for the GPU needs no torch: such processes start in a tenth of a second.
"""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unchoke.core.ahead import map_ahead
from unchoke.core.clock import Loading, StageTally, during
from unchoke.core.errors import MachineError
from unchoke.data.inspect_samples import FOR_FILES
from unchoke.jobs.loader_processes import LoaderProcesses
from unchoke.pixels.image import DecodeError, jpeg_shape, orientation, read_planned

if TYPE_CHECKING:
    from unchoke.features.recipe import PictureRecipe

FOR_GPU_DECODING = (*FOR_FILES, "unchoke.features.photo_loader")
FOR_PIXELS = (*FOR_GPU_DECODING, "torch", "unchoke.features.worker_imports")
"""What loader processes import beforehand, for one kind of work and the other."""
_THREAD_CHUNK, _CHUNK = 8, 16
_REGION_BYTES = 16_000_000
_ATTEMPTS = 3


@dataclass(frozen=True, eq=False)
class EncodedPicture:
    """A file's bytes. `for_gpu`: it is a JPEG that libjpeg-turbo decodes without complaint, in colours nvJPEG knows.

    `height` and `width` are those of its rows and columns, before it is turned by its EXIF `orientation`.
    """

    data: bytearray | bytes
    for_gpu: bool
    height: int = 0
    width: int = 0
    orientation: int = 1


Found = Sequence[Any] | EncodedPicture | str
"""What an item was read as: its inputs, a file for the GPU to decode, or the reason why there is neither."""
Answer = tuple[list[tuple[int, int, Any] | str | None], StageTally]
"""For each item of a chunk: offset and length in the memory with what a GPU has to know, a reason, or None: there was no room."""


class StreamItem(NamedTuple):
    """One item of a job, at its place there."""

    job: Any
    place: int
    item_id: str
    content: str


Load = Callable[[Iterator[StreamItem]], Iterator[tuple[list[tuple[StreamItem, Found]], StageTally]]]
"""Loads items ahead: some at a time, in any order. What they were read as may be overwritten when more are asked for."""


def load_in_threads(read: Callable[[str, str], Found], *, threads: int) -> Load:
    """Items read by threads: for those that cannot be sent to another process, and for machines with few cores."""

    def load_some(items: list[StreamItem]) -> tuple[list[tuple[StreamItem, Found]], StageTally]:
        loading = Loading()
        with loading.here():
            found = [(item, read(item.item_id, item.content)) for item in items]
        return found, loading.tally()

    def load(items: Iterator[StreamItem]) -> Iterator[tuple[list[tuple[StreamItem, Found]], StageTally]]:
        chunks = iter(lambda: list(islice(items, _THREAD_CHUNK)), [])
        return map_ahead(load_some, chunks, threads=max(1, threads), ahead=3 * max(1, threads))

    return load


def load_in_processes(recipe: PictureRecipe, paths: Mapping[str, str], *, processes: int, for_gpu: bool) -> Load:
    """Photos read by loader processes: their files where the GPU decodes, else their inputs by `recipe`."""
    shape = () if for_gpu else (recipe.num_inputs, *recipe.picture_shape)
    read = _read_file if for_gpu else partial(_read_inputs, pickle.dumps(recipe))
    return partial(_load_in_processes, paths=paths, program=partial(_answer, read), processes=processes, shape=shape)


def _load_in_processes(
    items: Iterator[StreamItem], *, paths: Mapping[str, str], program: Any, processes: int, shape: tuple[int, ...]
) -> Iterator[tuple[list[tuple[StreamItem, Found]], StageTally]]:
    """Photos that did not fit beside others are read again by themselves, and so are those whose process died.

    One that ends its process every time is set aside.
    """
    item_bytes = math.prod(shape) if shape else 0
    region = max(_REGION_BYTES, item_bytes)
    size = max(1, min(_CHUNK, region // max(1, item_bytes)))
    again: deque[StreamItem] = deque()
    attempts: dict[str, int] = {}
    sent: dict[tuple[tuple[str, str, str], ...], list[StreamItem]] = {}
    with closing(LoaderProcesses(program, processes=processes, region_bytes=region)) as loader:
        while True:
            while loader.has_room and (some := [again.popleft()] if again else list(islice(items, size))):
                task = tuple((item.item_id, paths.get(item.item_id, ""), item.content) for item in some)
                sent[task] = some
                loader.submit(task)
            if not loader.in_flight:
                return
            chunk = loader.take()
            asked, found, tally = sent.pop(chunk.task), list[tuple[StreamItem, Found]](), StageTally()
            if chunk.value is None:
                if isinstance(chunk.error, MachineError):
                    raise chunk.error  # a store that answers nobody: no photo is to blame
                for item in asked:
                    attempts[item.item_id] = tried = attempts.get(item.item_id, 0) + 1
                    if tried < _ATTEMPTS:
                        again.append(item)
                    else:  # "missing" says nothing of its content
                        found.append((item, f"missing: its loader process was ended every time ({chunk.error})"))
            else:
                answers, tally = chunk.value
                for item, answer in zip(asked, answers, strict=True):
                    if answer is None and len(asked) == 1:  # a file larger than the memory
                        found.append((item, FileReader(paths)(item.item_id, item.content)))
                    elif answer is None:
                        again.append(item)
                    else:
                        found.append((item, answer if isinstance(answer, str) else _in_memory(chunk.memory, answer, shape)))
                size = max(1, min(size, sum(answer is not None for answer in answers)))
            yield found, tally
            chunk.release()


def _in_memory(memory: memoryview, answer: tuple[int, int, Any], shape: tuple[int, ...]) -> Found:
    """An item as a process left it: its inputs, or a copy of its file, which is decoded later."""
    offset, num_bytes, about = answer
    piece = memory[offset : offset + num_bytes]
    return list(np.frombuffer(piece, np.uint8).reshape(shape)) if shape else EncodedPicture(bytearray(piece), *about)


def _answer(read: Callable[..., tuple[int, Any]], task: Sequence[tuple[str, str, str]], memory: memoryview) -> Answer:
    """In a loader process: what `read` makes of each item, one after the other in the memory."""
    loading, offset = Loading(), 0
    out: list[tuple[int, int, Any] | str | None] = []
    with loading.here():
        for item_id, path, content in task:
            try:
                num_bytes, about = read(item_id, path, content, memory[offset:])
            except DecodeError as error:
                out.append(str(error))
                continue
            out.append(None if about is None else (offset, num_bytes, about))
            offset += num_bytes
    return out, loading.tally()


def _read_inputs(recipe: bytes, item_id: str, path: str, content: str, memory: memoryview) -> tuple[int, Any]:
    from unchoke.features.extractor import load_views

    views = load_views(path, item_id, content, _opened(recipe))
    num_bytes = sum(view.nbytes for view in views)
    if num_bytes > len(memory):
        return 0, None
    with during("hand over"):
        np.stack(views, out=np.frombuffer(memory[:num_bytes], np.uint8).reshape(len(views), *views[0].shape))
    return num_bytes, ()


@cache
def _opened(recipe: bytes) -> PictureRecipe:
    """It is sent pickled: opening it loads torch, which processes that load files do without."""
    import torch

    torch.set_num_threads(1)  # the processes are the parallelism
    found: PictureRecipe = pickle.loads(recipe)
    return found


def _read_file(_item_id: str, path: str, content: str, memory: memoryview) -> tuple[int, Any]:
    data = read_planned(path, content)
    if len(data) > len(memory):
        return 0, None
    about = examine(data)
    with during("hand over"):
        memory[: len(data)] = data
    return len(data), about


def examine(data: bytes) -> tuple[bool, int, int, int]:
    """Whether a GPU may decode the file, its height and width as stored, and its EXIF orientation."""
    with during("decode"):
        shape = jpeg_shape(data)
        return (False, 0, 0, 1) if shape is None else (True, *shape, orientation(data))


@dataclass(frozen=True)
class FileReader:
    """In threads of this process: an item's file, ready for a GPU, or the reason why not."""

    paths: Mapping[str, str]

    def __call__(self, item_id: str, content: str) -> Found:
        try:
            data = read_planned(self.paths[item_id], content)
            return EncodedPicture(data, *examine(data))
        except DecodeError as error:
            return str(error)
