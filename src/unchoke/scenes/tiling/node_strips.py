"""Strips of windows on the nodes of a cluster: a node that sees a scene's files reads them, any other is sent them once.

In: a cluster, the folder of all tiles and the strips that are to be run. Out: what runs them, for `run_jobs`, and the choice of
nodes. Tiles and records are written in place where a node shares that folder; else they come home with their sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from unchoke.core.choices import Choice
from unchoke.core.events import OnEvent
from unchoke.jobs.cluster.connection import Cluster
from unchoke.jobs.cluster.homing import marked
from unchoke.jobs.cluster.node_work import Courier, NodeErrand, NodeReady, NodeWork, nodes_choice, one_host_each
from unchoke.jobs.cluster.ray_engine import RayEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.scene_parcel import scene_files
from unchoke.scenes.tiling.strip_body import StripBody
from unchoke.scenes.tiling.tiles import TileSpec, TileStrip

Strips = Mapping[str, tuple[TileSpec, TileStrip]]
"""How each job's strip is made, by the job's id."""


@dataclass(frozen=True)
class StripErrand:
    """A strip as it travels; the spec's folder is that of its tiles below the folder of all tiles."""

    job: Job
    spec: TileSpec
    strip: TileStrip


class TilingWork(NodeWork):
    """Makes the tiles of strips on a node; the threads of a host share what is open."""

    def prepare(self, ready: NodeReady) -> NodeReady:
        self._pool = HandlePool()
        return ready

    def run(self, task: StripErrand, folder: Path) -> JobResult:
        """The tiles of one strip, and their record."""
        spec = replace(task.spec, folder=str(folder / task.spec.folder))
        work = {task.job.job_id: (spec, task.strip)}
        result = StripBody(folder, work, self._pool, told=self.told)(task.job)
        failed = tuple((item, self.told(reason)) for item, reason in result.failed_items)
        return replace(result, failed_items=failed, info={**result.info, "node": self.ready.node})


class StripCourier(Courier):
    """Packs a job's strip, with the files of its scene where the node does not see them."""

    def __init__(self, folder: Path, strips: Strips) -> None:
        by_scene = {spec.facts.scene_id: spec for spec, _ in strips.values()}
        self.files = [scene_files(spec.facts, spec.mask) for spec in by_scene.values()]
        super().__init__(self.files, needs=self._scene, into=lambda job: (folder, job.output))
        self._folder, self._strips = folder, strips

    def pack(self, task: Job, ready: NodeReady) -> NodeErrand[StripErrand]:
        spec, strip = self._strips[task.job_id]
        below = Path(spec.folder).relative_to(self._folder).as_posix()
        return replace(super().pack(task, ready), task=StripErrand(task, replace(spec, folder=below), strip))

    def _scene(self, job: Job) -> tuple[str]:
        return (self._strips[job.job_id][0].facts.scene_id,)


@dataclass(frozen=True)
class NodeStrips:
    """What `run_jobs` needs to run strips on a cluster."""

    body: TilingWork
    engine: RayEngine

    def choice(self) -> Choice:
        """Which nodes were used, and why."""
        cluster = self.engine.cluster
        gives = "have this unchoke"
        return nodes_choice(cluster.address, self.engine.facts.values(), cluster.refused, gives=gives, files="scenes")


@contextmanager
def strips_on_nodes(cluster: Cluster, folder: Path, strips: Strips, *, on_event: OnEvent) -> Iterator[NodeStrips]:
    """A body and an engine for the jobs of `strips`, whose tiles go below `folder`."""
    courier = StripCourier(folder, strips)
    with marked(folder) as shared:
        work = TilingWork(home=shared, files=courier.files)
        yield NodeStrips(
            work, RayEngine(cluster, plan=one_host_each, pack=courier.pack, unpack=courier.unpack, on_event=on_event)
        )
