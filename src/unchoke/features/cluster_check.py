"""`unchoke cluster check`: can this cluster do the work, and does every node give the same answer?

In: the address of a cluster and, if there are some, your photos. Out: what each node is, findings, and for each node whether it
can read the photos and how the features of up to 64 of them compare with those made here. Writes nothing but a scratch folder.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core.errors import MachineError
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding, rank
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.temporary_folders import scratch_folder
from unchoke.core.units import format_seconds
from unchoke.data.check_samples import data_source
from unchoke.data.scan import scan_samples
from unchoke.features.extraction import picture_inputs
from unchoke.features.extractor import Extractor
from unchoke.features.node_extraction import (
    EngineParcel,
    ExtractionCourier,
    ExtractionWork,
    pickled_reader,
    take_sample,
)
from unchoke.features.prepare_engine import Picture, prepare_encoder
from unchoke.jobs.cluster.connection import Cluster, ClusterNode
from unchoke.jobs.cluster.file_transfer import marked
from unchoke.jobs.cluster.hosts import HostPlan
from unchoke.jobs.cluster.node_report import NodeReport, ask_nodes, diagnose_nodes
from unchoke.jobs.cluster.node_work import NodeReady
from unchoke.jobs.cluster.ray_engine import RayEngine
from unchoke.jobs.job_plan import Job
from unchoke.machine.doctor import count_nodes, render_nodes
from unchoke.pixels.image import DecodeError, read_bytes
from unchoke.runs.report.text import render_findings
from unchoke.runs.session import Session, open_session

_NUM = 64
_SIDE = 160


@dataclass(frozen=True)
class NodeTrial:
    """What became of a job of up to 64 photos on one node."""

    node: str
    num_photos: int = 0
    reads: bool = False
    equal: bool = False
    agreement: str = ""
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class ClusterCheck:
    """A cluster as `unchoke cluster check` found it."""

    address: str
    """The cluster's address."""
    nodes: Sequence[NodeReport]
    """What each node is."""
    trials: Sequence[NodeTrial]
    """What each node made of some photos."""
    findings: Sequence[Finding] = field(default=())
    """What could go wrong, the worst first."""

    @property
    def exit_code(self) -> int:
        """What the command exits with: 1 where a node cannot be used."""
        return int(any(finding.severity == "error" for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "nodes": [node.to_dict() for node in self.nodes],
            "trials": [vars(trial) for trial in self.trials],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def to_text(self) -> str:
        lines = [f"The cluster at {self.address}: {count_nodes(self.nodes)}", render_nodes(self.nodes), ""]
        lines += [f"  {trial.node.ljust(12)}  {_in_words(trial)}" for trial in self.trials]
        if self.findings:
            lines += ["", render_findings(self.findings).rstrip()]
        good = "every node gives the same answer" if all(trial.equal for trial in self.trials) else "see above"
        return "\n".join([*lines, "", f"checked   {good}", f"next      unchoke fit PHOTOS --on {self.address}"])


def _in_words(trial: NodeTrial) -> str:
    if trial.problem:
        return f"not used: {trial.problem}"
    how = "reads the photos itself" if trial.reads else "is sent the photos"
    same = "the same bytes as here" if trial.equal else trial.agreement
    return f"{how}; {trial.num_photos} of them in {format_seconds(trial.seconds)}: {same}"


def cluster_check(
    address: str, data: str | Path | None = None, *, images: Sequence[str | Path] = (), on_event: OnEvent | None = None
) -> ClusterCheck:
    """Can this Ray cluster do the work, and does every node give the same answer? Keeps nothing.

    Every node is asked what it is (versions, clock, token), whether it can read the photos, and to extract some of them.

    Args:
        address: The cluster, as `on` of other commands: ray://HOST:10001, HOST:6379 or auto.
        data: Photos as for `fit`; left out, some are made up.
        images: Folders with the images of a table.
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        What each node is, what it made of the photos, and findings.

    Example:
        >>> unchoke.cluster_check("127.0.0.1:1")
        Traceback (most recent call last):
        unchoke_doctor.errors.MachineError: nothing answers at 127.0.0.1:1
    """
    with scratch_folder("check") as scratch:
        folder = str(data) if data is not None else _make_photos(scratch / "photos")
        typed = {"data": folder, "images": tuple(map(str, images)), "on": address}
        with open_session(typed, out=scratch / "work", on_event=on_event, remembering=False) as session:
            cluster = session.cluster
            if cluster is None:
                raise MachineError(
                    "local is no cluster", code="cluster-needed", why="there are no nodes to ask", try_="unchoke doctor"
                )
            with session.stage("nodes"):
                reports = ask_nodes(cluster)
            trials = list(_try_nodes(session, cluster, [report for report in reports if not report.problem]))
    return ClusterCheck(address, reports, trials, rank([*diagnose_nodes(reports), *_diagnose(trials, own=data is None)]))


def _try_nodes(session: Session, cluster: Cluster, reports: Sequence[NodeReport]) -> Iterator[NodeTrial]:
    pictures = _some_pictures(session)
    with session.stage("engine", session.settings.encoder):
        frozen = prepare_encoder(session, pictures)
    inputs = picture_inputs(session, frozen.recipe(0), pictures, frozen=frozen)
    assert inputs.photos is not None and inputs.network is not None, "photos come with their files and their network"
    job = Job.of("check", 0, inputs.ids, inputs.contents, output="here/photos.npz", fingerprint=inputs.recipe.fingerprint)
    folder = session.workspace.features
    Extractor(frozen.engine, inputs.recipe, inputs.read, folder)(job)
    expected = (folder / job.output).read_bytes()
    items = list(zip(inputs.ids, inputs.contents, strict=True))
    sample = take_sample(frozen.engine, inputs.recipe, items, inputs.read, inputs.photos.paths)
    parcel, reader = EngineParcel.of(inputs.network(), frozen.engine), pickled_reader(inputs.read, inputs.photos.paths, sample)
    courier = ExtractionCourier(folder, inputs.read, inputs.photos.paths)
    for report in reports:
        with session.stage("try", report.node.name), marked(folder) as shared:
            (folder / job.output).unlink()
            work = ExtractionWork(parcel, inputs.recipe, reader, sample, shared)
            trial = _try_node(cluster, report.node, job, courier, work)
            same = (folder / job.output).exists() and (folder / job.output).read_bytes() == expected
        (folder / job.output).write_bytes(expected)
        yield NodeTrial(**{**vars(trial), "equal": same and not trial.problem})


def _try_node(cluster: Cluster, node: ClusterNode, job: Job, courier: ExtractionCourier, work: ExtractionWork) -> NodeTrial:
    """One host on that node alone, and the job on it."""

    def only_there(other: ClusterNode) -> list[HostPlan]:
        return [HostPlan(0.0, 1.0 if node.gpus else 0.0)] if other.node_id == node.node_id else []

    engine = RayEngine(cluster, plan=only_there, pack=courier.pack, unpack=courier.unpack)
    started_s = time.monotonic()
    try:
        (outcome,) = engine.map_unordered(work, [job], setup=work.set_up)
    except MachineError as error:
        return NodeTrial(node.name, problem=f"{error.what}: {error.why}")
    ready: NodeReady = engine.facts[node.name]
    if outcome.error is not None:
        return NodeTrial(node.name, problem=f"{type(outcome.error).__name__}: {outcome.error}")
    seconds = round(time.monotonic() - started_s, 2)
    return NodeTrial(node.name, len(job.items), reads=ready.reads, agreement=ready.agreement, seconds=seconds)


def _diagnose(trials: Sequence[NodeTrial], *, own: bool) -> Iterator[Finding]:
    for trial in trials:
        if trial.problem:
            yield Finding("node-unfit", f"{trial.node} is not used: {trial.problem}", severity="error", stage="cluster")
    blind = [trial.node for trial in trials if not trial.reads and not trial.problem]
    if blind and not own:
        yield Finding(
            "photos-unseen",
            f"{', '.join(blind)} cannot read the photos: they are sent from here, as fast as this machine's network is",
            stage="cluster",
            fix="a folder that all machines mount at the same place, or photos behind a URL such as s3://",
        )


def _some_pictures(session: Session) -> list[Picture]:
    frame = scan_samples(data_source(session.settings, session.workspace)).samples.frame
    rows = frame.iloc[:: max(1, len(frame) // _NUM)].head(_NUM)
    pictures = []
    for row in rows.itertuples():
        with suppress(DecodeError):  # a photo that nobody can read says nothing of a cluster
            pictures.append(Picture(str(row.sample_id), str(row.path), digest_bytes(read_bytes(str(row.path)))))
    return pictures


def _make_photos(folder: Path) -> str:
    """64 photos of noise in two classes: enough to compare numbers."""
    from PIL import Image

    rng = np.random.default_rng(64)
    for number in range(_NUM):
        small = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        data = io.BytesIO()
        Image.fromarray(small).resize((_SIDE, _SIDE)).save(data, "JPEG", quality=90)
        file = folder / f"class_{number % 2}" / f"{number:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.getvalue())
    return str(folder)
