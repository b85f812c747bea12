"""From samples to cached features: plan the jobs, run what is left, open the store.

In: a session and the pictures (with their content hashes). Out: a `FeatureStore` and which pictures it holds. Everything
already extracted the same way is reused; what was made another way is never touched. Where the cache is more than a vector for
each picture, it is said beforehand what it costs, and refused if the disk cannot hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, MachineError, list_some
from unchoke.core.timeline import JobTimes
from unchoke.core.units import format_bytes, format_count
from unchoke.features.encoders import Encoder
from unchoke.features.engines import Engine, TorchEngine
from unchoke.features.extract_worker import run_job, set_up
from unchoke.features.extractor import Extractor
from unchoke.features.feature_store import FeatureStore, Placement
from unchoke.features.prepare_engine import Picture, prepare_engine
from unchoke.features.recipe import Recipe
from unchoke.features.stored import open_stored
from unchoke.jobs.job_engines import InProcessEngine, ProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue, QueueState
from unchoke.jobs.records import DoneRecord, JobResult
from unchoke.jobs.run_jobs import run_jobs
from unchoke.machine.backend import empty_cache, is_cpu
from unchoke.machine.memory.memory_watch import return_unused_memory
from unchoke.photos.pixels.image import may_pass
from unchoke.photos.resources import measure_room
from unchoke.runs.session import Session

_LARGEST_SHARD_BYTES = 64_000_000
"""A job holds its whole shard in memory before it is written."""
_MARGIN_BYTES = 2**30
"""What stays free on the disk."""


@dataclass(frozen=True)
class Extracted:
    """The cached features: `present[i]` says whether picture i is there; rows of the store follow the pictures that are.

    `encoder` is the whole network they come from, back on the CPU.
    """

    store: FeatureStore
    recipe: Recipe
    engine: dict[str, Any]
    present: NDArray[np.bool_]
    failed: dict[str, str]
    num_jobs_run: int
    num_images_run: int
    encoder: Encoder

    @property
    def placement(self) -> Placement:
        return self.store.placement


def extract_features(session: Session, pictures: Sequence[Picture]) -> Extracted:
    """Run whatever is not yet cached and open the store for `pictures`."""
    with session.stage("engine", session.settings.encoder):
        frozen = prepare_engine(session, pictures)
    session.remember_settings()
    return_unused_memory()  # converting a model takes several times what running it does
    recipe, engine = frozen.recipe(session.settings.views), frozen.engine
    queue, state = plan_features(session, recipe, pictures)
    for problem in state.problems:
        session.warn(problem)
    if not recipe.is_plain:
        tell_cost(session, recipe, num_pictures=len(pictures), num_pending=sum(len(job.items) for job in state.pending))
    if state.pending:
        with session.stage("extract", format_count(len(state.pending), "job")):
            run_extraction(session, queue, state.pending, recipe, engine, pictures, done=list(state.done.values()))
    stored = open_stored(
        queue, recipe.fingerprint, [picture.sample_id for picture in pictures], done=None if state.pending else state.done
    )
    lost = stored.lost()
    if lost:
        raise DataError(
            f"{len(lost)} images have no features: {list_some(lost)}",
            why="their jobs failed; the .failed files in features/ say why",
            try_="run the same command again to retry them",
        )
    store = FeatureStore(stored.placement, row_shape=recipe.row_shape, num_augmented=recipe.num_augmented)
    num_images = sum(len(job.items) for job in state.pending)
    leave_device(engine, frozen.encoder)
    return Extracted(
        store, recipe, frozen.describe(), stored.present, stored.failed, len(state.pending), num_images, frozen.encoder
    )


def leave_device(engine: Engine, encoder: Encoder) -> None:
    """Bring the frozen weights back, so that training has the device's memory for itself."""
    if isinstance(engine, TorchEngine) and not is_cpu(engine.device):
        encoder.module.to("cpu")
        empty_cache(engine.device)


def tell_cost(session: Session, recipe: Recipe, *, num_pictures: int, num_pending: int) -> None:
    """Say what the cache takes on disk; refuse what would not fit. Only pictures that are not cached yet need room."""
    free_bytes = measure_room(session.workspace.root).disk_bytes
    per_picture, total, pending = (num * recipe.picture_bytes for num in (1, num_pictures, num_pending))
    what = _row_text(recipe)
    if num_pending and pending + _MARGIN_BYTES > free_bytes:
        raise MachineError(
            f"the cache would take {format_bytes(pending)}, and {format_bytes(free_bytes)} are free at {session.workspace.root}",
            why=f"{format_bytes(per_picture)} for each of {format_count(num_pending, 'image')} ({what}), "
            f"and {format_bytes(_MARGIN_BYTES)} should stay free",
            try_="another disk with --out, fewer --views or tiles, --cut end, or --cut none, which keeps pixels instead",
        )
    left = f"{format_bytes(pending)} still to be written" if num_pending else "all of it is there already"
    images = f"{format_count(num_pictures, 'image')} take {format_bytes(total)}"
    reason = f"{what}; {images}, {left}, {format_bytes(free_bytes)} are free"
    evidence = {"image_bytes": per_picture, "total_bytes": total, "pending_bytes": pending, "free_bytes": free_bytes}
    session.chose(Choice("feature_cache", f"{format_bytes(per_picture)} per image", reason, evidence))


