"""Scenes found, opened once and checked against each other, for tiles, for training and for prediction.

In: a session whose settings describe scenes. Out: the facts and scales of every scene that can be used, and a finding for every
one that cannot, naming the file. No tile or patch is made here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from unchoke.core.ahead import map_ahead
from unchoke.core.errors import DataError, list_some
from unchoke.core.findings import Finding
from unchoke.core.remote import locate
from unchoke.core.units import format_count
from unchoke.jobs.records import QuarantineRow
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.inspect_scene import inspect_scene
from unchoke.scenes.scale import SceneScale, measure_scale
from unchoke.scenes.scan_scenes import ScannedScenes, scan_scenes
from unchoke.scenes.scene_facts import Scene, SceneError, SceneFacts, bounds_of

MEND = "mend the file and run the same command again"
_LOST_SHARE = 0.05
"""How much less than its largest band a scene may cover without a word: bands of different pixels end a little apart."""
Item = TypeVar("Item")
SceneResult = TypeVar("SceneResult")


def find_scenes(session: Session) -> ScannedScenes:
    """Scan DATA by names alone; what was guessed is told."""
    settings = session.settings
    scanned = scan_scenes(
        locate(settings.data or ""),
        bands=settings.bands,
        label=settings.label,
        path=settings.path,
        id=settings.id,
        images=[locate(folder) for folder in settings.images],
        group=settings.group_column,
        split=settings.split,
    )
    for choice in scanned.choices:
        session.chose(choice)
    return replace(scanned, findings=[replace(finding, stage="scan") for finding in scanned.findings])


def open_scenes(
    session: Session, scanned: ScannedScenes, *, pool: HandlePool, threads: int, same_bands: bool
) -> tuple[list[SceneFacts], list[Finding]]:
    """Open every scene once, in the order of the scan: those that can be used, and what was found so far. None is a `DataError`.

    With `same_bands` only the scenes whose bands are those of most are kept: a network takes one set of bands. Tiles of other
    bands may lie beside each other, and that is only said.
    """
    settings = session.settings

    def inspect(scene: Scene) -> SceneFacts:
        return inspect_scene(scene, pool=pool, bands=settings.bands, grid=settings.grid, resampling=settings.resampling)

    opened, broken = _each(inspect, scanned.scenes, scanned.scenes, threads=threads, stage="inspect")
    facts, differing = _compare_bands(list(opened.values()), same_bands=same_bands)
    findings = [*scanned.findings, *broken, *differing, *_cut_scenes(facts)]
    require_scenes(facts, findings, settings.data or "")
    return facts, findings


def measure_scales(
    facts: Sequence[SceneFacts], how: str, *, pool: HandlePool, threads: int, known: Mapping[str, SceneScale] | None = None
) -> tuple[dict[str, SceneScale], list[Finding]]:
    """What each scene's bands are divided by, by its id, and a finding for each scene that breaks on the way.

    Scenes in `known` are not read again.
    """

    def measure(scene: SceneFacts) -> SceneScale:
        return (known or {}).get(scene.scene_id) or measure_scale(scene, how, pool=pool)

    return _each(measure, facts, [one.scene for one in facts], threads=threads, stage="scale")


def _each(
    run: Callable[[Item], SceneResult], items: Sequence[Item], scenes: Sequence[Scene], *, threads: int, stage: str
) -> tuple[dict[str, SceneResult], list[Finding]]:
    """What `run` gives for each item, by the id of its scene, in their order; a scene that breaks becomes a finding."""

    def attempt(item: Item) -> SceneResult | SceneError:
        try:
            return run(item)
        except SceneError as error:
            return error

    results: dict[str, SceneResult] = {}
    findings = []
    for scene, result in zip(scenes, map_ahead(attempt, items, threads=threads, ahead=4 * max(1, threads)), strict=True):
        if isinstance(result, SceneError):
            findings.append(broken_scene(scene, result, stage=stage))
        else:
            results[scene.scene_id] = result
    return results, findings


def broken_scene(scene: Scene, error: SceneError | str, *, stage: str, path: str = "", fix: str = MEND) -> Finding:
    """What is said of a scene that cannot be used, and of the file to blame."""
    if isinstance(error, SceneError):
        path, fix = error.path, error.try_
    reason = f"{error.what}: {error.why}" if isinstance(error, SceneError) else error
    return Finding(
        "broken-scene",
        f"scene {scene.scene_id} is set aside: {reason}",
        severity="error",
        path=path or scene.paths[0],
        stage=stage,
        evidence={"scene": scene.scene_id, "reason": reason},
        fix=fix,
    )


def set_aside(findings: Sequence[Finding]) -> list[QuarantineRow]:
    """The entries of `quarantine.csv` for scenes that findings keep out, each with the first reason."""
    entries: dict[str, QuarantineRow] = {}
    for finding in findings:
        if finding.severity == "error":
            scene, path = str(finding.evidence.get("scene") or finding.path or ""), finding.path or ""
            reason = str(finding.evidence.get("reason", finding.message))
            entries.setdefault(scene, QuarantineRow(scene, path, finding.stage, reason))
    return list(entries.values())


def warn_of(session: Session, findings: Sequence[Finding]) -> None:
    """Say at once what was found, for commands whose answer does not list it."""
    for finding in findings:
        if finding.severity != "info":
            session.warn(finding.message)


def require_scenes(facts: Sequence[SceneFacts], findings: Sequence[Finding], data: str) -> None:
    """Without a single scene there is nothing to do; every reason known is said."""
    if not facts:
        reasons = [f"{entry.sample_id} ({entry.reason})" for entry in set_aside(findings)]
        found = f"{format_count(len(reasons), 'scene')} found, and none could be read: {list_some(reasons, limit=3)}"
        raise DataError(
            f"no scene in {data} can be used",
            code="no-usable-scene",
            why=found if reasons else "no scene was found there",
            try_="give a folder or table of band files, a multi-band file or a large image; --bands names unusual bands",
        )


def _cut_scenes(facts: Sequence[SceneFacts]) -> list[Finding]:
    """Scenes of which a good part is lost because their bands do not cover the same ground."""
    return [finding for one in facts if (finding := _cut_scene(one)) is not None]


def _cut_scene(facts: SceneFacts) -> Finding | None:
    covered = {band.name: bounds_of(band.own) for band in facts.bands}
    largest = max(bounds.area for bounds in covered.values())
    kept = bounds_of(facts.grid).area / largest if largest > 0 else 1.0
    if kept >= 1 - _LOST_SHARE:
        return None
    usual = Counter(covered.values()).most_common(1)[0][0]
    odd = [name for name, bounds in covered.items() if bounds != usual] or list(covered)
    path = next(band.path for band in facts.bands if band.name == odd[0])
    return Finding(
        "bands-cover-less",
        f"scene {facts.scene_id} is cut to {kept:.0%} of what its largest band covers: {list_some(odd)} "
        f"{'lies' if len(odd) == 1 else 'lie'} elsewhere than the others ({Path(path).name})",
        path=path,
        evidence={
            "scene": facts.scene_id,
            "kept_share": round(kept, 4),
            "bounds": {name: list(b) for name, b in covered.items()},
        },
        fix="only the ground that all bands cover is used: mend the place of that file, or leave the band out with --bands",
    )


def _compare_bands(facts: list[SceneFacts], *, same_bands: bool) -> tuple[list[SceneFacts], list[Finding]]:
    counts = Counter(one.band_names for one in facts)
    if len(counts) < 2:
        return facts, []
    if not same_bands:
        ids = {bands: [one.scene_id for one in facts if one.band_names == bands] for bands in counts}
        kinds = [f"{','.join(bands)} in {list_some(scenes, limit=2)}" for bands, scenes in ids.items()]
        message = f"the scenes do not have the same bands: {list_some(kinds, limit=4)}"
        return facts, [Finding("bands-differ", message, "warning", fix="name the bands to use: --bands B2,B3,B4")]
    usual = counts.most_common(1)[0][0]
    findings = [
        Finding(
            "bands-differ",
            f"scene {one.scene_id} is set aside: its bands are {', '.join(one.band_names)}, not {', '.join(usual)}",
            severity="error",
            path=one.scene.paths[0],
            evidence={"scene": one.scene_id},
            fix="name bands that every scene has with --bands",
        )
        for one in facts
        if one.band_names != usual
    ]
    return [one for one in facts if one.band_names == usual], findings
