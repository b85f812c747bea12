"""Extraction on the nodes of a cluster: what travels to them, what they do with it, and how shards come home.

A node gets the frozen network and its engine once, and for each job the paths of its items; where it cannot read those, the
files' bytes, or what the driver read. Before it may work it extracts a few items that the driver has extracted, too: to the same
bits, or within the tolerance that engines are held to, and which of the two is said in every record it makes. It writes shards
where the workspace is a folder it shares with the driver, else it sends them back.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import listing
from unchoke.core.errors import DataError, MachineError, list_some
from unchoke.core.remote import locate
from unchoke.core.stores import StoreDown
from unchoke.core.temporary_folders import scratch_folder
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.agree import ASKED_FOR_INT8, USUAL, compare
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import FrozenEngine, FrozenNetwork, TorchEngine
from unchoke.features.extractor import Extractor, ItemInputs, PhotoSource, PictureReader, Read
from unchoke.features.feature_store import Half, to_half
from unchoke.features.recipe import FeatureRecipe, PictureRecipe
from unchoke.jobs.attempts import TaskFailed
from unchoke.jobs.cluster.file_transfer import SentFile, SharedFolder
from unchoke.jobs.cluster.hosts import NodeRefused, assigned_cores
from unchoke.jobs.cluster.node_work import SAME_BITS, Courier, NodeErrand, NodeReady, NodeWork
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.pixels.image import DecodeError, may_pass, read_planned

_COMPARED = 8
"""Items that a node and the driver both extract before the node may work."""


@dataclass(frozen=True)
class EngineParcel:
    """An engine as it travels: the network, pickled, and for OpenVINO the model that was converted from it."""

    network: bytes
    name: str
    precision: str
    batch: int
    channels_last: bool = False
    model: Mapping[str, bytes] | None = None

    @classmethod
    def of(cls, network: FrozenNetwork, engine: FrozenEngine) -> EngineParcel:
        if isinstance(engine, OpenVinoEngine):
            files = {name: (engine.folder / name).read_bytes() for name in listing.names(engine.folder)}
            return cls(pickle.dumps(network), engine.name, engine.precision, engine.batch, model=files)
        assert isinstance(engine, TorchEngine), "there are two engines"
        return cls(pickle.dumps(network), engine.name, engine.precision, engine.batch, engine.channels_last)

    def candidates(self) -> Iterator[FrozenEngine]:
        """What may run here, the fastest first: the same precision on a GPU, where Ray gave this host one; the driver's own."""
        prepare_torchvision()  # before the network brings timm with it
        network: FrozenNetwork = pickle.loads(self.network)
        device = torch_device(choose_policy(detect_machine()))
        if not is_cpu(device):
            yield TorchEngine(network, device=device, precision=self.precision, batch=self.batch)
        if self.model is None:
            torch.set_num_threads(1)
            on_cpu = torch.device("cpu")
            last = self.channels_last
            yield TorchEngine(network, device=on_cpu, precision=self.precision, batch=self.batch, channels_last=last)
            return
        torch.set_num_threads(1)  # the streams use the cores; torch only resizes single pictures
        with scratch_folder("engine") as folder:
            for name, data in self.model.items():
                (folder / name).write_bytes(data)
            yield OpenVinoEngine(network, precision=self.precision, streams=assigned_cores(), batch=self.batch, kept=folder)


@dataclass(frozen=True)
class ExtractionSample:
    """A few items: what each is made of, and the features that the driver made of them."""

    items: tuple[tuple[str, str], ...]
    inputs: Mapping[str, PhotoSource | ItemInputs]
    features: Half


@dataclass(frozen=True)
class ExtractionErrand:
    """A job as it travels, with what its items are made of where the node cannot read them by itself."""

    job: Job
    inputs: Mapping[str, PhotoSource | ItemInputs | str] | None


