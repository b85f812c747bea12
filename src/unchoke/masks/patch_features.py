"""Patches to cached pyramids: plan the jobs, run what is left, open the store.

In: a session and a `PatchMaterial`. Out: a `PyramidStore` whose rows follow the material's patches. What was extracted the same
way is reused; what it costs is said beforehand, and refused if the disk cannot hold it. A scene that breaks on the way is named,
its patches are set aside, and the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, MachineError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.timeline import JobTimes
from unchoke.core.units import format_bytes, format_count
from unchoke.core.workspace import safe_name
from unchoke.features.prepare_pyramid import COMPARED, choose_pyramid_engine
from unchoke.features.pyramid import PyramidEngine
from unchoke.features.pyramid_store import PyramidStore
from unchoke.features.stored import Stored, open_stored
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.jobs.queue import JobQueue, QueueState
from unchoke.jobs.run_jobs import run_jobs
from unchoke.machine.memory.memory_watch import return_unused_memory
from unchoke.masks.extract_patches import PyramidExtractor
from unchoke.masks.patches import save_patch_manifest
from unchoke.masks.prepare_patches import READING, PatchMaterial, parents_of, patch_contents, prepare_patches
from unchoke.photos.resources import measure_room
from unchoke.runs.session import Session
from unchoke.scenes.open_scenes import set_aside
from unchoke.scenes.scene_facts import SceneError

__all__ = ["PatchMaterial", "PyramidFeatures", "extract_pyramids", "prepare_patches"]

_LARGEST_SHARD_BYTES = 64_000_000
"""A job holds its whole shard in memory before it is written."""
_MARGIN_BYTES = 2**30
"""What stays free on the disk."""


@dataclass(frozen=True)
class PyramidFeatures:
    """Cached pyramids of the material's patches, by position; `num_run` patches were encoded now, the others were there."""

    store: PyramidStore
    engine: dict[str, Any]
    fingerprint: str
    num_run: int
    engine_object: PyramidEngine


def extract_pyramids(session: Session, material: PatchMaterial) -> PyramidFeatures:
    """Encode whatever is not cached yet, and open the store. Patches that cannot be read leave the material, with a finding."""
    num_augmented = session.settings.views
    with session.stage("engine", session.settings.encoder):
        sample = _sample(material)
        engine = choose_pyramid_engine(session, material.pyramid, material.spec, sample)
    return_unused_memory()  # converting a model takes several times what running it does
    fingerprint = _fingerprint(material, engine, num_augmented)
    patch_bytes = 2 * material.spec.row_length * (1 + num_augmented)
    queue, state = _plan(session, material, fingerprint, patch_bytes)
    for problem in state.problems:
        session.warn(problem)
    num_pending = sum(len(job.items) for job in state.pending)
    _tell_cost(session, material, patch_bytes, num_augmented=num_augmented, num_pending=num_pending)
    if state.pending:
        with session.stage("extract", format_count(len(state.pending), "job")):
            _run(session, material, queue, state, engine, fingerprint, num_augmented)
    stored = open_stored(queue, fingerprint, [patch.patch_id for patch in material.patches])
    _set_aside(session, material, stored)
    store = PyramidStore(stored.placement, spec=material.spec, num_augmented=num_augmented)
    material.manifest_file = _save_manifest(session, material, store)
    return PyramidFeatures(store, engine.describe(), fingerprint, num_pending, engine)


def _sample(material: PatchMaterial) -> NDArray[np.float16]:
    """Some of the user's patches, spread by hash; extraction names those that cannot be read."""
    found: list[NDArray[np.float16]] = []
    for patch in sorted(material.patches, key=lambda patch: hash_int("sample", patch.patch_id)):
        if len(found) >= COMPARED:
            break
        try:
            found.append(material.reader.read(patch.scene_id, patch.box)[0])
        except SceneError:
            continue
    spec = material.spec
    return np.stack(found) if found else np.empty((0, spec.num_bands, spec.patch_px, spec.patch_px), np.float16)


def _fingerprint(material: PatchMaterial, engine: PyramidEngine, num_augmented: int) -> str:
    """How patches become rows. What differs from scene to scene (files, grid, scale) is in each patch's content instead."""
    return digest(
        {
            "pyramid": material.spec.to_dict(),
            "reading": READING,
            "bands": list(material.band_names),
            "standard": material.standard.to_dict(),
            "views": {"augmented": num_augmented, "how": "turned and mirrored; version 1" if num_augmented else ""},
            "engine": engine.name,
            "precision": engine.precision,
        }
    )


