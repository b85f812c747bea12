"""Predictions on the nodes of a cluster: chunks of pictures as tasks, and the run's model once to each node.

In: the model as this machine opened it, and the chunks. Out: their answers, as they come. A node reads pictures where it sees the
very ones that the driver sees; else their bytes travel. Before it may work it answers to a few pictures as the driver did.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import listing
from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.events import Chosen, ignore
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.remote import locate
from unchoke.core.stores import StoreDown
from unchoke.core.temporary_folders import scratch_folder
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.core.urls import is_url
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.jobs.cluster.connection import Cluster
from unchoke.jobs.cluster.node_work import (
    Courier,
    NodeErrand,
    NodeReady,
    NodeWork,
    agreement,
    hosts_with,
    nodes_choice,
    run_tasks,
)
from unchoke.pixels.image import DecodeError, read_bytes
from unchoke.runs.lookup import FoundRun
from unchoke.training.open_models import ChunkAnswer, OpenModel, OpenOptions, PictureChunk, answer_chunk, open_model, show_picture
from unchoke.training.saved_models import encoder_file, load_models, save_encoder

_COMPARED = 4
"""Pictures that a node and the driver both answer to before the node may work."""
_LOOKED_AT = 64
"""Pictures among which those are found."""
PictureSource = int | bytes | DecodeError
"""How long a picture's file is for those who read it themselves; or what it holds, or why that cannot be read."""
_ANY_LENGTH = -1
"""Of what lies behind a URL: asking how long it is takes as long as reading it."""


@dataclass(frozen=True)
class RunParcel:
    """What a node needs of a run: files of an exported one, by their place in its folder; and how it is opened."""

    files: Mapping[str, bytes]
    inputs: tuple[str, bytes] | None
    """The table of extra columns: its name and what it holds."""
    paths: tuple[str, ...]
    """All pictures, in full, where the table says something of each."""
    device: str | None
    threads: int
    """What the driver computes with: the last bits depend on it."""

    def open(self, read: Callable[[str], bytes]) -> OpenModel:
        """The model on this machine. Its files are gone afterwards: what is needed of them is in memory."""
        prepare_torchvision()  # before the encoder brings timm with it
        torch.set_num_threads(self.threads)
        with scratch_folder("run") as scratch:
            folder, table = scratch / "run", None
            for relative, data in self.files.items():
                (folder / relative).parent.mkdir(parents=True, exist_ok=True)
                (folder / relative).write_bytes(data)
            if self.inputs is not None:
                table = scratch / self.inputs[0]
                table.write_bytes(self.inputs[1])
            return open_model(FoundRun(folder, None), self.paths, OpenOptions(table, None, self.device, ignore, read))


def pack_run(found: FoundRun, model: OpenModel, paths: Sequence[str], options: OpenOptions) -> RunParcel:
    """The run's trained weights, those of its encoders, and models that were converted already."""
    files = {"record.json": (found.folder / "record.json").read_bytes()}
    with scratch_folder("run") as folder:
        (folder / "record.json").write_bytes(files["record.json"])
        saved, _ = load_models(found, weights=options.weights)
        for place in (found, *(one.found for one in saved)):
            files[f"checkpoints/{place.model}"] = place.head_file.read_bytes()
        for one in saved:
            if one.encoder is not None:
                name = encoder_file(one.found)
                save_encoder(one.encoder, folder, name)
                files[name] = (folder / name).read_bytes()
    for engine in model.engines:
        if isinstance(engine, OpenVinoEngine) and engine.folder.is_dir():
            kept = {file.relative: Path(file.path).read_bytes() for file in listing.walk(engine.folder)}
            files |= {f"engines/{engine.folder.name}/{relative}": data for relative, data in kept.items()}
    table = None if options.inputs is None else Path(options.inputs)
    inputs = None if table is None else (table.name, table.read_bytes())
    shown = () if table is None else tuple(map(_in_full, paths))
    return RunParcel(files, inputs, shown, options.device, torch.get_num_threads())


PictureSample = tuple[dict[str, bytes], NDArray[np.float32]]
"""A few pictures that the driver could read, and what its model answers to them."""
PictureErrand = tuple[PictureChunk, tuple[PictureSource, ...]]
"""A chunk as it travels, its paths in full, and for each picture what the node needs to have it."""
NodeAnswer = tuple[ChunkAnswer, bool]
"""The answer of a node, and whether it could not read what the driver sees: then it does not count."""


def take_pictures(model: OpenModel, paths: Sequence[str]) -> PictureSample | None:
    """The first few of `paths` that decode; None where none does."""
    pictures: dict[str, bytes] = {}
    shown = []
    for path in paths[:_LOOKED_AT]:
        try:
            data = read_bytes(path)
        except DecodeError:
            continue
        views = show_picture(model, path, lambda _path, data=data: data)  # type: ignore[misc]
        if not isinstance(views, DecodeError) and _in_full(path) not in pictures:
            pictures[_in_full(path)] = data
            shown.append((path, views))
        if len(shown) == _COMPARED:
            break
    if not shown:
        return None
    outputs, _ = model.answer([path for path, _ in shown], np.stack([view for _, views in shown for view in views]))
    return pictures, outputs


