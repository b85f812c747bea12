"""The tiles of a workspace: which scenes are complete, the manifest with spatial splits, and what `tile` answers.

A scene is in `tile_manifest.csv` only if all its strips are done: half a scene would look like a whole one to whoever trains on
it. Tiles of a scene that broke stay where they are, and are used again by a run that finds the same files. Rows of the manifest
are sorted by scene and place, so that its bytes do not depend on which strip was finished first; cells are quoted as RFC 4180
says, paths are relative to its folder, with forward slashes.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from unchoke.core import atomic, listing
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, list_some
from unchoke.core.events import Note
from unchoke.core.findings import Finding, rank
from unchoke.core.timeline import StageRow
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.core.workspace import out_option, safe_name
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import QuarantineRow, save_quarantine
from unchoke.runs.report.layout import columns
from unchoke.runs.report.text import render_findings
from unchoke.runs.session import Session
from unchoke.scenes.blocks import BUFFER, SIDES, assign_splits, block_of, choose_block_px, place_windows
from unchoke.scenes.open_scenes import broken_scene, set_aside
from unchoke.scenes.scene_facts import IGNORE, SceneFacts, part_of
from unchoke.scenes.tiling.tile_jobs import StripJob, StripState, load_strip
from unchoke.scenes.tiling.tiles import STAGES, TileRecord, TileSpec

MANIFEST_NAME = "tile_manifest.csv"
COLUMNS = (
    *("tile_id", "path", "scene", "row", "col", "top", "left", "height", "width"),
    *("valid_share", "split", "block", "crs", "transform"),
)
_SHOWN_SCENES = 12


@dataclass(frozen=True)
class SceneRow:
    """One scene and its tiles. `folder` is where they lie, relative to the folder of the manifest."""

    scene: str
    width: int
    height: int
    bands: tuple[str, ...]
    tiles: int
    skipped: int
    folder: str


@dataclass(frozen=True)
class TileResult:
    """The tiles of a workspace, or (`dry_run`) those that would be made. `num_run` strips had to be worked on this time."""

    workspace: Path
    """The folder it belongs to."""
    data: str
    """The scenes as they were named."""
    manifest: Path
    """The table that lists the tiles."""
    tiles: int
    """How many tiles there are."""
    skipped: int
    """How many were left out, having too few valid pixels."""
    size_bytes: int
    """What they take on disk."""
    num_strips: int
    """In how many strips the work was divided."""
    num_run: int
    """How many of them had to be worked on this time."""
    scenes: list[SceneRow]
    """One row for each scene."""
    splits: dict[str, int]
    """How many tiles are in train, val and test."""
    stages: list[StageRow]
    """Where the time went."""
    timings: dict[str, float]
    """Seconds by stage."""
    findings: list[Finding]
    """What was found, the worst first."""
    set_aside: list[QuarantineRow]
    """Scenes that could not be read, with their reasons."""
    choices: list[Choice]
    """What was chosen, with reasons."""
    has_mask: bool = False
    """Whether tiles carry a mask."""
    dry_run: bool = False
    """Whether nothing was written."""

    @property
    def ok(self) -> bool:
        """Whether every scene was tiled."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return 0 if self.ok else 1

    @property
    def already_done(self) -> bool:
        """Whether nothing had to be done."""
        return not self.dry_run and self.num_run == 0

    def to_dict(self) -> dict[str, Any]:
        made = {name: value for name, value in asdict(self).items() if name not in ("data", "has_mask")}
        paths = {"manifest": str(self.manifest), "workspace": str(self.workspace)}
        return {"ok": self.ok, "already_done": self.already_done, **made, **paths}

    def to_text(self) -> str:
        rows = [
            (one.scene, f"{one.width}×{one.height}", ",".join(one.bands), f"{one.tiles:,}", f"{one.skipped:,}")
            for one in self.scenes[:_SHOWN_SCENES]
        ]
        scenes = columns(rows, header=("scene", "pixels", "bands", "tiles", "skipped"), right=(1, 3, 4)) if rows else ""
        if (more := len(self.scenes) - len(rows)) > 0:
            scenes += f"\nand {format_count(more, 'more scene', 'more scenes')}"
        times = [(one.stage, format_seconds(one.seconds), f"{100 * one.share:.0f} %", f"{one.calls:,}") for one in self.stages]
        stages = columns(times, header=("stage", "time of all workers", "share", "calls"), right=(1, 2, 3)) if times else ""
        findings = render_findings(rank(self.findings)) if self.findings else ""
        return "\n\n".join(block for block in (scenes, stages, findings, self._ending()) if block)

    def _ending(self) -> str:
        skipped = f", {self.skipped:,} skipped as mostly nodata" if self.skipped else ""
        counts = f"{format_count(self.tiles, 'tile')} of {format_count(len(self.scenes), 'scene')}{skipped}"
        if self.dry_run:
            return f"would write {counts} into {self.manifest.parent}\nnothing was run"
        done = "done already: " if self.already_done else ""
        splits = ", ".join(f"{name} {number:,}" for name, number in self.splits.items())
        following = "segment train" if self.has_mask else "profile tile"  # the workspace remembers where masks come from
        lines = [
            f"{done}{counts}, {format_bytes(self.size_bytes)}",
            f"tiles     {self.manifest.parent}",
            f"manifest  {self.manifest}",
            f"splits    {splits}",
            *([] if self.has_mask else ["masks     none; --label, --mask or --polygons make them"]),
            f"next      unchoke {following} {shlex.quote(self.data)}{out_option(self.workspace)}",
        ]
        if not self.ok:
            lines.insert(1, "not all scenes were tiled: see the errors above")
        return "\n".join(lines)