class ExtractionWork(NodeWork):
    """Extracts jobs on a node. `read` is the driver's own reader, pickled; None where it does not travel.

    For photos it is the paths of the sample: those of the others come with the jobs.
    """

    def __init__(
        self, engine: EngineParcel, recipe: FeatureRecipe, read: bytes | None, sample: ExtractionSample, home: SharedFolder
    ) -> None:
        super().__init__(home=home)
        self._engine, self._recipe, self._read, self._sample = engine, recipe, read, sample
        self._extractor: Extractor | None = None

    def prepare(self, ready: NodeReady) -> NodeReady:
        """Build an engine, and find out whether it gives the features of the driver and whether items can be read here."""
        reader = _probed_reader(self._recipe, self._read, self._sample)
        built, agreement = _agreeing(self._engine, self._recipe, self._sample)
        threads = 0 if built.name == "openvino" else 2  # streams on every core read their own items
        self._extractor = Extractor(built, self._recipe, reader or _nothing_is_read, Path(), threads)
        return replace(ready, reads=reader is not None, agreement=agreement, engine=built.describe())

    def run(self, task: ExtractionErrand, folder: Path) -> JobResult:
        """Extract one job; its shard goes below `folder`."""
        assert self._extractor is not None, "set_up ran before"
        extractor = replace(self._extractor, folder=folder)
        if task.inputs is not None:
            extractor = replace(extractor, read=_reader_of(extractor.recipe, task.inputs))
        if isinstance(extractor.recipe, PictureRecipe):
            extractor = replace(extractor, read=_BeforeStore(extractor.read))
        result = extractor(task.job)
        return replace(result, info={**result.info, "node": self.ready.node, "agreement": self.ready.agreement})


class _BeforeStore:
    """A reader for one job: once a store is silent to this machine, it is asked no more. The driver may still be answered."""

    def __init__(self, read: Read) -> None:
        self._read, self._silent = read, ""

    def __call__(self, item_id: str, content: str) -> ItemInputs | str:
        if not self._silent:
            try:
                return self._read(item_id, content)
            except StoreDown as error:
                self._silent = f"unreachable: {error.what}: {error.why}"
        return self._silent


def _nothing_is_read(item_id: str, _content: str) -> str:
    return f"missing: {item_id} did not come with its job"


def _reader_of(recipe: FeatureRecipe, inputs: Mapping[str, Any]) -> Read:
    if isinstance(recipe, PictureRecipe):
        return PictureReader(recipe, inputs)
    return lambda item_id, _content: inputs[item_id]


def _probed_reader(recipe: FeatureRecipe, read: bytes | None, sample: ExtractionSample) -> Read | None:
    """A reader that gives here what it gives the driver, where there is one."""
    if read is None:
        return None
    try:  # whatever a foreign disk, file system, store or library raises: then the driver reads
        if isinstance(recipe, PictureRecipe):
            paths: Mapping[str, str] = pickle.loads(read)
            for item_id, content in sample.items:
                read_planned(paths[item_id], content)
            return PictureReader(recipe, {}) if paths else None
        reader: Read = pickle.loads(read)
        for item_id, content in sample.items:
            found, expected = reader(item_id, content), sample.inputs[item_id]
            if isinstance(found, str) or len(found) != len(expected):  # type: ignore[arg-type]
                return None
            if not all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True)):  # type: ignore[arg-type]
                return None
    except Exception:
        return None
    return reader


def _agreeing(parcel: EngineParcel, recipe: FeatureRecipe, sample: ExtractionSample) -> tuple[FrozenEngine, str]:
    """An engine whose features are the driver's, and how exactly; `NodeRefused` where none is to be had."""
    refused: list[str] = []
    tolerance = ASKED_FOR_INT8 if parcel.precision == "int8" else USUAL
    for engine in _built(parcel, refused):
        found = encode_sample(engine, _reader_of(recipe, sample.inputs), recipe, sample.items)
        if found.shape != sample.features.shape:
            refused.append(f"{engine.name} gave {found.shape} instead of {sample.features.shape}")
        elif np.array_equal(found.view(np.uint16), sample.features.view(np.uint16)):
            return engine, SAME_BITS
        else:
            agreement = compare(sample.features.astype(np.float32), found.astype(np.float32))
            label = f"{engine.name}:{engine.precision}"
            if agreement.within(tolerance):
                return engine, f"{label} agrees: {agreement.in_words(tolerance)}"
            refused.append(f"{label} disagrees: {agreement.in_words(tolerance)}")
    raise NodeRefused(
        f"{socket.gethostname()} computes other features than the driver",
        code="node-disagrees",
        why="; ".join(refused),
        try_="the same versions of torch and OpenVINO there as here",
    )


def _built(parcel: EngineParcel, refused: list[str]) -> Iterator[FrozenEngine]:
    try:
        yield from parcel.candidates()
    except MachineError as error:
        refused.append(f"{error.what}: {error.why}")


