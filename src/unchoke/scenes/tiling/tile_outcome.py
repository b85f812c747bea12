"""The result of tiling: which scenes are complete, the manifest of their tiles with spatial splits, and what to note.

A scene is in `tile_manifest.csv` only if all its strips are done: half a scene would look like a whole one to whoever trains on
it. Tiles of a scene that broke stay where they are, and are used again by a run that finds the same files. Rows of the manifest
are sorted by scene and place, so that its bytes do not depend on which strip was finished first; cells are quoted as RFC 4180
says, paths are relative to its folder, with forward slashes.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from unchoke.core import atomic, listing
from unchoke.core.boxes import Box
from unchoke.core.errors import DataError, list_some
from unchoke.core.events import Note
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.core.workspace import safe_name
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import QuarantineRow, save_quarantine
from unchoke.runs.session import Session
from unchoke.scenes.blocks import BUFFER, SIDES, assign_splits, block_of, choose_block_px, place_windows
from unchoke.scenes.open_scenes import broken_scene, set_aside
from unchoke.scenes.scene_facts import IGNORE, SceneFacts, part_of
from unchoke.scenes.tiling.strip_work import ScenePlan, StripWork, WorkState, load_strip
from unchoke.scenes.tiling.tile_choices import TileRecipe
from unchoke.scenes.tiling.tile_result import SceneRow, TileResult, sum_stages
from unchoke.scenes.tiling.tiles import TileRecord

MANIFEST_NAME = "tile_manifest.csv"
COLUMNS = (
    *("tile_id", "path", "scene", "row", "col", "top", "left", "height", "width"),
    *("valid_share", "split", "block", "crs", "transform"),
)


@dataclass(frozen=True)
class TileRow:
    """One tile. `class_counts` maps the classes of its mask to their pixels; what is ignored is not counted."""

    tile_id: str
    path: str
    scene: str
    row: int
    col: int
    box: Box
    valid_share: float
    split: str
    block: str
    crs: str
    transform: tuple[float, ...]
    class_counts: Mapping[int, int] = field(default_factory=dict)


def save_tile_manifest(folder: Path, rows: Iterable[TileRow], *, class_names: Sequence[str] = ()) -> Path:
    """Write the manifest into `folder`, wholly or not at all; leave the file alone if it already says the same."""
    file, data = folder / MANIFEST_NAME, render_tile_manifest(rows, class_names=class_names)
    if not file.is_file() or file.read_bytes() != data:
        atomic.write_bytes(file, data)
    return file


def render_tile_manifest(rows: Iterable[TileRow], *, class_names: Sequence[str] = ()) -> bytes:
    """The manifest's bytes: the columns above, then one share for each class that any mask holds or that has a name."""
    ordered = sorted(rows, key=lambda row: (row.scene, row.box))
    found = {label for row in ordered for label in row.class_counts}
    classes = sorted(found | set(range(len(class_names)))) if found else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"mask_{class_word(label, class_names)}_share" for label in classes)])
    writer.writerows(_cells(row, classes) for row in ordered)
    return text.getvalue().encode("utf-8")


@cache
def short_crs(wkt: str) -> str:
    """``EPSG:32633`` where the CRS has such a name, its WKT otherwise; "" for none."""
    if not wkt:
        return ""
    from rasterio.crs import CRS

    authority = CRS.from_wkt(wkt).to_authority()
    return ":".join(authority) if authority else wkt


def unnamed_classes(rows: Iterable[TileRow], class_names: Sequence[str]) -> list[int]:
    """Values of masks that have no name although some have."""
    return sorted({label for row in rows for label in row.class_counts if label >= len(class_names)}) if class_names else []


def class_word(label: int, class_names: Sequence[str]) -> str:
    """The name of a class where it has one, its number otherwise."""
    return safe_name(class_names[label]) if label < len(class_names) else str(label)


def _cells(row: TileRow, classes: Sequence[int]) -> list[object]:
    place = [row.tile_id, row.path, row.scene, row.row, row.col, *row.box]
    on_the_map = [row.crs, ",".join(repr(float(number)) for number in row.transform)]
    labelled = sum(row.class_counts.values())
    shares = [f"{row.class_counts.get(label, 0) / labelled:.6f}" if labelled else "" for label in classes]
    return [*place, f"{row.valid_share:.6f}", row.split, row.block, *on_the_map, *shares]