def _plan(session: Session, material: PatchMaterial, fingerprint: str, patch_bytes: int) -> tuple[JobQueue, QueueState]:
    """Bring `jobs_queue.csv` up to date; sweep what an earlier kill left; try again what failed before."""
    queue = JobQueue.load(session.workspace.features)
    queue.sweep()
    contents = patch_contents(material)
    queue.reopen(fingerprint, lambda record: any(patch_id in contents for patch_id, _ in record.failed_items))
    folder = f"encoder_{safe_name(material.spec.encoder)}-{fingerprint[:8]}"
    state = queue.plan(
        [(patch.patch_id, contents[patch.patch_id]) for patch in material.patches],
        fingerprint=fingerprint,
        output_pattern=folder + "/img_{first:06d}-{last:06d}.npz",
        job_size=max(1, min(session.settings.job_size, _LARGEST_SHARD_BYTES // patch_bytes)),
    )
    return queue, state


def _tell_cost(session: Session, material: PatchMaterial, patch_bytes: int, *, num_augmented: int, num_pending: int) -> None:
    """Say what the cache takes on disk; refuse what would not fit. Only patches that are not cached yet need room."""
    free_bytes = measure_room(session.workspace.root).disk_bytes
    num_patches, pending = len(material.patches), num_pending * patch_bytes
    levels = ", ".join("×".join(map(str, shape)) for shape in material.spec.shapes)
    views = f", in {1 + num_augmented} views" if num_augmented else ""
    what = f"float16 maps of {material.spec.encoder}: {levels}{views}"
    if num_pending and pending + _MARGIN_BYTES > free_bytes:
        raise MachineError(
            f"the cache would take {format_bytes(pending)}, and {format_bytes(free_bytes)} are free at {session.workspace.root}",
            why=f"{format_bytes(patch_bytes)} for each of {format_count(num_pending, 'patch', 'patches')} ({what}), "
            f"and {format_bytes(_MARGIN_BYTES)} should stay free",
            try_="another disk with --out, coarser --strides 8,16,32, fewer --views, or --cut none, which keeps pixels instead",
        )
    left = f"{format_bytes(pending)} still to be written" if num_pending else "all of it is there already"
    total = num_patches * patch_bytes
    patches = f"{format_count(num_patches, 'patch', 'patches')} take {format_bytes(total)}"
    evidence = {"patch_bytes": patch_bytes, "total_bytes": total, "pending_bytes": pending, "free_bytes": free_bytes}
    reason = f"{what}; {patches}, {left}, {format_bytes(free_bytes)} are free"
    session.chose(Choice("feature_cache", f"{format_bytes(patch_bytes)} per patch", reason, evidence))


def _run(
    session: Session,
    material: PatchMaterial,
    queue: JobQueue,
    state: QueueState,
    engine: PyramidEngine,
    fingerprint: str,
    num_augmented: int,
) -> None:
    """Run the pending jobs in threads of this process: streams read their own patches, a device has them read ahead."""
    streams = engine.name == "openvino"
    slots = engine.slots if streams else 2
    read_threads = 0 if streams else session.policy.decode_threads
    times = JobTimes()
    body = PyramidExtractor(
        engine,
        material.spec,
        material.reader,
        {patch.patch_id: patch for patch in material.patches},
        queue.folder,
        num_augmented,
        read_threads=read_threads,
    )
    done = list(state.done.values())
    run_jobs(
        queue,
        state.pending,
        body,
        engine=InProcessEngine(slots=slots),
        info={"encoder": material.spec.encoder, "fingerprint": fingerprint, **engine.describe()},
        max_failed_jobs=max(2, len(state.pending) // 10),
        on_event=session.on_event,
        stage="extract",
        unit="patches",
        jobs_before=len(done),
        items_before=sum(record.num_items for record in done),
        on_result=lambda _, result: times.add(result.info),
        extra=times.progress,
    )
    session.timelines["extract"] = times.timeline(readers=slots * max(1, read_threads))


def _set_aside(session: Session, material: PatchMaterial, stored: Stored) -> None:
    """Leave out the patches that could not be read, and say so scene by scene; none left, or a job given up, is an error."""
    if lost := stored.lost():
        raise DataError(
            f"{len(lost)} patches have no features: {list_some(lost)}",
            why="their jobs failed; the .failed files in features/ say why",
            try_="run the same command again to retry them",
        )
    if stored.present.all():
        return
    findings = _failed_scenes(material, stored)
    for finding in findings:
        session.warn(finding.message)
    material.keep(np.flatnonzero(stored.present))
    material.findings += findings
    material.quarantined += set_aside(findings)
    if not any(patch.split == "train" for patch in material.patches):
        raise DataError(
            "no patch is left to train on",
            why=list_some([finding.message for finding in findings], limit=3),
            try_="mend the files named above and run the same command again",
        )


def _failed_scenes(material: PatchMaterial, stored: Stored) -> list[Finding]:
    reasons: dict[str, list[str]] = {}
    for position in np.flatnonzero(~stored.present).tolist():
        patch = material.patches[position]
        reasons.setdefault(patch.scene_id, []).append(stored.failed[patch.patch_id])
    parents = parents_of(material.facts)
    return [
        Finding(
            "broken-scene",
            f"{format_count(len(why), 'patch', 'patches')} of scene {scene_id} could not be read: {why[0]}",
            severity="error",
            path=parents[scene_id],
            stage="extract",
            evidence={"scene": scene_id, "patches": len(why)},
            fix="mend the file and run the same command again",
        )
        for scene_id, why in reasons.items()
    ]


def _save_manifest(session: Session, material: PatchMaterial, store: PyramidStore) -> Path:
    root = session.workspace.root
    shards = [shard.relative_to(root).as_posix() for shard in store.placement.shards]
    features = {
        patch.patch_id: shards[shard] for patch, shard in zip(material.patches, store.placement.shard_of.tolist(), strict=True)
    }
    return save_patch_manifest(root / "patches", material.patches, parents=parents_of(material.facts), features=features)
