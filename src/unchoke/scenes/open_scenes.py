"""Scenes found, opened once and checked against each other: what patches are cut from, for training and for prediction.

In: a session and DATA. Out: the facts of every scene that can be used, and a finding for every one that cannot, naming the file.
No pixels are read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from unchoke.core.ahead import map_ahead
from unchoke.core.errors import DataError, list_some
from unchoke.core.findings import Finding
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.jobs.quarantine import Quarantined
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.inspect_scene import inspect_scene
from unchoke.scenes.scan_scenes import scan_scenes
from unchoke.scenes.scene_facts import SceneError, SceneFacts
from unchoke.scenes.scene_files import Scene


def open_scenes(session: Session, data: Path, *, pool: HandlePool) -> tuple[list[SceneFacts], list[Finding]]:
    """Scan `data` and open every scene once. One that cannot be used becomes a finding and a warning; the others stay.

    No scene at all is a `DataError`.
    """
    wanted = session.settings
    scanned = scan_scenes(
        data,
        bands=wanted.bands,
        label=wanted.label,
        path=wanted.path,
        id=wanted.id,
        images=[Path(folder) for folder in wanted.images],
        group=wanted.group,
        split=wanted.split,
    )
    for choice in scanned.choices:
        session.chose(choice)
    facts, broken = inspect_scenes(scanned.scenes, wanted, pool=pool, threads=session.policy.workers)
    facts, other = _with_the_same_bands(facts)
    findings = [*scanned.findings, *broken, *other]
    for finding in findings:
        if finding.severity != "info":
            session.warn(finding.message)
    if not facts:
        raise _nothing_usable(data, findings)
    return facts, findings


def inspect_scenes(
    scenes: Sequence[Scene], settings: Settings, *, pool: HandlePool, threads: int = 0
) -> tuple[list[SceneFacts], list[Finding]]:
    """The facts of every scene that opens, in the order of `scenes`, and a finding for each that does not."""

    def inspect(scene: Scene) -> SceneFacts | Finding:
        try:
            return inspect_scene(scene, pool=pool, bands=settings.bands, grid=settings.grid, resampling=settings.resampling)
        except SceneError as error:
            return scene_finding(scene.scene_id, error)

    results = list(map_ahead(inspect, scenes, threads=threads, ahead=4 * max(1, threads)))
    facts = [result for result in results if isinstance(result, SceneFacts)]
    return facts, [result for result in results if isinstance(result, Finding)]


def scene_finding(scene_id: str, error: SceneError) -> Finding:
    """What is said of a scene that cannot be used."""
    return Finding(
        "broken-scene",
        f"scene {scene_id} is set aside: {error.what} ({error.why})",
        severity="error",
        path=error.path or None,
        evidence={"scene": scene_id},
        fix=error.try_,
    )


def set_aside(findings: Sequence[Finding]) -> list[Quarantined]:
    """The entries of `quarantine.csv` for scenes that findings keep out."""
    return [
        Quarantined(str(finding.evidence.get("scene", finding.path or "")), finding.path or "", finding.stage, finding.message)
        for finding in findings
        if finding.severity == "error"
    ]


def _with_the_same_bands(facts: Sequence[SceneFacts]) -> tuple[list[SceneFacts], list[Finding]]:
    """The scenes whose bands are those of most; a network takes one set of bands only."""
    if not facts:
        return [], []
    usual = Counter(scene.band_names for scene in facts).most_common(1)[0][0]
    findings = [
        Finding(
            "other-bands",
            f"scene {scene.scene_id} is set aside: its bands are {', '.join(scene.band_names)}, not {', '.join(usual)}",
            severity="error",
            path=scene.scene.paths[0],
            evidence={"scene": scene.scene_id},
            fix="name bands that every scene has with --bands",
        )
        for scene in facts
        if scene.band_names != usual
    ]
    return [scene for scene in facts if scene.band_names == usual], findings


def _nothing_usable(data: Path, findings: Sequence[Finding]) -> DataError:
    reasons = [finding.message for finding in findings if finding.severity == "error"]
    return DataError(
        f"no scene in {data} can be used",
        why=f"{format_count(len(reasons), 'problem')}: {list_some(reasons, limit=3)}" if reasons else "none was found there",
        try_="give a folder of band files, a folder of scenes, one raster or a table; --bands names the bands",
    )
