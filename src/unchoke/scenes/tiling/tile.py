"""`tile`: scenes to training tiles with masks and a manifest.

In: DATA as described, scenes of any size. Out: NPZ tiles below `tiles/` in the workspace, `tile_manifest.csv`, and an account of
where the time went. Memory holds a strip of windows for each worker, never a scene. Run again after a kill, or for no reason at
all, it continues from what is there. Scenes that cannot be read are named; the others are tiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unchoke.core import checksums
from unchoke.core.boxes import plan_boxes
from unchoke.core.choices import Choice
from unchoke.core.errors import DamagedFile, UsageError, list_some
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes, format_count
from unchoke.jobs.queue import JobQueue
from unchoke.machine.detect import machine_memory, usable_cores
from unchoke.runs.session import Session, open_session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource, choose_mask
from unchoke.scenes.npz import Compress
from unchoke.scenes.open_scenes import find_scenes, measure_scales, open_scenes, require_scenes, set_aside
from unchoke.scenes.scale import SceneScale, sampling_text
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling.tile_jobs import find_state, plan_jobs, run_work
from unchoke.scenes.tiling.tile_result import MANIFEST_NAME, SceneRow, TileResult, conclude
from unchoke.scenes.tiling.tiles import TileSpec

DEFAULT_TILE_PX = 512
DEFAULT_NORMALISE = "max"
_BLOCKS_PX = range(16, 1025)
"""Blocks of other sides say nothing about tiles."""
_STRIP_ROOM_BYTES = 512 << 20
"""Memory for each worker: the arrays of a strip, its packed tiles, and what GDAL keeps."""


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
        tile_px = choose_tile_px(session, facts)
        masks = choose_masks(session, facts)  # one that cannot be made is refused before anything is measured or remembered
        if dry_run:
            return _rehearse(session, facts, findings, tile_px, masks)
        session.remember_settings()
        root = tiles_folder(session)
        specs, findings = plan_specs(session, facts, findings, masks, tile_px=tile_px, pool=pool, threads=workers)
        first, settings = specs[0], session.settings
        recipe = {"tile_px": tile_px, "overlap_px": first.overlap_px, "compress": first.compress}
        fingerprint = digest([recipe, settings.edges, settings.store])[:32]
        with session.stage("plan"):
            work = plan_jobs(specs, fingerprint=fingerprint)
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
        return conclude(session, findings, work, queue, state, given_up=given_up, num_run=num_run)


def choose_workers(session: Session) -> int:
    """As typed, or one for each core that has memory for its strip. No device is looked at: pixels are only read and packed."""
    if session.settings.workers is not None:
        return max(1, session.settings.workers)
    cores, available_bytes = usable_cores(), machine_memory()[1]
    fitting = max(1, available_bytes // _STRIP_ROOM_BYTES)
    reason = f"one for each of {format_count(cores, 'usable core')}"
    if fitting < cores:
        reason = f"{format_bytes(available_bytes)} of memory are free, and each worker may take {format_bytes(_STRIP_ROOM_BYTES)}"
    evidence = {"cores": cores, "memory_available_bytes": available_bytes}
    session.chose(Choice("workers", min(cores, fitting), reason, evidence))
    return min(cores, fitting)


def tiles_folder(session: Session) -> Path:
    """Where tiles, their jobs and their manifest lie."""
    return session.workspace.root / "tiles"


def open_for_tiles(session: Session, *, pool: HandlePool, threads: int) -> tuple[list[SceneFacts], list[Finding]]:
    """The scenes that can be tiled, in the order of their ids, and the findings; reports the pixel size of their tiles."""
    settings = session.settings
    with session.stage("scan", str(settings.data)):
        scanned = find_scenes(session)
    scanned.scenes.sort(key=lambda scene: scene.scene_id)
    with session.stage("inspect", format_count(len(scanned.scenes), "scene")):
        facts, findings = open_scenes(session, scanned, pool=pool, threads=threads, same_bands=False)
    resampled = list(dict.fromkeys(band.name for one in facts for band in one.bands if band.warped))
    sizes = sorted({f"{abs(one.grid.transform[0]):g}" for one in facts if one.grid.crs}, key=float)
    what = f"pixels of {list_some(sizes, limit=3)} units of the map" if sizes else "plain pixels without a place on the map"
    how = f"{', '.join(resampled)} resampled onto it ({settings.resampling})" if resampled else "no band is resampled"
    session.chose(Choice("grid", settings.grid, f"{what}; {how}", {"resampled": resampled, "pixel_sizes": sizes}))
    return facts, findings


def choose_tile_px(session: Session, facts: Sequence[SceneFacts]) -> int:
    """As typed; for `auto` the multiple of the files' own blocks that is nearest to the default."""
    tile_px, overlap_px = session.settings.tile_size, session.settings.overlap or 0
    if tile_px == "auto":
        largest = max(facts, key=lambda one: one.num_pixels)
        block_px = max(largest.bands[0].block)
        tile_px, reason = DEFAULT_TILE_PX, "the usual size"
        if block_px in _BLOCKS_PX:
            nearest = block_px * max(1, round(DEFAULT_TILE_PX / block_px))
            if overlap_px < nearest <= min(largest.grid.height, largest.grid.width):
                tile_px, reason = (
                    nearest,
                    f"near the usual {DEFAULT_TILE_PX}, in whole blocks of {block_px} px as the files are stored",
                )
        session.chose(Choice("tile_size", tile_px, reason, {"block_px": block_px}))
    if overlap_px >= tile_px:
        raise UsageError(
            f"tiles of {tile_px} px cannot share {overlap_px} px",
            code="bad-overlap",
            why="an overlap must be smaller than the tile",
            try_=f"--overlap {tile_px // 8}, or a larger --tile-size",
        )
    return tile_px


