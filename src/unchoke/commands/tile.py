"""`tile`: scenes to training tiles with masks and a manifest.

In: DATA as described, scenes of any size. Out: NPZ tiles below `tiles/` in the workspace, `tile_manifest.csv`, and an account of
where the time went. Memory holds a strip of windows for each worker, never a scene. Run again after a kill, or for no reason at
all, it goes on from what is there. Scenes that cannot be read are named; the others are tiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unchoke.core.boxes import plan_boxes
from unchoke.core.events import OnEvent
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_count
from unchoke.jobs.queue import JobQueue
from unchoke.runs.session import Session, open_session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling.strip_work import ScenePlan, find_state, plan_scene, plan_work, run_work
from unchoke.scenes.tiling.tile_choices import (
    DEFAULT_TILE_PX,
    Recipe,
    choose_masks,
    choose_recipe,
    choose_workers,
    refuse_overlap,
)
from unchoke.scenes.tiling.tile_outcome import MANIFEST_NAME, conclude
from unchoke.scenes.tiling.tile_result import SceneRow, TileResult
from unchoke.scenes.tiling.tile_scenes import FoundScenes, find_scenes, measure_scales
from unchoke.scenes.tiling.tiles import TileSpec


def tile(
    data: str | Path | None = None,
    *,
    out: Path | str | None = None,
    dry_run: bool = False,
    on_event: OnEvent | None = None,
    **options: Any,
) -> TileResult:
    """Cut scenes into tiles. `options` are those of the command, with underscores."""
    with open_session({"data": data, **options}, out=out, on_event=on_event, remembering=not dry_run) as session:
        pool = HandlePool()
        try:
            workers = choose_workers(session)
            found = find_scenes(session, pool=pool, threads=workers)
            return _rehearse(session, found) if dry_run else _tile_all(session, found, pool=pool, workers=workers)
        finally:
            pool.close()


def tiles_folder(session: Session) -> Path:
    """Where tiles, their jobs and their manifest lie."""
    return session.workspace.root / "tiles"


def _tile_all(session: Session, found: FoundScenes, *, pool: HandlePool, workers: int) -> TileResult:
    """Everything after the scenes are known."""
    masks = choose_masks(session, found.facts)  # one that cannot be made is refused before anything is measured or remembered
    session.remember_settings()
    root = tiles_folder(session)
    root.mkdir(parents=True, exist_ok=True)
    scales = measure_scales(session, found, pool=pool, threads=workers, file=root / "scales.json")
    recipe = choose_recipe(session, found.facts, scales, pool=pool, workers=workers, root=root)
    fingerprint = digest([asdict(recipe), session.settings.edges, session.settings.store])[:32]
    with session.stage("plan"):
        plans = plan_scenes(session, found.facts, scales, recipe, masks, root=root)
        work = plan_work(plans, fingerprint=fingerprint)
        jobs = [one.job for one in work.values()]
        queue = JobQueue.load(root)
        queue.sweep()
        queue.save_plan(jobs)
        state = find_state(queue, jobs, fingerprint=fingerprint)
    for problem in state.problems:
        session.warn(problem)
    given_up: dict[str, str] = {}
    num_run = len(state.pending)
    if state.pending:
        with session.stage("tile", format_count(num_run, "strip")):
            given_up = run_work(session, queue, work, state, pool=pool, workers=workers)
        state = find_state(queue, jobs, fingerprint=fingerprint)
    return conclude(session, found, plans, work, queue, state, recipe=recipe, given_up=given_up, num_run=num_run)


def plan_scenes(
    session: Session,
    facts: Sequence[SceneFacts],
    scales: Mapping[str, SceneScale],
    recipe: Recipe,
    masks: Mapping[str, MaskSource | None],
    *,
    root: Path,
) -> list[ScenePlan]:
    """How each scene's tiles are made, and in which strips; nothing is read."""
    settings = session.settings
    specs = (
        TileSpec(
            facts=one,
            scale=scales[one.scene_id],
            folder="",
            size_px=recipe.tile_px,
            overlap_px=recipe.overlap_px,
            edges=settings.edges,
            mask=masks[one.scene_id],
            compress=recipe.compress,
            store=settings.store,
            min_valid=settings.min_valid,
        )
        for one in facts
    )
    return [plan_scene(spec, root=root) for spec in specs]


def _rehearse(session: Session, found: FoundScenes) -> TileResult:
    """How many tiles there would be, and what they would take uncompressed. Nothing is measured, nothing is written."""
    settings, root = session.settings, tiles_folder(session)
    tile_px = settings.tile_size if settings.tile_size != "auto" else DEFAULT_TILE_PX
    overlap_px = settings.overlap or 0
    refuse_overlap(overlap_px, tile_px)
    masks = choose_masks(session, found.facts)
    rows, size_bytes = [], 0
    for one in found.facts:
        boxes = plan_boxes(one.grid.height, one.grid.width, size_px=tile_px, overlap_px=overlap_px, edges=settings.edges)
        value_bytes = 4 * one.num_bands + 1 + (masks[one.scene_id] is not None)
        size_bytes += sum(box.height * box.width for box in boxes) * value_bytes
        rows.append(SceneRow(one.scene_id, one.grid.width, one.grid.height, one.band_names, len(boxes), 0, ""))
    return TileResult(
        workspace=session.workspace.root,
        data=settings.data or "",
        manifest=root / MANIFEST_NAME,
        tiles=sum(row.tiles for row in rows),
        skipped=0,
        size_bytes=size_bytes,
        num_strips=0,
        num_run=0,
        scenes=rows,
        splits={},
        stages=[],
        timings=dict(session.timers.seconds),
        findings=found.findings,
        set_aside=found.set_aside,
        choices=session.choices,
        has_mask=any(mask is not None for mask in masks.values()),
        dry_run=True,
    )