def _row_text(recipe: Recipe) -> str:
    """``192×7×7 float16 numbers from tf_efficientnet_lite0 cut at -4, for 8 tiles in 3 views``."""
    numbers = "×".join(map(str, recipe.input_shape))
    tiles = "" if recipe.tiles.is_whole else f", for {recipe.tiles.num_tiles} tiles"
    views = f"{' in' if tiles else ', for'} {1 + recipe.num_augmented} views" if recipe.num_augmented else ""
    return f"{numbers} float16 numbers from {recipe.network}{tiles}{views}"


def plan_features(session: Session, recipe: Recipe, pictures: Sequence[Picture]) -> tuple[JobQueue, QueueState]:
    """Bring `jobs_queue.csv` up to date; sweep what an earlier kill left; take back files that were only out of reach."""
    queue = JobQueue.load(session.workspace.features)
    queue.sweep()
    items = [(picture.sample_id, picture.content) for picture in pictures]
    wanted = {picture.sample_id for picture in pictures}
    queue.reopen(recipe.fingerprint, lambda record: any(id_ in wanted and may_pass(why) for id_, why in record.failed_items))
    state = queue.plan(
        items, fingerprint=recipe.fingerprint, output_pattern=recipe.output_pattern, job_size=job_size(session, recipe)
    )
    return queue, state


def job_size(session: Session, recipe: Recipe) -> int:
    """Images for each job: as set, but no more than give a shard that may be held in memory."""
    largest = max(1, _LARGEST_SHARD_BYTES // recipe.picture_bytes)
    return session.settings.job_size if recipe.is_plain else min(session.settings.job_size, largest)


def run_extraction(
    session: Session,
    queue: JobQueue,
    jobs: Sequence[Job],
    recipe: Recipe,
    engine: Engine,
    pictures: Sequence[Picture],
    *,
    done: Sequence[DoneRecord] = (),
) -> None:
    """Run `jobs`: in worker processes where plain torch runs on the CPU, in threads of this process otherwise.

    `done` are the records of jobs finished earlier; they count in the progress, and what failed in them as failed.
    """
    paths = {picture.sample_id: picture.path for picture in pictures}
    body: Callable[[Job], JobResult] = Extractor(engine, recipe, paths, queue.folder, _decode_threads(session, engine))
    runner: InProcessEngine | ProcessEngine = InProcessEngine(slots=_slots(engine))
    readers = _slots(engine) * max(1, _decode_threads(session, engine))
    setup: Callable[..., None] | None = None
    setup_args: tuple[Any, ...] = ()
    if isinstance(engine, TorchEngine) and is_cpu(engine.device) and len(jobs) > session.policy.workers > 1:
        weights = Path(session.settings.weights) if session.settings.weights else None
        body, runner, readers = run_job, ProcessEngine(session.policy.workers), session.policy.workers
        setup, setup_args = set_up, (recipe, weights, paths, queue.folder, engine.batch, engine.channels_last)
    times, watch = JobTimes(), _failure_watch(session.settings.max_failures, paths, done)

    def heed(job: Job, result: JobResult) -> None:
        times.add(result.info)
        watch(job, result)

    num_threads = torch.get_num_threads()
    if engine.name == "openvino":
        torch.set_num_threads(1)  # the streams use the cores; torch only resizes single pictures
    try:
        run_jobs(
            queue,
            jobs,
            body,
            engine=runner,
            setup=setup,
            setup_args=setup_args,
            info={"encoder": recipe.encoder.name, "fingerprint": recipe.fingerprint, **engine.describe()},
            max_failed_jobs=max(2, len(jobs) // 10),
            on_event=session.on_event,
            stage="extract",
            unit="images",
            jobs_before=len(done),
            items_before=sum(record.num_items for record in done),
            on_result=heed,
            extra=times.progress,
        )
    finally:
        torch.set_num_threads(num_threads)  # training counts on them
    session.timelines["extract"] = times.timeline(readers=readers)


def _failure_watch(max_share: float, wanted: Collection[str], done: Sequence[DoneRecord]) -> Callable[[Job, JobResult], None]:
    """Stop the run once more pictures have failed than may: something is wrong with the data, not with a file or two."""
    total = len(wanted)
    failed = [f"{sample_id} ({reason})" for record in done for sample_id, reason in record.failed_items if sample_id in wanted]

    def watch(job: Job, result: JobResult) -> None:
        failed.extend(f"{sample_id} ({reason})" for sample_id, reason in result.failed_items)
        if len(failed) > max_share * total:
            raise DataError(
                f"{len(failed)} of {total} images could not be read: {list_some(failed, limit=3)}",
                why=f"at most a share of {max_share:g} may fail",
                try_="mend the files, or allow more with --max-failures 0.2",
            )

    return watch


def _slots(engine: Engine) -> int:
    """Jobs in flight: one for each stream; elsewhere two, so that one is loaded and written while the other is computed."""
    return engine.slots if engine.name == "openvino" else 2


def _decode_threads(session: Session, engine: Engine) -> int:
    """Streams on every core decode their own pictures; a device wants threads that decode ahead of it; tuning may know better."""
    tuned = session.tuned.choice("decode_threads")
    if tuned is not None and session.settings.workers is None:
        session.chose(tuned)
        return int(tuned.value)
    return 0 if engine.name == "openvino" else session.policy.decode_threads
