"""Which scenes can be tiled: find them, open each once, measure what its bands are divided by. Those that fail are named.

In: a session whose settings describe scenes. Out: facts and scales of the sound ones, findings and reasons for the others. No
tile is made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_count
from unchoke.jobs.quarantine import Quarantined
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.inspect_scene import inspect_scene
from unchoke.scenes.scale import SceneScale, measure_scale
from unchoke.scenes.scan_scenes import scan_scenes
from unchoke.scenes.scene_facts import SceneError, SceneFacts
from unchoke.scenes.scene_files import Scene

DEFAULT_NORMALISE = "max"


@dataclass
class FoundScenes:
    """The scenes that can be tiled, in the order of their ids, and what is to be said of the others."""

    facts: list[SceneFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    set_aside: list[Quarantined] = field(default_factory=list)

    def leave_out(self, scene: Scene, error: SceneError, *, stage: str) -> None:
        """Name a scene that cannot be tiled, and the file to blame."""
        path = error.path or next(iter(scene.paths), "")
        reason = f"{error.what}: {error.why}"
        self.set_aside.append(Quarantined(scene.scene_id, path, stage, reason))
        message = f"scene {scene.scene_id} was set aside: {reason}"
        self.findings.append(Finding("unreadable-scene", message, "error", path=path, stage=stage, fix=error.try_))


def find_scenes(session: Session, *, pool: HandlePool, threads: int) -> FoundScenes:
    """Scan DATA and open every scene once. Raises `DataError` if none is left."""
    settings = session.settings
    with session.stage("scan", str(settings.data)):
        scanned = scan_scenes(
            Path(settings.data or ""),
            bands=settings.bands,
            label=settings.label,
            path=settings.path,
            id=settings.id,
            images=tuple(Path(folder) for folder in settings.images),
            group=settings.group,
            split=settings.split,
        )
    for choice in scanned.choices:
        session.chose(choice)
    found = FoundScenes(findings=list(scanned.findings))
    found.set_aside = _incomplete(scanned.findings)
    scenes = sorted(scanned.scenes, key=lambda scene: scene.scene_id)
    with session.stage("inspect", format_count(len(scenes), "scene")):
        _inspect(session, scenes, found, pool=pool, threads=threads)
    refuse_none(found, settings.data or "")
    _tell_grid(session, found.facts)
    found.findings += _differing_bands(found.facts)
    return found


def _incomplete(findings: Sequence[Finding]) -> list[Quarantined]:
    """The scenes that the scan left out already, each with the first reason."""
    by_scene: dict[str, Quarantined] = {}
    for finding in findings:
        if finding.severity == "error":
            scene = str(finding.evidence.get("scene") or finding.path or "")
            by_scene.setdefault(scene, Quarantined(scene, finding.path or "", "scan", finding.message))
    return list(by_scene.values())


def _inspect(session: Session, scenes: Sequence[Scene], found: FoundScenes, *, pool: HandlePool, threads: int) -> None:
    settings = session.settings

    def inspect(scene: Scene) -> SceneFacts | SceneError:
        try:
            return inspect_scene(scene, pool=pool, bands=settings.bands, grid=settings.grid, resampling=settings.resampling)
        except SceneError as error:
            return error

    for scene, facts in zip(scenes, map_ahead(inspect, scenes, threads=threads, ahead=4 * threads), strict=True):
        if isinstance(facts, SceneError):
            found.leave_out(scene, facts, stage="inspect")
        else:
            found.facts.append(facts)


def refuse_none(found: FoundScenes, data: str) -> None:
    """Without a single scene there is nothing to do; every reason known is said."""
    if found.facts:
        return
    reasons = [f"{entry.sample_id} ({entry.reason})" for entry in found.set_aside]
    raise DataError(
        f"no scene in {data} can be tiled" + (f": {list_some(reasons, limit=3)}" if reasons else ""),
        why=f"{format_count(len(reasons), 'scene')} found, and none could be read" if reasons else "no scene was found there",
        try_="name a folder or table of band files, a multi-band file or a large image, with --bands if they are named unusually",
    )


def _tell_grid(session: Session, facts: Sequence[SceneFacts]) -> None:
    """Which pixels the tiles have, and how many bands had to be brought onto them."""
    settings = session.settings
    resampled = list(dict.fromkeys(band.name for one in facts for band in one.bands if band.warped))
    sizes = sorted({f"{abs(one.grid.transform[0]):g}" for one in facts if one.grid.crs}, key=float)
    what = f"pixels of {list_some(sizes, limit=3)} units of the map" if sizes else "plain pixels without a place on the map"
    how = f"{', '.join(resampled)} resampled onto it ({settings.resampling})" if resampled else "every band lies on it already"
    reason = f"{what}; {how}"
    session.chose(Choice("grid", settings.grid, reason, {"resampled": resampled, "pixel_sizes": sizes}))


def _differing_bands(facts: Sequence[SceneFacts]) -> list[Finding]:
    """Tiles of scenes with other bands do not fit into one batch: worth a word before someone trains on them."""
    by_bands: dict[tuple[str, ...], list[str]] = {}
    for one in facts:
        by_bands.setdefault(one.band_names, []).append(one.scene_id)
    if len(by_bands) < 2:
        return []
    kinds = [f"{','.join(bands)} in {list_some(scenes, limit=2)}" for bands, scenes in by_bands.items()]
    message = f"the scenes do not have the same bands: {list_some(kinds, limit=4)}"
    return [Finding("bands-differ", message, "warning", fix="name the bands to use: --bands B2,B3,B4")]


def measure_scales(session: Session, found: FoundScenes, *, pool: HandlePool, threads: int, file: Path) -> dict[str, SceneScale]:
    """What each scene's bands are divided by, once per scene; scenes that break on the way are left out of `found`.

    `file` keeps the figures, so that a second run need not read the scenes again.
    """
    how = session.settings.normalise or DEFAULT_NORMALISE
    keys = {one.scene_id: _scale_key(one, how) for one in found.facts}
    known = _load_scales(file)

    def measure(facts: SceneFacts) -> SceneScale | SceneError:
        try:
            return known.get(keys[facts.scene_id]) or measure_scale(facts, how, pool=pool)
        except SceneError as error:
            return error

    scales: dict[str, SceneScale] = {}
    with session.stage("scale", how):
        for facts, scale in zip(found.facts, map_ahead(measure, found.facts, threads=threads, ahead=2 * threads), strict=True):
            if isinstance(scale, SceneError):
                found.leave_out(facts.scene, scale, stage="scale")
            else:
                scales[facts.scene_id] = scale
    found.facts = [facts for facts in found.facts if facts.scene_id in scales]
    refuse_none(found, session.settings.data or "")
    _save_scales(file, {keys[scene_id]: scale for scene_id, scale in scales.items()}, known)
    session.chose(_scale_choice(session, how, found.facts, scales))
    return scales


def _scale_key(facts: SceneFacts, how: str) -> str:
    bands = [[band.name, band.number, str(band.nodata), band.scale, band.offset] for band in facts.bands]
    return digest([facts.content, how, bands, asdict(facts.grid), facts.resampling])[:32]


def _load_scales(file: Path) -> dict[str, SceneScale]:
    """The figures of an earlier run; a file that cannot be read is no loss."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {key: SceneScale.from_dict(one) for key, one in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _save_scales(file: Path, scales: dict[str, SceneScale], known: dict[str, SceneScale]) -> None:
    if not scales.keys() <= known.keys():
        atomic.write_json(file, {key: scale.to_dict() for key, scale in {**known, **scales}.items()})


def _scale_choice(session: Session, how: str, facts: Sequence[SceneFacts], scales: dict[str, SceneScale]) -> Choice:
    given = "as asked" if session.settings.normalise else "the default"
    once = "constants of a scene are the same for all its tiles"
    first = facts[0]
    numbers = _numbers(first.band_names, scales[first.scene_id])
    shown = f"; {first.scene_id}: {list_some(numbers, limit=6)}" if how != "none" else ""
    return Choice(
        "normalise", how, f"{given}; {once}{shown}", {one.scene_id: scales[one.scene_id].to_dict() for one in facts[:8]}
    )


def _numbers(names: Iterable[str], scale: SceneScale) -> list[str]:
    """``B2 / 10000``, or ``(B2 - 120) / 4000`` where something is taken off first."""
    parts = zip(names, scale.low, scale.divide, strict=True)
    return [f"({name} - {low:g}) / {divide:g}" if low else f"{name} / {divide:g}" for name, low, divide in parts]
