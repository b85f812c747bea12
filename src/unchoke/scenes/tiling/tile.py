"""`tile`: scenes to training tiles with masks and a manifest.

In: DATA as described, scenes of any size. Out: NPZ tiles below `tiles/` in the workspace, `tile_manifest.csv`, and an account of
where the time went. Memory holds a strip of windows for each worker, never a scene. Run again after a kill, or for no reason at
all, it goes on from what is there. Scenes that cannot be read are named; the others are tiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unchoke.core.boxes import Box, plan_boxes
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_count
from unchoke.jobs.queue import JobQueue
from unchoke.runs.session import Session, open_session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import set_aside
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling.strip_work import find_state, plan_scene, plan_work, run_work
from unchoke.scenes.tiling.tile_choices import (
    choose_masks,
    choose_recipe,
    choose_scales,
    choose_workers,
    open_for_tiles,
    refuse_overlap,
    rehearse_tile_px,
    tile_specs,
    tiles_folder,
)
from unchoke.scenes.tiling.tile_outcome import MANIFEST_NAME, conclude
from unchoke.scenes.tiling.tile_result import SceneRow, TileResult


def tile(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    dry_run: bool = False,
    on_event: OnEvent | None = None,
    **options: Any,
) -> TileResult:
    """Scenes to training tiles: band files, multi-band files or large images, cut into NPZ windows with masks and a manifest.

    Args:
        data: Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be done, and write no tile.

    Returns:
        The tiles, the manifest that lists them, and the scenes that could not be read.

    Example:
        >>> unchoke.tile("scenes/", out="tiled", tile_size=64).ok
        True
    """
    with (
        open_session({"data": data, **options}, out=out, on_event=on_event, remembering=not dry_run) as session,
        closing(HandlePool()) as pool,
    ):
        workers = choose_workers(session)
        facts, findings = open_for_tiles(session, pool=pool, threads=workers)
        if dry_run:
            return _rehearse(session, facts, findings)
        return _tile_all(session, facts, findings, pool=pool, workers=workers)


def _tile_all(
    session: Session, facts: Sequence[SceneFacts], findings: Sequence[Finding], *, pool: HandlePool, workers: int
) -> TileResult:
    """Everything after the scenes are known."""
    masks = choose_masks(session, facts)  # one that cannot be made is refused before anything is measured or remembered
    session.remember_settings()
    root = tiles_folder(session)
    root.mkdir(parents=True, exist_ok=True)
    scales, facts, findings = choose_scales(session, facts, findings, pool=pool, threads=workers, file=root / "scales.json")
    recipe = choose_recipe(session, facts, scales, pool=pool, workers=workers, root=root)
    fingerprint = digest([asdict(recipe), session.settings.edges, session.settings.store])[:32]
    with session.stage("plan"):
        plans = [plan_scene(spec, root=root) for spec in tile_specs(session, facts, scales, masks, recipe)]
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
    return conclude(session, findings, plans, work, queue, state, recipe=recipe, given_up=given_up, num_run=num_run)


def _rehearse(session: Session, facts: Sequence[SceneFacts], findings: list[Finding]) -> TileResult:
    """How many tiles there would be, and what they would take uncompressed. Nothing is measured, nothing is written."""
    settings = session.settings
    overlap_px = settings.overlap or 0

    def boxes_of(one: SceneFacts, tile_px: int) -> list[Box]:
        return plan_boxes(one.grid.height, one.grid.width, size_px=tile_px, overlap_px=overlap_px, edges=settings.edges)

    def count(tile_px: int) -> int:
        return sum(len(boxes_of(one, tile_px)) for one in facts)

    tile_px = rehearse_tile_px(session, facts, count, root=tiles_folder(session))
    refuse_overlap(overlap_px, tile_px)
    masks = choose_masks(session, facts)
    rows, size_bytes = [], 0
    for one in facts:
        boxes = boxes_of(one, tile_px)
        value_bytes = 4 * one.num_bands + 1 + (masks[one.scene_id] is not None)
        size_bytes += sum(box.height * box.width for box in boxes) * value_bytes
        rows.append(SceneRow(one.scene_id, one.grid.width, one.grid.height, one.band_names, len(boxes), 0, ""))
    return TileResult(
        workspace=session.workspace.root,
        data=settings.data or "",
        manifest=tiles_folder(session) / MANIFEST_NAME,
        tiles=sum(row.tiles for row in rows),
        skipped=0,
        size_bytes=size_bytes,
        num_strips=0,
        num_run=0,
        scenes=rows,
        splits={},
        stages=[],
        timings=dict(session.timers.seconds),
        findings=findings,
        set_aside=set_aside(findings),
        choices=session.choices,
        has_mask=any(mask is not None for mask in masks.values()),
        dry_run=True,
    )
