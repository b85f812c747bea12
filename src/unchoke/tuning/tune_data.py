"""What `unchoke tune` works on: a sample of the user's pictures, and the very training a run would do, over that sample.

In: a session. Out: a `Sample`, and from it a `PhotoJob`. The files are not all looked into, as `check` does: tuning takes a
bounded time whatever the data's size. A picture of the sample that does not decode is left out, and counted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from unchoke.core.errors import DataError, MachineError
from unchoke.core.events import ignore
from unchoke.core.fingerprint import hash_int
from unchoke.data.check_samples import recall_splits_before, scan_corrected, tied_before
from unchoke.data.sample_set import Samples
from unchoke.data.splits import assign_splits
from unchoke.data.targets import check_target_names
from unchoke.features.encoders import Encoder
from unchoke.features.prepare_engine import Picture
from unchoke.machine.backend import has_glibc, is_cpu, torch_device
from unchoke.pixels.image import DecodeError, read_image
from unchoke.runs.session import Session
from unchoke.training.data import LearningTask, Problem, build_problem
from unchoke.training.network.loop_choices import TrainedPart, choose_loop
from unchoke.training.network.photo_job import PhotoJob, SourceSpec
from unchoke.training.network.photo_trainer import network_spec, targets_of
from unchoke.training.network.prepare_pixels import StoredPixels, choose_cache, plan_pixels
from unchoke.training.scoring.selection import choose_metric
from unchoke.tuning.switches import Circumstances

_LOOKED_AT_PX = 64
PICTURES = 96
"""How many pictures are enough: a few batches, and a spread of sizes and contents."""


@dataclass(frozen=True, eq=False)
class Sample:
    """What a run would learn from all the data, and the few pictures it is rehearsed on."""

    learnable: LearningTask
    pictures: list[Picture]
    num_unreadable: int


def quiet(session: Session) -> Session:
    """The same session, telling and remembering nothing, as if nothing had been tuned yet."""
    return replace(session, on_event=ignore, choices=[], remembering=False, heeds_tuned=False)


def split_samples(session: Session) -> Samples:
    """All samples, with their splits as a run would divide them."""
    settings = session.settings
    scan, corrected = scan_corrected(session)
    check_target_names(settings, scan.samples.task.names, kind=scan.samples.task.kind)
    samples, _ = assign_splits(
        scan.samples,
        val_share=settings.val_share,
        test_share=settings.test_share,
        folds=settings.folds,
        fold=settings.test_fold,
        seed=settings.seed,
        previous=tied_before(recall_splits_before(session, scan), corrected),
        weights=settings.target_weights,
    )
    return samples


def take_sample(session: Session, *, num: int = PICTURES) -> Sample:
    """Look at what there is, and pick up to `num` pictures of the train split that decode, spread by hash."""
    samples = split_samples(session)
    unknown = pd.Series([""] * len(samples), index=samples.frame.index, dtype="str")
    learnable = build_problem(samples, unknown, np.ones(len(samples), np.bool_))
    frame = learnable.frame.iloc[learnable.problem.positions("train")]
    pictures: list[Picture] = []
    num_unreadable = 0
    named = sorted(zip(frame["sample_id"], frame["path"], strict=True), key=lambda one: hash_int("sample", one[0]))
    for sample_id, path in named:
        if len(pictures) >= num or num_unreadable > num:
            break
        try:
            read_image(path, cover_px=_LOOKED_AT_PX)
        except DecodeError:
            num_unreadable += 1
            continue
        pictures.append(Picture(sample_id, path, ""))
    if not pictures:
        raise DataError(
            f"none of {num_unreadable} pictures can be read",
            code="unreadable-photos",
            why="tuning runs on your own pictures",
            try_="unchoke check DATA says what is wrong with each",
        )
    return Sample(learnable, pictures, num_unreadable)


def pixel_source(session: Session, sample: Sample, encoder: Encoder) -> StoredPixels:
    """The sampled pictures as pixels, to be kept where all of the user's would be."""
    silent, num = quiet(session), len(sample.learnable.problem.sample_ids)
    stored = plan_pixels(silent, sample.pictures, encoder)
    cache = choose_cache(silent, stored.canvas, num, stored.folder, session.settings.cache)
    return replace(stored, cache=cache, augment=session.settings.augment or "light")


def training_job(session: Session, sample: Sample, encoder: Encoder, source: SourceSpec) -> PhotoJob:
    """The training a run would do, settled for all the data and run on the sample."""
    silent, whole, inputs = quiet(session), sample.learnable.problem, sample.learnable.inputs
    targets = targets_of(session.settings, sample.learnable)
    place = {sample_id: position for position, sample_id in enumerate(whole.sample_ids)}
    ids = [picture.sample_id for picture in sample.pictures]
    rows = np.array([place[sample_id] for sample_id in ids], np.int64)
    train = {"train": np.arange(len(rows), dtype=np.int64)}  # all of them to train on
    return PhotoJob(
        network=network_spec(session.settings, encoder),
        source=source,
        targets=targets,
        inputs=None if inputs is None else inputs[rows],
        problem=Problem(whole.kind, whole.names, whole.targets[rows], train, ids),
        loop=choose_loop(silent, whole, TrainedPart.of(encoder, session.settings.cut)),
        metric=str(choose_metric(whole, targets).value),
        device=silent.policy.device,
        workers=silent.policy.workers,
        pin=silent.policy.pin_memory,
    )


def circumstances(session: Session, sample: Sample, encoder: Encoder, job: PhotoJob) -> Circumstances:
    """What decides which switches apply to this training on this machine."""
    source, on_cpu = job.source, is_cpu(torch_device(job.device))
    part = TrainedPart.of(encoder, session.settings.cut)
    fitting: list[str] = []  # where all of the user's decoded pictures could be kept
    if isinstance(source, StoredPixels):
        for mode in ("ram", "disk", "none"):
            with suppress(MachineError):
                choose_cache(quiet(session), source.canvas, len(sample.learnable.problem.sample_ids), source.folder, mode)
                fitting.append(mode)
    return Circumstances(
        on_cpu=on_cpu,
        has_bf16=session.machine.has_bf16_instructions,
        convolutions=part.convolutions,
        batch_norm_trains=part.batch_norm and job.loop.batch_norm == "train",
        memory_is_planned=session.settings.memory is not None or not on_cpu,
        caches=tuple(fitting),
        glibc=has_glibc(),
    )
