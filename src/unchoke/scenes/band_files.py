"""Bands and ids of a set of scenes: the same bands for all, in one order; names that differ. What is left out is said."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.listing import FileEntry
from unchoke.core.workspace import safe_name
from unchoke.scenes.bands import BandName, canonical, find_band, natural_order
from unchoke.scenes.scene_list import BandFile, ScannedScenes, Scene

RESOLUTION_FOLDER = re.compile(r"^R(\d+)m$", re.IGNORECASE)
"""Sentinel-2 keeps the bands of one pixel size in a folder: R10m, R20m, R60m."""


def unique_ids(names: Sequence[tuple[str, str]]) -> list[str]:
    """The short name of each scene where all of these differ, else the long ones; safe in file names, in any letter case."""
    ids: list[str] = []
    for choice in (0, 1):
        ids = [safe_name(pair[choice].replace(".SAFE", "").replace("/", "_")) for pair in names]
        if len({id_.lower() for id_ in ids}) == len(ids):
            return ids
    taken: Counter[str] = Counter(id_.lower() for id_ in ids)
    return [f"{id_}-{digest(pair[1])[:6]}" if taken[id_.lower()] > 1 else id_ for id_, pair in zip(ids, names, strict=True)]


def one_file_per_band(files: Iterable[tuple[FileEntry, BandName]]) -> tuple[tuple[BandFile, ...], list[Choice]]:
    """The bands of one scene in natural order; of a band at several pixel sizes the finest."""
    by_band: dict[str, list[tuple[FileEntry, BandName]]] = defaultdict(list)
    for entry, name in files:
        by_band[canonical(name.band)].append((entry, name))
    chosen: dict[str, BandFile] = {}
    choices = []
    for several in by_band.values():
        ranked = sorted(several, key=lambda item: _pixel_size(*item))
        entry, name = ranked[0]
        chosen[name.band] = BandFile(name.band, entry.path)
        if len(ranked) > 1:
            others = ", ".join(_spell_size(*item) for item in ranked[1:])
            choices.append(Choice(f"{name.band} file", _spell_size(entry, name), f"the finest; there is also {others}"))
    return tuple(chosen[name] for name in natural_order(chosen)), choices


def _pixel_size(entry: FileEntry, name: BandName) -> tuple[int, str]:
    """Metres by the file's or its folder's name, those without last; then in name order."""
    found = [RESOLUTION_FOLDER.match(folder) for folder in entry.relative.split("/")[:-1]]
    by_folder = next((int(match[1]) for match in reversed(found) if match), None)
    return (name.metres or by_folder or 10_000, entry.relative)


def _spell_size(entry: FileEntry, name: BandName) -> str:
    metres = _pixel_size(entry, name)[0]
    return f"{metres} m" if metres < 10_000 else Path(entry.relative).name


def settle_bands(scenes: Sequence[Scene], wanted: Sequence[str], *, quality: Iterable[str] = ()) -> ScannedScenes:
    """Every scene with the same bands in the same order; those that lack one become findings.

    Without `wanted` these are the bands that all scenes have, `quality` ones (canonical names) left out, or, where no band is
    in all of them, the bands of most scenes.
    """
    if wanted:
        _require_somewhere(scenes, wanted)
        return _with_bands(scenes, wanted, [])
    hidden = set(quality)
    seen: Counter[str] = Counter()
    spelled: dict[str, str] = {}
    for scene in scenes:
        for band in scene.bands:
            seen[canonical(band.name)] += 1
            spelled.setdefault(canonical(band.name), band.name)
    usable = [key for key in seen if key not in hidden]
    everywhere = [key for key in usable if seen[key] == len(scenes)]
    most = [key for key in usable if 2 * seen[key] > len(scenes)] or usable
    taken = natural_order(spelled[key] for key in everywhere or most)
    uneven = [f"{spelled[key]} ({seen[key]} of {len(scenes)})" for key in usable if spelled[key] not in taken]
    choices = [Choice("bands", ",".join(taken), f"all bands that {'every scene has' if everywhere else 'most scenes have'}")]
    choices += told_left_out([spelled[key] for key in seen if key in hidden], "quality bands and previews; --bands names them")
    choices += told_left_out(uneven, "bands that only some scenes have; --bands names them")
    return _with_bands(scenes, taken, choices)


def _require_somewhere(scenes: Sequence[Scene], wanted: Sequence[str]) -> None:
    """A band that no scene has is a slip in the command, not a fault of the data."""
    names = natural_order({band.name for scene in scenes for band in scene.bands})
    unknown = [name for name in wanted if all(find_band(name, [band.name for band in scene.bands]) is None for scene in scenes)]
    if unknown:
        raise UsageError(
            f"no scene has a band {list_some(unknown)}",
            why=f"the bands there are {list_some(names, limit=20)}",
            try_=f"--bands {','.join(names[:4])}",
        )


def _with_bands(scenes: Sequence[Scene], wanted: Sequence[str], choices: list[Choice]) -> ScannedScenes:
    kept, findings = [], []
    for scene in scenes:
        names = [band.name for band in scene.bands]
        found = [find_band(name, names) for name in wanted]
        missing = [name for name, position in zip(wanted, found, strict=True) if position is None]
        if missing:
            findings.append(missing_band(scene, missing))
        else:
            kept.append(replace(scene, bands=tuple(scene.bands[position] for position in found if position is not None)))
    return ScannedScenes(kept, findings, choices)


def missing_band(scene: Scene, missing: Sequence[str], *, because: str = "") -> Finding:
    """The finding for a scene that lacks bands."""
    there = ", ".join(band.name for band in scene.bands) or "none"
    return Finding(
        "missing-band",
        f"the scene {scene.scene_id} has no band {list_some(list(missing))}{because or f'; it has {there}'}",
        severity="error",
        path=str(Path(scene.bands[0].path).parent) if scene.bands else None,
        evidence={"scene": scene.scene_id, "missing": list(missing)},
        fix="add the file, take the scene out, or leave the band out of --bands",
    )


def told_left_out(names: Sequence[str], reason: str) -> list[Choice]:
    """A choice that names what is not used; none where nothing was left out."""
    if not names:
        return []
    return [Choice("left out", list_some(list(names)), reason, {"count": len(names)})]
