"""From items to cached features: plan the jobs, run what is left, open the store. For photos and patches of scenes alike.

In: a session, an `InputSet` (which items, how they are read, by which recipe) and an engine. Out: an `Extraction`: the store and
which items it holds. Everything already extracted the same way is reused; what was made another way is never touched. Where the
cache is more than a vector for each item, it is said beforehand what it costs, and refused if the disk cannot hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, MachineError, list_some
from unchoke.core.timeline import JobTimes
from unchoke.core.units import format_bytes, format_count
from unchoke.data.file_findings import measure_room, too_many_failed
from unchoke.features.cut import frozen_part
from unchoke.features.encoders import Encoder
from unchoke.features.engines import FrozenEngine, FrozenNetwork, TorchEngine
from unchoke.features.extractor import Extractor, PictureReader, Read, run_job, set_up
from unchoke.features.feature_store import FeatureStore, Placement, open_stored
from unchoke.features.gpu_decoder import GpuDecoder
from unchoke.features.node_extraction import (
    EngineParcel,
    ExtractionCourier,
    ExtractionWork,
    pickled_reader,
    take_sample,
)
from unchoke.features.photo_loader import FOR_PIXELS, FileReader, Found, load_in_processes, load_in_threads
from unchoke.features.prepare_engine import (
    FrozenEncoder,
    Picture,
    PictureTable,
    open_encoder,
    prepare_encoder,
    recall_encoder,
    remember_encoder,
)
from unchoke.features.recipe import CARD, FeatureRecipe, PictureRecipe
from unchoke.features.stream import StreamExtractor
from unchoke.jobs.cluster.file_transfer import marked
from unchoke.jobs.cluster.hosts import one_for_each_core, one_for_each_node
from unchoke.jobs.cluster.node_work import nodes_choice
from unchoke.jobs.cluster.ray_engine import RayEngine
from unchoke.jobs.job_engines import InProcessEngine, JobEngine, ProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.loader_processes import preload_workers, start_method, worth_processes
from unchoke.jobs.name_places import PathsById, Places
from unchoke.jobs.queue import JobQueue, QueueState
from unchoke.jobs.records import DoneRecord, JobResult
from unchoke.jobs.run_jobs import run_jobs
from unchoke.machine.backend import is_cpu, keep_freed_memory
from unchoke.machine.memory.memory_watch import return_unused_memory
from unchoke.pixels.image import may_pass
from unchoke.runs.session import Session

_LARGEST_SHARD_BYTES = 64_000_000
"""A job holds its whole shard in memory before it is written."""
_COMPARED_JOBS = 8
"""Jobs among whose items those are found that nodes are compared on."""
_MARGIN_BYTES = 2**30
"""What stays free on the disk."""


@dataclass(frozen=True)
class PhotoFiles:
    """What another process needs to read photos and to run them: the recipe, the file of weights if one was named, the paths."""

    recipe: PictureRecipe
    weights: Path | None
    paths: Mapping[str, str]


@dataclass(frozen=True)
class InputSet:
    """What is extracted: items by id with what their pixels depend on, how each is read, and how it becomes features.

    An item that failed before is tried again where `may_pass` says so of its reason; more than a share of `max_failures` that
    fail stop the run. Where the items are `photos`, other processes may read them, and compute them, too.
    """

    recipe: FeatureRecipe
    ids: Sequence[str]
    contents: Sequence[str]
    read: Read
    may_pass: Callable[[str], bool]
    max_failures: float | None = None
    photos: PhotoFiles | None = None
    network: Callable[[], FrozenNetwork] | None = None
    """The network that the engine runs, for machines that build an engine of their own."""
    judged_later: bool = False
    """Whether files that do not decode are no surprise yet: whoever asked judges how many may be."""

    def has(self, item_id: str) -> bool:
        """Whether it is one of the items."""
        return self._places.find(item_id) is not None

    @cached_property
    def _places(self) -> Places:
        return Places(self.ids)


@dataclass(frozen=True)
class Extraction:
    """The cached features: `present[i]` says whether item i is there; rows of the store follow the items that are.

    `engine` says what made them, `encode_engine` is that engine where it was needed.
    """

    store: FeatureStore
    recipe: FeatureRecipe
    engine: dict[str, Any]
    encode_engine: FrozenEngine | None
    present: NDArray[np.bool_]
    failed: dict[str, str]
    num_jobs_run: int
    num_items_run: int

    @property
    def placement(self) -> Placement:
        return self.store.placement

    @property
    def fingerprint(self) -> str:
        return self.recipe.fingerprint


@dataclass(frozen=True)
class PictureExtraction(Extraction):
    """The same of photos; `encoder` is the whole network they come from, on the CPU, loaded when it is first asked for."""

    recipe: PictureRecipe
    load: Callable[[], Encoder]

    @cached_property
    def encoder(self) -> Encoder:
        return self.load()


def extract_features(session: Session, pictures: Sequence[Picture]) -> PictureExtraction:
    """Run whatever is not yet cached of `pictures` and open the store for them."""
    if (cached := _all_cached(session, pictures)) is not None:
        return cached
    with session.stage("engine", session.settings.encoder):
        frozen = prepare_encoder(session, pictures)
    session.remember_settings()
    remember_encoder(session, frozen)
    inputs = picture_inputs(session, frozen.recipe(session.settings.views), pictures, frozen=frozen)
    extraction = extract(session, inputs, frozen.engine)
    if isinstance(frozen.engine, TorchEngine):
        frozen.engine.leave_device()  # training has the device's memory for itself
    return PictureExtraction(**{**vars(extraction), "engine": frozen.describe()}, load=lambda: frozen.encoder)


def _all_cached(session: Session, pictures: Sequence[Picture]) -> PictureExtraction | None:
    """The features where all are there, of an encoder the workspace knows: neither it nor an engine is loaded for them."""
    known = recall_encoder(session)
    if known is None:
        return None
    inputs = picture_inputs(session, known.recipe, pictures)
    queue, state = plan_features(session, inputs)
    if state.pending:
        return None
    session.chose(keep_freed_memory())
    session.chose(known.choice)
    session.remember_settings()
    extraction = _open(session, inputs, queue, state, None)
    return PictureExtraction(**{**vars(extraction), "engine": known.engine}, load=lambda: open_encoder(session))


def picture_inputs(
    session: Session, recipe: PictureRecipe, pictures: Sequence[Picture], *, frozen: FrozenEncoder | None = None
) -> InputSet:
    """Photos as extraction wants them; `frozen` is what encodes them, where anything is left to be encoded."""
    settings, table = session.settings, PictureTable.of(pictures)
    paths = PathsById(table.ids, table.paths)
    return InputSet(
        recipe,
        table.ids,
        table.contents,
        PictureReader(recipe, paths),
        may_pass,
        max_failures=settings.max_failures,
        judged_later=not table.decoded.all(),
        photos=PhotoFiles(recipe, Path(settings.weights) if settings.weights else None, paths),
        network=None if frozen is None else partial(frozen_part, frozen.encoder, frozen.cut),
    )


def extract(session: Session, inputs: InputSet, engine: FrozenEngine) -> Extraction:
    """Run whatever is not yet cached and open the store for all items but those that failed."""
    return_unused_memory()  # converting a model takes several times what running it does
    return _open(session, inputs, *plan_features(session, inputs), engine)


def _open(session: Session, inputs: InputSet, queue: JobQueue, state: QueueState, engine: FrozenEngine | None) -> Extraction:
    """The same once it is planned; without an engine where nothing is pending."""
    recipe = inputs.recipe
    for problem in state.problems:
        session.warn(problem)
    num_pending = sum(len(job.items) for job in state.pending)
    if not recipe.is_plain:
        tell_cost(session, recipe, num_items=len(inputs.ids), num_pending=num_pending)
    if state.pending and engine is not None:
        with session.stage("extract", format_count(len(state.pending), "job")):
            run_extraction(session, queue, state.pending, inputs, engine, done=list(state.done.values()))
    stored = open_stored(queue, recipe.fingerprint, inputs.ids, done=None if state.pending else state.done)
    if lost := stored.lost():
        raise DataError(
            f"{len(lost)} {recipe.items} have no features: {list_some(lost)}",
            code="features-missing",
            why="their jobs failed; the .failed files in features/ say why",
            try_="run the same command again to retry them",
        )
    store = FeatureStore(stored.placement, row_shape=recipe.row_shape, num_augmented=recipe.num_augmented, levels=recipe.levels)
    described = engine.describe() if engine is not None else {}
    return Extraction(store, recipe, described, engine, stored.present, stored.failed, len(state.pending), num_pending)


def tell_cost(session: Session, recipe: FeatureRecipe, *, num_items: int, num_pending: int) -> None:
    """Say what the cache takes on disk; refuse what would not fit. Only items that are not cached yet need room."""
    free_bytes = measure_room(session.workspace.root).disk_bytes
    each, total, pending = (num * recipe.item_bytes for num in (1, num_items, num_pending))
    what = recipe.row_in_words
    if num_pending and pending + _MARGIN_BYTES > free_bytes:
        raise MachineError(
            f"the cache would take {format_bytes(pending)}, and {format_bytes(free_bytes)} are free at {session.workspace.root}",
            code="disk-too-small",
            why=f"{format_bytes(each)} for each of {format_count(num_pending, recipe.item, recipe.items)} ({what}), "
            f"and {format_bytes(_MARGIN_BYTES)} should stay free",
            try_=f"another disk with --out, {recipe.smaller}, or --cut none, which keeps pixels instead",
        )
    left = f"{format_bytes(pending)} still to be written" if num_pending else "all of it is there already"
    items = f"{format_count(num_items, recipe.item, recipe.items)} take {format_bytes(total)}"
    reason = f"{what}; {items}, {left}, {format_bytes(free_bytes)} are free"
    evidence = {f"{recipe.item}_bytes": each, "total_bytes": total, "pending_bytes": pending, "free_bytes": free_bytes}
    session.chose(Choice("feature_cache", f"{format_bytes(each)} per {recipe.item}", reason, evidence))


def plan_features(session: Session, inputs: InputSet) -> tuple[JobQueue, QueueState]:
    """Bring `jobs_queue.csv` up to date; sweep what an earlier kill left; take back items that may pass this time."""
    recipe = inputs.recipe
    queue = JobQueue.load(session.workspace.features)
    queue.sweep()
    fingerprint = recipe.fingerprint
    queue.reopen(fingerprint, lambda record: any(inputs.may_pass(why) and inputs.has(id_) for id_, why in record.failed_items))
    state = queue.plan(
        inputs.ids,
        inputs.contents,
        fingerprint=fingerprint,
        output_pattern=recipe.output_pattern,
        job_size=job_size(session, recipe),
    )
    return queue, state


def job_size(session: Session, recipe: FeatureRecipe) -> int:
    """Items for each job: as set, but no more than give a shard that may be held in memory."""
    largest = max(1, _LARGEST_SHARD_BYTES // recipe.item_bytes)
    return session.settings.job_size if recipe.is_plain else min(session.settings.job_size, largest)


@dataclass(frozen=True)
class _JobRunner:
    """What runs the jobs, and where: a body, the engine for it, and how many readers it has."""

    body: Callable[[Any], Any]
    engine: JobEngine
    readers: int
    setup: Callable[..., Any] | None = None
    setup_args: tuple[Any, ...] = ()


def run_extraction(
    session: Session,
    queue: JobQueue,
    jobs: Sequence[Job],
    inputs: InputSet,
    engine: FrozenEngine,
    *,
    done: Sequence[DoneRecord] = (),
) -> None:
    """Run `jobs` here or, with --on, on the nodes of a cluster.

    `done` are the records of jobs finished earlier; they count in the progress, and what failed in them as failed.
    """
    recipe = inputs.recipe
    times, watch = JobTimes(), _failure_watch(inputs, done)

    def heed(_job: Job, result: JobResult) -> None:
        times.add(result.info)
        watch(result)

    num_threads = torch.get_num_threads()
    if engine.name == "openvino":
        torch.set_num_threads(1)  # the streams use the cores; torch only resizes single pictures
    elsewhere = session.cluster is not None and inputs.network is not None
    try:
        with (_on_cluster if elsewhere else _on_this_machine)(session, queue, jobs, inputs, engine) as runner:
            run_jobs(
                queue,
                jobs,
                runner.body,
                engine=runner.engine,
                setup=runner.setup,
                setup_args=runner.setup_args,
                info={"encoder": recipe.encoder_name, "fingerprint": recipe.fingerprint, **engine.describe()},
                max_failed_jobs=max(2, len(jobs) // 10),
                on_event=session.on_event,
                stage="extract",
                unit=recipe.items,
                jobs_before=len(done),
                items_before=sum(record.num_items for record in done),
                on_result=heed,
                extra=times.progress,
            )
    finally:
        torch.set_num_threads(num_threads)  # training counts on them
    session.timelines["extract"] = times.timeline(readers=runner.readers)


@contextmanager
def _on_this_machine(
    session: Session, queue: JobQueue, jobs: Sequence[Job], inputs: InputSet, engine: FrozenEngine
) -> Iterator[_JobRunner]:
    """As one stream for a device, in worker processes where plain torch runs on the CPU, in threads otherwise."""
    recipe, photos, streams = inputs.recipe, inputs.photos, engine.name == "openvino"
    read_threads, workers = _read_threads(session, inputs, streams=streams), session.policy.workers
    if isinstance(engine, TorchEngine) and not is_cpu(engine.device):
        body, readers = _stream(session, queue, jobs, inputs, engine, read_threads)
        yield _JobRunner(body, InProcessEngine(), readers)
    elif photos is not None and not streams and len(jobs) > workers > 1:
        assert isinstance(engine, TorchEngine)
        preload_workers(FOR_PIXELS)
        threads = max(1, session.machine.cores // workers)
        setup_args = (photos.recipe, photos.weights, photos.paths, queue.folder, engine.batch, engine.channels_last, threads)
        yield _JobRunner(run_job, ProcessEngine(workers, start_method=start_method()), workers, set_up, setup_args)
    else:
        slots = engine.slots if streams else 2  # elsewhere two: one is loaded and written while the other is computed
        extractor = Extractor(engine, recipe, inputs.read, queue.folder, read_threads)
        yield _JobRunner(extractor, InProcessEngine(slots=slots), slots * max(1, read_threads))


@contextmanager
def _on_cluster(
    session: Session, queue: JobQueue, jobs: Sequence[Job], inputs: InputSet, engine: FrozenEngine
) -> Iterator[_JobRunner]:
    """On every node that gives the same features; what each says of itself is part of the record."""
    cluster = session.cluster
    assert cluster is not None and inputs.network is not None, "asked for by the caller"
    paths = inputs.photos.paths if inputs.photos is not None else None
    items = [item for job in jobs[:_COMPARED_JOBS] for item in zip(job.items, job.contents, strict=True)]
    sample = take_sample(engine, inputs.recipe, items, inputs.read, paths)
    parcel, courier = EngineParcel.of(inputs.network(), engine), ExtractionCourier(queue.folder, inputs.read, paths)
    plan = one_for_each_node if engine.name == "openvino" else one_for_each_core
    slots = sum(host.slots for node in cluster.nodes() for host in plan(node))
    with marked(queue.folder) as shared:
        runner = RayEngine(cluster, plan=plan, pack=courier.pack, unpack=courier.unpack, on_event=session.on_event)
        work = ExtractionWork(parcel, inputs.recipe, pickled_reader(inputs.read, paths, sample), sample, shared)
        yield _JobRunner(work, runner, slots, work.set_up)
    gives, files = "give the features of this machine on a sample", inputs.recipe.items
    session.chose(nodes_choice(cluster.address, runner.facts.values(), cluster.refused, gives=gives, files=files))


def _stream(
    session: Session, queue: JobQueue, jobs: Sequence[Job], inputs: InputSet, engine: TorchEngine, threads: int
) -> tuple[StreamExtractor, int]:
    """Jobs as one stream for a device, and how many load for it: processes where there are cores for them, else threads."""
    photos, workers = inputs.photos, session.policy.workers
    decoder: GpuDecoder | None = None
    read: Callable[[str, str], Found] = inputs.read
    if photos is not None and photos.recipe.decode_scale == CARD:
        decoder, read = GpuDecoder(photos.recipe.encoder.preprocess, engine.device), FileReader(photos.paths)
    if photos is not None and worth_processes(sum(len(job.items) for job in jobs), workers=workers):
        load = load_in_processes(photos.recipe, photos.paths, processes=workers, for_gpu=decoder is not None)
        reason = "reading and decoding outgrow one interpreter: processes that share memory with it do both"
        session.chose(Choice("readers", workers, reason, {"processes": workers}))
    else:
        workers = max(1, threads)
        load = load_in_threads(read, threads=workers)
    return StreamExtractor(engine, inputs.recipe, load, queue.folder, decoder), workers


def _failure_watch(inputs: InputSet, done: Sequence[DoneRecord]) -> Callable[[JobResult], None]:
    """Stop the run once more items have failed than may: something is wrong with the data, not with a file or two."""
    num_items, share = len(inputs.ids), inputs.max_failures
    failed: dict[str, str] = {}

    def count(items: Iterable[tuple[str, str]]) -> None:
        counted = (one for one in items if (inputs.may_pass(one[1]) or not inputs.judged_later) and inputs.has(one[0]))
        failed.update(counted)

    def watch(result: JobResult) -> None:
        count(result.failed_items)
        error = too_many_failed(failed, num_items, share, items=inputs.recipe.items) if share is not None else None
        if error is not None:
            raise error

    for record in done:
        count(record.failed_items)
    return watch


def _read_threads(session: Session, inputs: InputSet, *, streams: bool) -> int:
    """Streams on every core read their own items; a device wants threads that read ahead of it; tuning may know better."""
    tuned = session.tuned.choice("decode_threads") if inputs.photos is not None and session.settings.workers is None else None
    if tuned is not None:
        session.chose(tuned)
        return int(tuned.value)
    return 0 if streams else session.policy.decode_threads