class PredictWork(NodeWork):
    """Answers to chunks of pictures on a node."""

    def __init__(self, parcel: RunParcel, sample: PictureSample | None) -> None:
        super().__init__()
        self._parcel, self._sample = parcel, sample
        self._model: OpenModel | None = None

    def prepare(self, ready: NodeReady) -> NodeReady:
        self._answering = threading.Lock()
        self._model = model = self._parcel.open(self._read)
        engine = model.engines[0].describe() if model.engines else {}
        if self._sample is None:
            return replace(ready, engine=engine)
        pictures, expected = self._sample
        answer, _ = self._answer(PictureChunk(0, tuple(pictures)), pictures)
        reads = all(_digest_here(path) == digest_bytes(data) for path, data in pictures.items())
        return replace(ready, reads=reads, agreement=agreement(expected, answer.outputs), engine=engine)

    def run(self, task: PictureErrand, _folder: Path) -> NodeAnswer:
        chunk, sources = task
        return self._answer(chunk, dict(zip(chunk.paths, sources, strict=True)))

    def _answer(self, chunk: PictureChunk, sources: Mapping[str, PictureSource]) -> NodeAnswer:
        assert self._model is not None, "set_up ran before"
        model, unread = self._model, []

        def read(path: str) -> bytes:
            source = sources[path]
            if isinstance(source, DecodeError):
                raise source
            if isinstance(source, bytes):
                return source
            try:
                data = read_bytes(path)
                if source not in (len(data), _ANY_LENGTH):
                    raise DecodeError("changed", f"it has {len(data):,} bytes here and {source:,} where the command runs")
                return data
            except DecodeError:
                unread.append(path)
                raise
            except StoreDown as error:  # to this machine: the driver may still be answered
                unread.append(path)
                raise DecodeError("unreachable", error.why) from error

        shown = list(map_ahead(lambda path: show_picture(model, path, read), chunk.paths, threads=2, ahead=32))
        with self._answering:
            self._current = read  # a blend may read a picture again, in threads of its own
            return answer_chunk(model, chunk, shown), bool(unread)

    def _read(self, path: str) -> bytes:
        """For models that decode the pictures of the chunk once more."""
        return self._current(path)


def _digest_here(path: str) -> str:
    try:
        return digest_bytes(read_bytes(path))
    except (DecodeError, OSError, StoreDown):
        return ""


def _in_full(path: str) -> str:
    return str(locate(path).absolute())


class PictureCourier(Courier):
    """Packs chunks: how long their files are for nodes that read, else what these hold; with `sending`, for all nodes."""

    def __init__(self, *, sending: bool) -> None:
        super().__init__()
        self._sending = sending

    def pack(self, task: PictureChunk, ready: NodeReady) -> NodeErrand[PictureErrand]:
        reads = ready.reads and not self._sending
        sources = tuple(_source(path, reads=reads) for path in task.paths)
        return NodeErrand((replace(task, paths=tuple(map(_in_full, task.paths))), sources))

    def unpack(self, task: PictureChunk, came: tuple[NodeAnswer, Any]) -> NodeAnswer:
        """The answer with the paths as they were typed."""
        answer, unread = came[0]
        broken = {path: answer.broken[full] for path in task.paths if (full := _in_full(path)) in answer.broken}
        return ChunkAnswer(task, answer.outputs, broken, answer.strange), unread


def _source(path: str, *, reads: bool) -> PictureSource:
    if reads and is_url(path):
        return _ANY_LENGTH
    try:
        return Path(path).stat().st_size if reads else read_bytes(path)
    except DecodeError as error:
        return error
    except OSError:
        return _source(path, reads=False)


def answer_on_nodes(
    cluster: Cluster, found: FoundRun, model: OpenModel, chunks: Sequence[PictureChunk], options: OpenOptions
) -> Iterator[ChunkAnswer]:
    """The answers to all chunks. Pictures that a node does not see after all are sent, in a second round."""
    options.listener(Chosen(Choice("on", cluster.address, cluster.in_words())))
    paths = [path for chunk in chunks for path in chunk.paths]
    work = PredictWork(pack_run(found, model, paths, options), take_pictures(model, paths))
    streams = bool(model.engines) and all(engine.name == OpenVinoEngine.name for engine in model.engines)
    plan = hosts_with(1 if streams and not found.trains_network else torch.get_num_threads())
    facts: dict[str, NodeReady] = {}
    left: list[PictureChunk] = list(chunks)
    for sending in (False, True):
        courier, unread = PictureCourier(sending=sending), []
        tasks = run_tasks(cluster, work, courier, left, plan=plan, on_event=options.listener, facts=facts)
        for chunk, (answer, is_unread) in tasks:
            if is_unread:
                unread.append(chunk)
            else:
                yield answer
        left = unread
    gives = "answer as this machine does on a sample"
    options.listener(Chosen(nodes_choice(cluster.address, facts.values(), cluster.refused, gives=gives, files="images")))