@dataclass(frozen=True)
class _TiledScene:
    """A scene with all its strips done."""

    plan: ScenePlan
    tiles: tuple[TileRecord, ...]

    @property
    def facts(self) -> SceneFacts:
        return self.plan.spec.facts

    @property
    def written(self) -> list[TileRecord]:
        return [tile for tile in self.tiles if not tile.skipped]

    @property
    def row(self) -> SceneRow:
        facts, written = self.facts, len(self.written)
        size = facts.grid.width, facts.grid.height
        return SceneRow(facts.scene_id, *size, facts.band_names, written, len(self.tiles) - written, self.plan.folder)


def conclude(
    session: Session,
    findings: Sequence[Finding],
    plans: Sequence[ScenePlan],
    work: Mapping[str, StripWork],
    queue: JobQueue,
    state: WorkState,
    *,
    recipe: TileRecipe,
    given_up: Mapping[str, str],
    num_run: int,
) -> TileResult:
    """Write the manifest and the list of scenes that were set aside, and say what there is now."""
    scenes, broken = _sort_out(plans, work, queue, state, given_up)
    findings = [*findings, *broken]
    quarantined = save_quarantine(queue.folder / "quarantine.csv", set_aside(findings))
    _warn_of_failures(session, quarantined, num_scenes=len(scenes) + len(quarantined))
    if not scenes:
        reasons = [f"{entry.sample_id} ({entry.reason})" for entry in quarantined]
        raise DataError(
            f"no scene could be tiled: {list_some(reasons, limit=3)}",
            code="no-usable-scene",
            why=f"{format_count(len(reasons), 'scene')} found, and every one broke on the way",
            try_="mend the files and run the same command again: what is done is kept",
        )
    with session.stage("manifest"):
        rows = _rows(session, scenes, recipe)
        manifest = save_tile_manifest(queue.folder, rows, class_names=session.settings.classes)
    if unnamed := unnamed_classes(rows, session.settings.classes):
        named = format_count(len(session.settings.classes), "class", "classes")
        session.warn(
            f"masks hold the values {list_some(list(map(str, unnamed)))}, but --classes names {named}: they go by number"
        )
    _tell_of_others(session, queue, scenes)
    counts = Counter(row.split for row in rows)
    return TileResult(
        workspace=session.workspace.root,
        data=session.settings.data or "",
        manifest=manifest,
        tiles=len(rows),
        skipped=sum(len(one.tiles) - len(one.written) for one in scenes),
        size_bytes=sum(tile.size_bytes for one in scenes for tile in one.tiles),
        num_strips=len(work),
        num_run=num_run,
        scenes=[one.row for one in scenes],
        splits={name: counts[name] for name in (*SIDES, BUFFER) if counts[name]},
        stages=sum_stages(record.info.get("clocks", {}) for record in state.done.values()),
        timings=dict(session.timers.seconds),
        findings=[*findings, *_diagnose(scenes)],
        set_aside=quarantined,
        choices=session.choices,
        has_mask=any(one.plan.spec.mask is not None for one in scenes),
    )


def _sort_out(
    plans: Sequence[ScenePlan], work: Mapping[str, StripWork], queue: JobQueue, state: WorkState, given_up: Mapping[str, str]
) -> tuple[list[_TiledScene], list[Finding]]:
    """Scenes that are whole, in the order of the plans, and those that are not, each with the first reason."""
    by_scene: dict[str, list[StripWork]] = {}
    for one in work.values():
        by_scene.setdefault(one.plan.scene_id, []).append(one)
    whole, broken = [], []
    for plan in plans:
        strips = by_scene[plan.scene_id]
        missing = [one.job for one in strips if one.job.job_id not in state.records]
        if missing:
            broken.append(_broken(plan, missing[0], queue, given_up))
        else:
            tiles = tuple(tile for one in strips for tile in state.records[one.job.job_id].tiles)
            whole.append(_TiledScene(plan, tiles))
    return whole, broken


def _broken(plan: ScenePlan, job: Job, queue: JobQueue, given_up: Mapping[str, str]) -> Finding:
    record = load_strip(queue.artefact(job))
    if record is not None and record.failed:
        reason, path, stage = record.failed, record.path, "read"
    else:
        why = given_up.get(job.job_id, "its tiles are not all there")
        reason, path, stage = f"{why}; the .failed files in {queue.folder} say more", "", "tile"
    fix = "mend or replace the file and run the same command again: only this scene is done"
    finding = broken_scene(plan.spec.facts.scene, reason, stage=stage, path=path, fix=fix)
    return replace(finding, message=f"{finding.message}; none of its tiles is in the manifest")