@dataclass(frozen=True)
class ManifestRow:
    """One tile, its scene and the folder of its tiles, its split and block, and its place on the map."""

    tile: TileRecord
    scene: str
    folder: str
    split: str
    block: str
    crs: str
    transform: tuple[float, ...]

    @property
    def counts(self) -> dict[int, int]:
        """Pixels by class, without those that have none."""
        return {label: number for label, number in self.tile.class_counts.items() if label != IGNORE}


def render_tile_manifest(rows: Iterable[ManifestRow], *, class_names: Sequence[str] = ()) -> bytes:
    """The manifest's bytes: the columns above, then one share for each class that any mask holds or that has a name."""
    ordered = sorted(rows, key=lambda row: (row.scene, row.tile.box))
    found = {label for row in ordered for label in row.counts}
    classes = sorted(found | set(range(len(class_names)))) if found else []
    words = [safe_name(class_names[label]) if label < len(class_names) else str(label) for label in classes]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"mask_{word}_share" for word in words)])
    for row in ordered:
        tile, counts = row.tile, row.counts
        labelled = sum(counts.values())
        place = [tile.tile_id, f"{row.folder}/{tile.file}", row.scene, tile.row, tile.col, *tile.box]
        on_the_map = [row.crs, ",".join(repr(float(number)) for number in row.transform)]
        shares = [f"{counts.get(label, 0) / labelled:.6f}" if labelled else "" for label in classes]
        writer.writerow([*place, f"{tile.valid_share:.6f}", row.split, row.block, *on_the_map, *shares])
    return text.getvalue().encode("utf-8")


@cache
def short_crs(wkt: str) -> str:
    """``EPSG:32633`` where the CRS has such a name, its WKT otherwise; "" for none."""
    if not wkt:
        return ""
    from rasterio.crs import CRS

    authority = CRS.from_wkt(wkt).to_authority()
    return ":".join(authority) if authority else wkt


@dataclass(frozen=True)
class _TiledScene:
    """A scene with all its strips done."""

    spec: TileSpec
    tiles: tuple[TileRecord, ...]

    @property
    def facts(self) -> SceneFacts:
        return self.spec.facts

    @property
    def written(self) -> list[TileRecord]:
        return [tile for tile in self.tiles if not tile.skipped]


def conclude(
    session: Session,
    findings: Sequence[Finding],
    work: Mapping[str, StripJob],
    queue: JobQueue,
    state: StripState,
    *,
    given_up: Mapping[str, str],
    num_run: int,
) -> TileResult:
    """Write the manifest and the list of scenes that were set aside, and say what there is now."""
    names = session.settings.classes
    scenes, broken = _sort_out(work, queue, state, given_up)
    findings = [*findings, *broken]
    quarantined = save_quarantine(queue.folder / "quarantine.csv", set_aside(findings))
    allowed, num_scenes = session.settings.max_failures, len(scenes) + len(quarantined)
    if len(quarantined) > allowed * num_scenes:  # each scene stands for itself, so this stops nothing
        some = f"{len(quarantined)} of {format_count(num_scenes, 'scene')}"
        session.warn(f"{some} were set aside, a larger share than --max-failures {allowed:g}; the others are tiled")
    if not scenes:
        reasons = [f"{entry.sample_id} ({entry.reason})" for entry in quarantined]
        raise DataError(
            f"no scene could be tiled: {list_some(reasons, limit=3)}",
            code="no-usable-scene",
            why=f"{format_count(len(reasons), 'scene')} found, and every one broke on the way",
            try_="mend the files and run the same command again: what is done is kept",
        )
    with session.stage("manifest"):
        rows, manifest = _manifest_rows(session, scenes), queue.folder / MANIFEST_NAME
        data = render_tile_manifest(rows, class_names=names)
        if not manifest.is_file() or manifest.read_bytes() != data:
            atomic.write_bytes(manifest, data)
    if unnamed := sorted({label for row in rows for label in row.counts if names and label >= len(names)}):
        named, values = format_count(len(names), "class", "classes"), list_some(list(map(str, unnamed)))
        session.warn(f"masks hold the values {values}, but --classes names {named}: they go by number")
    _note_others(session, queue, scenes)
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
        scenes=[_scene_row(one) for one in scenes],
        splits={name: counts[name] for name in (*SIDES, BUFFER) if counts[name]},
        stages=_sum_stages(record.info.get("clocks", {}) for record in state.done.values()),
        timings=dict(session.timers.seconds),
        findings=[*findings, *_diagnose(scenes)],
        set_aside=quarantined,
        choices=session.choices,
        has_mask=any(one.spec.mask is not None for one in scenes),
    )