def choose_masks(session: Session, facts: Sequence[SceneFacts]) -> dict[str, MaskSource | None]:
    """Where each scene's mask comes from. Scenes with the same bands share one source."""
    labelled = any(one.scene.label is not None for one in facts)
    by_bands = {
        bands: choose_mask(session.settings, band_names=bands, labelled=labelled)
        for bands in dict.fromkeys(one.band_names for one in facts)
    }
    return {one.scene_id: by_bands[one.band_names] for one in facts}


def plan_specs(
    session: Session,
    facts: Sequence[SceneFacts],
    findings: Sequence[Finding],
    masks: Mapping[str, MaskSource | None],
    *,
    tile_px: int,
    pool: HandlePool,
    threads: int,
) -> tuple[list[TileSpec], list[Finding]]:
    """How the tiles of each scene are made, for the scenes that are left; which folder they go to is left open."""
    settings = session.settings
    compress: Compress | None = settings.compress
    if compress is None:
        compress = "isal" if find_spec("isal") else "zlib"
        usual = (
            "read by any np.load, several times quicker to write than zlib"
            if compress == "isal"
            else "isal (extra geo) is quicker"
        )
        session.chose(Choice("compress", compress, f"{usual}; none is quicker still on a fast disk, for larger files"))
    scales, facts, findings = _choose_scales(session, facts, findings, pool=pool, threads=threads)
    specs = [
        TileSpec(
            facts=one,
            scale=scales[one.scene_id],
            folder="",
            size_px=tile_px,
            overlap_px=settings.overlap or 0,
            edges=settings.edges,
            mask=masks[one.scene_id],
            compress=compress,
            store=settings.store,
            min_valid=settings.min_valid,
        )
        for one in facts
    ]
    return specs, findings


def _choose_scales(
    session: Session, facts: Sequence[SceneFacts], findings: Sequence[Finding], *, pool: HandlePool, threads: int
) -> tuple[dict[str, SceneScale], list[SceneFacts], list[Finding]]:
    """What each scene's bands are divided by, with the scenes that are left and all findings so far.

    `tiles/scales.json` keeps the figures, so that a second run need not read the scenes again.
    """
    how, file = session.settings.normalise or DEFAULT_NORMALISE, tiles_folder(session) / "scales.json"
    keys, measured = {}, "max:all" if how == "max" else how  # earlier files have maxima of samples under "max"
    for one in facts:
        bands = [[band.name, band.number, str(band.nodata), band.scale, band.offset] for band in one.bands]
        keys[one.scene_id] = digest([one.content, measured, bands, asdict(one.grid), one.resampling])[:32]
    kept: dict[str, SceneScale] = {}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, DamagedFile):  # they are measured again
        kept = {key: SceneScale.from_dict(one) for key, one in checksums.load_checked_json(file).items()}
    known = {scene_id: kept[key] for scene_id, key in keys.items() if key in kept}
    with session.stage("scale", how):
        scales, broken = measure_scales(facts, how, pool=pool, threads=threads, known=known)
    left, findings = [one for one in facts if one.scene_id in scales], [*findings, *broken]
    require_scenes(left, findings, session.settings.data or "")
    if not scales.keys() <= known.keys():
        kept |= {keys[scene_id]: scale for scene_id, scale in scales.items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        checksums.save_checked_json(file, {key: scale.to_dict() for key, scale in kept.items()})
    given, first = "as asked" if session.settings.normalise else "the default", scales[left[0].scene_id]
    numbers = [
        f"({name} - {low:g}) / {divide:g}" if low else f"{name} / {divide:g}"
        for name, low, divide in zip(left[0].band_names, first.low, first.divide, strict=True)
    ]
    shown = f"; {left[0].scene_id}: {list_some(numbers, limit=6)}" if how != "none" else ""
    sampled = sampling_text(left, how)
    reason = f"{given}; constants of a scene are the same for all its tiles{shown}" + (f"; {sampled}" if sampled else "")
    session.chose(Choice("normalise", how, reason, {one.scene_id: scales[one.scene_id].to_dict() for one in left[:8]}))
    return scales, left, findings


def _rehearse(
    session: Session,
    facts: Sequence[SceneFacts],
    findings: list[Finding],
    tile_px: int,
    masks: Mapping[str, MaskSource | None],
) -> TileResult:
    """How many tiles there would be, and what they would take uncompressed. Nothing is measured, nothing is written."""
    settings = session.settings
    rows, size_bytes = [], 0
    for one in facts:
        grid, overlap_px = one.grid, settings.overlap or 0
        boxes = plan_boxes(grid.height, grid.width, size_px=tile_px, overlap_px=overlap_px, edges=settings.edges)
        value_bytes = 4 * one.num_bands + 1 + (masks[one.scene_id] is not None)
        size_bytes += sum(box.height * box.width for box in boxes) * value_bytes
        rows.append(SceneRow(one.scene_id, grid.width, grid.height, one.band_names, len(boxes), 0, ""))
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