def _warn_of_failures(session: Session, quarantined: Sequence[QuarantineRow], *, num_scenes: int) -> None:
    """More failures than were allowed do not stop anything here, as each scene stands for itself; but they are said."""
    allowed = session.settings.max_failures
    if len(quarantined) > allowed * num_scenes:
        scenes = f"{len(quarantined)} of {format_count(num_scenes, 'scene')}"
        session.warn(f"{scenes} were set aside, a larger share than --max-failures {allowed:g}; the others are tiled")


def _rows(session: Session, scenes: Sequence[_TiledScene], recipe: TileRecipe) -> list[TileRow]:
    """The rows of the manifest, with a side for every tile so that neighbours do not leak from train to test."""
    settings = session.settings
    sizes = [(one.facts.grid.height, one.facts.grid.width) for one in scenes]
    choice = choose_block_px(sizes, window_px=recipe.tile_px, overlap_px=recipe.overlap_px, asked=settings.block_px)
    session.chose(choice)
    block_px = int(choice.value)
    tiles = [(one, tile) for one in scenes for tile in one.written]
    places = place_windows([one.facts for one in scenes], [(one.facts.scene_id, tile.box) for one, tile in tiles])
    shares = {"val_share": settings.val_share, "test_share": settings.test_share}
    splits = assign_splits(places, block_px=block_px, seed=settings.seed, **shares) if places else []
    blocks = [block_of(place, block_px=block_px) for place in places]
    return [_row(one, tile, split=side, block=block) for (one, tile), side, block in zip(tiles, splits, blocks, strict=True)]


def _row(one: _TiledScene, tile: TileRecord, *, split: str, block: str) -> TileRow:
    return TileRow(
        tile_id=tile.tile_id,
        path=f"{one.plan.folder}/{tile.file}",
        scene=one.facts.scene_id,
        row=tile.row,
        col=tile.col,
        box=tile.box,
        valid_share=tile.valid_share,
        split=split,
        block=block,
        crs=short_crs(one.facts.grid.crs),
        transform=part_of(one.facts.grid, tile.box).transform,
        class_counts=_labelled(tile),
    )


def _labelled(tile: TileRecord) -> dict[int, int]:
    """Pixels by class, without those that have none."""
    return {label: number for label, number in tile.class_counts.items() if label != IGNORE}


def _diagnose(scenes: Sequence[_TiledScene]) -> list[Finding]:
    """Tiles that hold nothing to learn from, or none at all."""
    findings = []
    if not any(one.written for one in scenes):
        message, fix = "every tile was skipped: none has enough valid pixels", "lower --min-valid, or look at the scenes' nodata"
        findings.append(Finding("no-tiles", message, "error", stage="tile", fix=fix))
    for one in scenes:
        if not any(tile.valid_share > 0 for tile in one.tiles):
            message = f"scene {one.facts.scene_id} has no valid pixel: it is nodata throughout"
            findings.append(Finding("all-nodata", message, "warning", path=one.facts.scene.paths[0], stage="tile"))
    masked = [one for one in scenes if one.plan.spec.mask is not None]
    classes = {label for one in masked for tile in one.tiles for label in _labelled(tile)}
    if masked and len(classes) < 2:
        what = f"every labelled pixel is of class {min(classes)}" if classes else "no pixel has a label"
        message = f"the masks hold one class at most: {what}"
        fix = "look at the expression, the label raster or the polygons: nothing can be learnt from this"
        findings.append(Finding("one-class", message, "warning", stage="tile", fix=fix))
    return findings


def _tell_of_others(session: Session, queue: JobQueue, scenes: Sequence[_TiledScene]) -> None:
    """Tiles made another way are kept, as someone may train on them; they take room, so it is said where they are."""
    others = []
    for one in scenes:
        scene, _, current = one.plan.folder.rpartition("/")
        others += [f"{scene}/{name}" for name in listing.names(queue.folder / scene) if name != current]
    if others:
        where = f"{queue.folder}: {list_some(others, limit=3)}"
        session.on_event(Note(f"tiles made with other settings are kept in {where}; delete what you do not need"))