def encode_sample(engine: FrozenEngine, read: Read, recipe: FeatureRecipe, items: Sequence[tuple[str, str]]) -> Half:
    """The features of all inputs of `items`, one after the other, as a shard would hold them."""
    inputs: list[NDArray[Any]] = []
    for item_id, content in items:
        found = read(item_id, content)
        if isinstance(found, str):
            raise NodeRefused(
                f"{socket.gethostname()} cannot read {item_id}",
                code="node-cannot-read",
                why=found,
                try_="the same decoders there as here",
            )
        inputs += list(found)
    return to_half(engine.encode(np.stack(inputs)), of=recipe.network)


class ExtractionCourier(Courier):
    """The driver's side: packs what a node cannot read, and puts shards in place.

    `read` is the driver's own; `paths` are those of photos.
    """

    def __init__(self, folder: Path, read: Read, paths: Mapping[str, str] | None) -> None:
        super().__init__(into=lambda job: (folder, job.output))
        self._read, self._paths = read, paths
        self._sent_jobs: set[str] = set()
        """Jobs whose photos are sent, although their node reads others."""

    def pack(self, task: Job, ready: NodeReady) -> NodeErrand[ExtractionErrand]:
        """The job as this node needs it."""
        planned = zip(task.items, task.contents, strict=True)
        if self._paths is None:
            inputs = None if ready.reads else {item: self._read(item, content) for item, content in planned}
            return NodeErrand(ExtractionErrand(task, inputs))
        reads, photos = ready.reads and task.job_id not in self._sent_jobs, dict[str, PhotoSource]()
        for item, content in planned:
            path = self._paths.get(item)
            if path is None:
                photos[item] = DecodeError("missing", "it is no longer among the samples")
            else:
                photos[item] = str(locate(path).absolute()) if reads else photo_source(path, content)
        return NodeErrand(ExtractionErrand(task, photos))

    def unpack(self, task: Job, came: tuple[JobResult, Mapping[str, SentFile]]) -> JobResult:
        """As any; but a photo that the node cannot read and this machine can is not lost: its job is done again with it."""
        if self._paths is not None and task.job_id not in self._sent_jobs:
            contents = dict(zip(task.items, task.contents, strict=True))
            failed = [item for item, reason in came[0].failed_items if may_pass(reason) and item in self._paths]
            unseen = [item for item in failed if isinstance(photo_source(self._paths[item], contents[item]), bytes)]
            if unseen:
                self._sent_jobs.add(task.job_id)
                node = came[0].info["node"]
                raise TaskFailed(f"{node} cannot read {list_some(unseen)}, which are sent from here the next time")
        result: JobResult = super().unpack(task, came)
        return result


def photo_source(path: str, content: str) -> bytes | DecodeError:
    """The bytes of a photo, or why there are none."""
    try:
        return read_planned(path, content)
    except DecodeError as error:
        return error


def take_sample(
    engine: FrozenEngine, recipe: FeatureRecipe, items: Sequence[tuple[str, str]], read: Read, paths: Mapping[str, str] | None
) -> ExtractionSample:
    """Some of `items` that the driver can read, extracted by the driver."""
    chosen: list[tuple[str, str]] = []
    inputs: dict[str, PhotoSource | ItemInputs] = {}
    for item_id, content in items:
        if len(chosen) * recipe.num_inputs >= _COMPARED and chosen:
            break
        source: Any = photo_source(paths[item_id], content) if paths is not None else read(item_id, content)
        if isinstance(source, str | DecodeError):
            continue
        if paths is not None and isinstance(read(item_id, content), str):
            continue
        chosen.append((item_id, content))
        inputs[item_id] = source
    if not chosen:
        raise DataError(
            f"none of the {recipe.items} could be read",
            code="unreadable-photos",
            why="nodes are compared with this machine on a few of them first",
            try_="unchoke check DATA",
        )
    return ExtractionSample(tuple(chosen), inputs, encode_sample(engine, read, recipe, chosen))


def pickled_reader(read: Read, paths: Mapping[str, str] | None, sample: ExtractionSample) -> bytes | None:
    """What a node tries whether it can read for itself: the paths of the sample, or the whole reader where that travels."""
    if paths is not None:
        return pickle.dumps({item_id: str(locate(paths[item_id]).absolute()) for item_id, _ in sample.items})
    try:
        return pickle.dumps(read)
    except Exception:  # pickle raises whatever the objects inside raise: then the driver reads
        return None
