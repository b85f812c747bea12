"""Masks on the nodes of a cluster: a task is some bands of a mask, and the parts they become come home.

In: an opened predictor, and for each mask what is left of it. Out: the bands as they are finished, or a scene that broke. The
networks travel once to each host, which is used if it predicts what the driver predicts. Which bands are done together changes
no bit of them, so a mask is that of one machine. The driver writes the files of the masks.
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.core.errors import MachineError
from unchoke.core.events import OnEvent
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.node_extraction import EngineParcel
from unchoke.jobs.cluster.connection import Cluster, ClusterNode
from unchoke.jobs.cluster.file_transfer import FileSet, SharedFolder, marked
from unchoke.jobs.cluster.hosts import HostPlan, NodeRefused
from unchoke.jobs.cluster.node_work import Courier, NodeReady, NodeWork, agreement, hosts_with, run_tasks
from unchoke.machine.backend import torch_device
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.masks.draw_masks import MaskWork, finish_bands
from unchoke.masks.patches import BandStandard, PatchReader
from unchoke.masks.trained_segmenter import OpenPredictor, TrainedSegmenter, join_parts, noise_patches
from unchoke.masks.write_masks import PartStore
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import files_to_send
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import SceneError

_COMPARED = 2
"""Patches that a node and the driver both predict before the node may work."""
_MOST_BANDS = 8
_ROUNDS = 3
"""Tasks for each that can run at a time, so that none waits long for the last."""


@dataclass(frozen=True, eq=False)
class MaskErrand:
    """Bands of one mask, from top to bottom, and how the patches they need are read."""

    work: MaskWork
    bands: tuple[Box, ...]
    made_from: str
    scale: SceneScale
    standard: BandStandard


@dataclass(frozen=True)
class SegmenterParcel:
    """A predictor as it travels, with what it makes of some noise."""

    trained: bytes
    engine: EngineParcel | None
    batch: int
    threads: int
    """What the driver computes with: the last bits depend on it."""
    expected: NDArray[np.float32]

    @classmethod
    def of(cls, predictor: OpenPredictor, *, batch: int) -> SegmenterParcel:
        backbone, engine = predictor.backbone, predictor.engine
        parcel = None if backbone is None or engine is None else EngineParcel.of(backbone, engine)
        return cls(pickle.dumps(predictor.trained), parcel, batch, torch.get_num_threads(), _predict_noise(predictor))

    def open(self) -> tuple[OpenPredictor, str, dict[str, Any]]:
        """A predictor of this machine that gives what the driver's gives, how exactly, and what runs its frozen part."""
        trained: TrainedSegmenter = pickle.loads(self.trained)
        refused: list[str] = []
        for engine, device in self._engines(refused):
            torch.set_num_threads(self.threads)
            predictor = join_parts(trained, engine, device=device, batch=self.batch)
            try:
                how = agreement(self.expected, _predict_noise(predictor))
            except NodeRefused as error:
                refused.append(error.why)
                continue
            return predictor, how, {} if engine is None else engine.describe()
        raise NodeRefused(
            f"{socket.gethostname()} predicts other masks than the driver",
            code="node-disagrees",
            why="; ".join(refused),
            try_="the same versions of torch and OpenVINO there as here",
        )

    def _engines(self, refused: list[str]) -> Iterator[tuple[FrozenEngine | None, torch.device]]:
        if self.engine is None:
            yield None, torch_device(choose_policy(detect_machine()))
            return
        try:
            for engine in self.engine.candidates():
                yield engine, engine.device if isinstance(engine, TorchEngine) else torch.device("cpu")
        except MachineError as error:
            refused.append(f"{error.what}: {error.why}")


def _predict_noise(predictor: OpenPredictor) -> NDArray[np.float32]:
    return predictor.decode(predictor.encode(noise_patches(predictor.trained.spec, _COMPARED)))