def _sort_out(
    work: Mapping[str, StripJob], queue: JobQueue, state: StripState, given_up: Mapping[str, str]
) -> tuple[list[_TiledScene], list[Finding]]:
    """Scenes that are whole, by their ids, and those that are not, each with the first reason."""
    by_scene: dict[str, list[StripJob]] = {}
    for one in work.values():
        by_scene.setdefault(one.spec.facts.scene_id, []).append(one)
    whole, broken = [], []
    for _, strips in sorted(by_scene.items()):
        spec = strips[0].spec
        missing = next((one.job for one in strips if one.job.job_id not in state.records), None)
        if missing is None:
            whole.append(_TiledScene(spec, tuple(tile for one in strips for tile in state.records[one.job.job_id].tiles)))
            continue
        record = load_strip(queue.artefact(missing))
        if record is not None and record.failed:
            reason, path, stage = record.failed, record.path, "read"
        else:
            why = given_up.get(missing.job_id, "its tiles are not all there")
            reason, path, stage = f"{why}; the .failed files in {queue.folder} say more", "", "tile"
        fix = "mend or replace the file and run the same command again: only this scene is done"
        finding = broken_scene(spec.facts.scene, reason, stage=stage, path=path, fix=fix)
        broken.append(replace(finding, message=f"{finding.message}; none of its tiles is in the manifest"))
    return whole, broken


def _manifest_rows(session: Session, scenes: Sequence[_TiledScene]) -> list[ManifestRow]:
    """The rows of the manifest, with a split for every tile so that neighbours do not leak from train to test."""
    settings, spec = session.settings, scenes[0].spec
    sizes = [(one.facts.grid.height, one.facts.grid.width) for one in scenes]
    choice = choose_block_px(sizes, window_px=spec.size_px, overlap_px=spec.overlap_px, asked=settings.block_px)
    session.chose(choice)
    block_px = int(choice.value)
    tiles = [(one, tile) for one in scenes for tile in one.written]
    places = place_windows([one.facts for one in scenes], [(one.facts.scene_id, tile.box) for one, tile in tiles])
    shares = {"val_share": settings.val_share, "test_share": settings.test_share}
    splits = assign_splits(places, block_px=block_px, seed=settings.seed, **shares) if places else []
    return [
        ManifestRow(
            tile,
            one.facts.scene_id,
            one.spec.folder,
            split,
            block_of(place, block_px=block_px),
            short_crs(one.facts.grid.crs),
            part_of(one.facts.grid, tile.box).transform,
        )
        for (one, tile), split, place in zip(tiles, splits, places, strict=True)
    ]


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
    masked = [one for one in scenes if one.spec.mask is not None]
    classes = {label for one in masked for tile in one.tiles for label in tile.class_counts} - {IGNORE}
    if masked and len(classes) < 2:
        what = f"every labelled pixel is of class {min(classes)}" if classes else "no pixel has a label"
        message = f"the masks hold one class at most: {what}"
        fix = "look at the expression, the label raster or the polygons: nothing can be learnt from this"
        findings.append(Finding("one-class", message, "warning", stage="tile", fix=fix))
    return findings


def _note_others(session: Session, queue: JobQueue, scenes: Sequence[_TiledScene]) -> None:
    """Tiles made another way are kept, as someone may train on them; they take room, so it is said where they are."""
    others = []
    for one in scenes:
        scene, _, current = one.spec.folder.rpartition("/")
        others += [f"{scene}/{name}" for name in listing.names(queue.folder / scene) if name != current]
    if others:
        where = f"{queue.folder}: {list_some(others, limit=3)}"
        session.on_event(Note(f"tiles made with other settings are kept in {where}; delete what you do not need"))


def _scene_row(one: _TiledScene) -> SceneRow:
    facts, written = one.facts, len(one.written)
    size = facts.grid.width, facts.grid.height
    return SceneRow(facts.scene_id, *size, facts.band_names, written, len(one.tiles) - written, one.spec.folder)


def _sum_stages(clocks: Iterable[Mapping[str, Any]]) -> list[StageRow]:
    """Where the time of the windows went, summed over all workers: the clocks of strips, each ``{stage: [seconds, calls]}``."""
    seconds, calls = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0)
    for one in clocks:
        for stage, (took_s, times) in one.items():
            seconds[stage] += float(took_s)
            calls[stage] += int(times)
    total = sum(seconds.values())
    return [StageRow(stage, round(took_s, 6), took_s / total, calls[stage]) for stage, took_s in seconds.items() if total]
