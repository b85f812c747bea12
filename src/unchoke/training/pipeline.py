"""What `fit`, `train` and `extract` do once the samples are known: everything that needs torch.

In: a session and inspected samples. Out: a run that is recorded, features that are kept, or what would be done. Imported late, so
that commands which find everything done load nothing heavy.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core.choices import UNSCORED, Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding, rank
from unchoke.core.prefetch import Prefetch
from unchoke.core.settings import Settings
from unchoke.core.text_column import TextColumn
from unchoke.data.check_samples import Inspection, refuse_errors, set_aside, settle, tell_findings
from unchoke.data.file_findings import estimate_need
from unchoke.data.manifest import save_manifest
from unchoke.features.choose_encoder import choose_encoder
from unchoke.features.cut import NONE
from unchoke.features.encoders import check_encoder
from unchoke.features.extraction import extract_features, picture_inputs, plan_features, run_extraction
from unchoke.features.prepare_engine import PictureTable, prepare_encoder
from unchoke.runs.session import Session
from unchoke.training.build_record import RunMaterial
from unchoke.training.data import build_problem
from unchoke.training.heads.head_trainer import warm_up_heads
from unchoke.training.inputs import disk_bytes, prepare_inputs, trains_network
from unchoke.training.ladder.ladder_trainer import LadderTrainer, begin_ladder
from unchoke.training.results import ExtractResult, FitResult, Rehearsal
from unchoke.training.run_training import Trainer, keeping_stretches, run_training
from unchoke.training.scoring.copies_across_splits import join_near_copies
from unchoke.training.scoring.group_gap import tell_group_gap


def go_on(
    session: Session, prepared: Inspection, findings: list[Finding], *, command: str
) -> tuple[FitResult, Inspection | None]:
    """Everything after the gate. Returns the samples too, unless some could not be read that may be readable the next time."""
    with keeping_stretches(session):
        material, trainer, prepared = prepare_training(session, prepared, findings, command=command)
        laddered = session.settings.minutes is not None  # what its models will be is not known yet
        planned_bytes = None if laddered else _need(session, len(prepared.samples)).memory_bytes
        record, already_done = run_training(session, material, trainer, planned_bytes=planned_bytes)
    unread = any(row.stage == "extract" for row in material.quarantined)
    return FitResult(record, session.workspace.root, already_done), None if unread else prepared


def prepare_training(
    session: Session, prepared: Inspection, findings: list[Finding], *, command: str
) -> tuple[RunMaterial, Trainer, Inspection]:
    """Make sure that everything training reads is there. Returns what the run is made from, what will train it, and the samples
    as they are known once all were decoded.
    """
    save_manifest(prepared.samples, session.workspace.manifest_file)
    pictures = sound_pictures(prepared)
    if session.settings.minutes is None:
        choose_encoder(session, len(pictures))
    heads_only = not trains_network(session.settings) and session.settings.memory is None
    with Prefetch(warm_up_heads(session)) if heads_only else nullcontext():  # on a GPU, kernels load while features are extracted
        inputs = prepare_inputs(begin_ladder(session) if session.settings.minutes else session, pictures)
    kept = prepared.sound.to_numpy().copy()
    kept[np.flatnonzero(kept)] = inputs.present
    before, (prepared, later) = prepared, settle(session, prepared, inputs.failed)
    if command == "fit":
        refuse_errors(session, later)
    else:
        tell_findings(session, later)
    outdated = [finding for finding in before.findings if finding not in prepared.findings]
    findings = rank([finding for finding in findings if finding not in outdated] + later)
    quarantined = set_aside(session, prepared, inputs.failed)
    samples, contents = prepared.samples, prepared.facts["content"]
    alike, near = join_near_copies(session, samples.subset(kept.tolist()), contents[kept].tolist(), inputs.features)
    tell_findings(session, near)
    findings = rank(findings + near)
    learnable = build_problem(samples, contents, kept, alike=alike)
    if learnable.unscored:
        reason = "images of val and test are left out of the score: they have a copy in another split, or under another label"
        session.chose(Choice(UNSCORED, len(learnable.unscored), reason))
    gap, findings = tell_group_gap(session, learnable, inputs.features, findings)
    material = RunMaterial(learnable, inputs.encoder, findings, quarantined, command, gap)
    trainer: Trainer
    if session.settings.minutes:
        readable = [picture for picture, there in zip(pictures, inputs.present, strict=True) if there]
        trainer = LadderTrainer(session, learnable, readable, inputs)
    else:
        trainer = inputs.trainer(learnable)
    return material, trainer, prepared


def sound_pictures(prepared: Inspection) -> PictureTable:
    """The pictures worth sending to the encoder, in the order of the samples."""
    sound = prepared.sound.to_numpy()
    if not sound.any():
        raise DataError(
            "none of the images can be read",
            code="unreadable-photos",
            why="every file failed",
            try_="unchoke check DATA says what is wrong with each",
        )
    frame, facts = prepared.samples.frame, prepared.facts
    columns = (frame["sample_id"], frame["path"], facts["content"])
    ids, paths, contents = (TextColumn(column if sound.all() else column[sound]) for column in columns)
    return PictureTable(ids, paths, contents, facts["decoded"].to_numpy(dtype=bool)[sound])


def extract_all(session: Session, prepared: Inspection) -> ExtractResult:
    """Everything that is not cached yet."""
    save_manifest(prepared.samples, session.workspace.manifest_file)
    pictures = sound_pictures(prepared)
    choose_encoder(session, len(pictures))
    extracted = extract_features(session, pictures)
    prepared, _ = settle(session, prepared, extracted.failed)
    set_aside(session, prepared, extracted.failed)
    return ExtractResult(
        num_images=extracted.num_items_run,
        num_jobs=extracted.num_jobs_run,
        num_jobs_left=0,
        num_failed=len(extracted.failed),
        fingerprint=extracted.recipe.fingerprint,
        folder=str(session.workspace.features / extracted.recipe.folder),
        workspace=session.workspace.root,
        seconds=session.timers.seconds.get("extract", 0.0),
        choices=session.choices,
    )


def extract_some(session: Session, prepared: Inspection, *, job: str | None, dry_run: bool) -> ExtractResult:
    """One job by hand, or a look at what would be run."""
    pictures = sound_pictures(prepared)
    choose_encoder(session, len(pictures), fetching=not dry_run)
    frozen = prepare_encoder(session, pictures)
    recipe = frozen.recipe(session.settings.views)
    inputs = picture_inputs(session, recipe, pictures, frozen=frozen)
    queue, state = plan_features(session, inputs)
    chosen = [queue.job(job)] if job is not None else state.pending
    if job is not None and chosen[0].fingerprint != recipe.fingerprint:
        ours = [one.job_id for one in queue.jobs(recipe.fingerprint)]
        raise UsageError(
            f"job {job} belongs to features made another way",
            code="job-of-other-features",
            why=f"with the settings in force the jobs are {list_some(ours)}; features of two kinds are never mixed",
            try_="repeat the --encoder, --weights, --views, --engine and --precision the job was planned with",
        )
    started = time.perf_counter()
    if not dry_run:
        run_extraction(session, queue, chosen, inputs, frozen.engine)
        state = queue.state(recipe.fingerprint, verify=False)
        if failed := [one.job_id for one in chosen if one.job_id not in state.done]:
            raise DataError(
                f"job {list_some(failed)} failed",
                code="jobs-failed",
                why="every attempt did; the .failed files in features/ say why",
                try_="remove the cause and run the same command again",
            )
    return ExtractResult(
        num_images=sum(len(one.items) for one in chosen),
        num_jobs=len(chosen),
        num_jobs_left=len(state.pending),
        num_failed=sum(record.num_failed for record in state.done.values()),
        fingerprint=recipe.fingerprint,
        folder=str(session.workspace.features / recipe.folder),
        workspace=session.workspace.root,
        seconds=0.0 if dry_run else time.perf_counter() - started,
        dry_run=dry_run,
        choices=session.choices,
    )


def rehearse(session: Session, prepared: Inspection, findings: list[Finding]) -> Rehearsal:
    """What `fit` would do, and what it would take."""
    num_sound = int(prepared.sound.sum())
    if session.settings.minutes is None:
        choose_encoder(session, num_sound, fetching=False)
    settings = session.settings
    check_encoder(
        settings.encoder, weights=None if settings.weights is None else Path(settings.weights), input_px=settings.input_px
    )
    session.choices += session.policy.choices
    # Exactly for the caches of a network, roughly for pooled features.
    whole = trains_network(settings)
    on_disk = disk_bytes(session, sound_pictures(prepared)) if whole else int(_need(session, num_sound).disk_bytes)
    return Rehearsal(
        workspace=session.workspace.root,
        num_samples=len(prepared.samples),
        num_quarantined=len(prepared.samples) - num_sound,
        num_jobs=0 if settings.cut == NONE else math.ceil(num_sound / settings.job_size),
        disk_bytes=on_disk,
        choices=session.choices,
        findings=findings,
    )


def _need(session: Session, num_samples: int) -> Any:
    settings = session.settings
    return estimate_need(num_samples, num_views=1 + settings.views, default_encoder=settings.encoder == Settings().encoder)