class MaskNodeWork(NodeWork):
    """Finishes bands of masks on a node."""

    def __init__(self, parcel: SegmenterParcel, *, home: SharedFolder, files: Sequence[FileSet]) -> None:
        super().__init__(home=home, files=files)
        self._parcel = parcel
        self._predictor: OpenPredictor | None = None

    def prepare(self, ready: NodeReady) -> NodeReady:
        predictor, how, engine = self._parcel.open()
        self._predictor = replace(predictor, decode=_one_at_a_time(predictor.decode))
        self._pool = HandlePool()
        return replace(ready, agreement=how, engine=engine)

    def run(self, task: MaskErrand, folder: Path) -> SceneError | None:
        """The parts of some bands; a scene that breaks is the answer, not a failure of the task."""
        assert self._predictor is not None, "set_up ran before"
        work, scene_id = task.work, task.work.scene_id
        with_chances = work.files.probabilities is not None
        parts = PartStore(folder / scene_id, made_from=task.made_from, probabilities=with_chances, sweep=False)
        reader = PatchReader({scene_id: work.facts}, pool=self._pool, scales={scene_id: task.scale}, standard=task.standard)
        try:
            finish_bands(work, parts, list(task.bands), reader=reader, predictor=self._predictor, batch=self._parcel.batch)
        except SceneError as error:
            what, why, path = (self.restore_names(text) for text in (error.what, error.why, error.path))
            return SceneError(what, code=error.code, why=why, try_=error.try_, path=path)
        return None


def _one_at_a_time(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    lock = threading.Lock()

    def run(rows: Any) -> Any:
        with lock:
            return decode(rows)

    return run


@dataclass(frozen=True)
class NodeMasks:
    """A predictor spread over a cluster. `parts` is the folder that all unfinished masks lie in."""

    cluster: Cluster
    predictor: OpenPredictor
    batch: int
    parts: Path
    on_event: OnEvent
    facts: dict[str, NodeReady]
    """What the nodes said of themselves."""

    def plan(self, node: ClusterNode) -> list[HostPlan]:
        """Streams of one process use all cores of a node; else a host has as many as the driver. Two tasks for each."""
        engine = self.predictor.engine
        streams = engine is not None and engine.name == OpenVinoEngine.name
        return hosts_with(node.cpus if streams else torch.get_num_threads())(node)

    def errands(
        self, works: Sequence[tuple[MaskWork, PartStore, Sequence[Box]]], scales: dict[str, SceneScale]
    ) -> list[MaskErrand]:
        """What is left of the masks, in tasks of a few bands each."""
        slots = sum(host.slots for node in self.cluster.nodes() for host in self.plan(node))
        size = task_size(sum(len(todo) for _, _, todo in works), slots=slots)
        standard = self.predictor.trained.standard
        return [
            MaskErrand(work, bands, parts.made_from, scales[work.scene_id], standard)
            for work, parts, todo in works
            for bands in split_bands(todo, size)
        ]

    def run(self, errands: Sequence[MaskErrand], *, given_up: set[str]) -> Iterator[tuple[MaskErrand, SceneError | None]]:
        """Each errand as it is done; those of scenes in `given_up` are not begun any more."""
        files = [files_to_send(work.facts) for work in {one.work.scene_id: one.work for one in errands}.values()]
        courier = Courier(files, needs=lambda task: (task.work.scene_id,), into=lambda _: (self.parts, ""))
        with marked(self.parts) as home:
            work = MaskNodeWork(SegmenterParcel.of(self.predictor, batch=self.batch), home=home, files=files)
            wanted = (one for one in errands if one.work.scene_id not in given_up)
            yield from run_tasks(self.cluster, work, courier, wanted, plan=self.plan, on_event=self.on_event, facts=self.facts)


def task_size(num_bands: int, *, slots: int) -> int:
    """Bands for each task: few patches are predicted twice where bands stay together, and no node waits long for the last."""
    return max(1, min(_MOST_BANDS, num_bands // (_ROUNDS * max(1, slots))))


def split_bands(todo: Sequence[Box], size: int) -> list[tuple[Box, ...]]:
    """Bands of one strip that follow each other, up to `size` together."""
    tasks: list[tuple[Box, ...]] = []
    for _, strip in groupby(todo, key=lambda band: band.left):
        bands: list[Box] = []
        for band in strip:
            if bands and (len(bands) == size or bands[-1].bottom != band.top):
                tasks.append(tuple(bands))
                bands = []
            bands.append(band)
        tasks.append(tuple(bands))
    return tasks
