"""Which files make up a scene, by names alone: names of bands, the same bands for all scenes, names of scenes, label rasters.

Landsat (`LC08_…_B2.TIF`), Sentinel-2 (`T33UUP_…_B8A_20m.jp2`) and anything like `scene_B2.tif`. Paths come in, `Scene` values go
out; what is left out is said. Folders of labels are listed, and no file is opened.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, RemotePlace, join, locate
from unchoke.core.units import format_count
from unchoke.core.urls import is_url
from unchoke.core.workspace import safe_name
from unchoke.data.image_files import find_files, stem_of

# B2, B02, B8A, b10; SR_B2 and ST_B10 (Landsat collection 2) keep their prefix out of the scene's name.
_BAND = re.compile(r"^(?P<scene>.*?)[_.\- ]?(?P<band>(?:(?:SR|ST)_)?B\d{1,2}A?)(?:[_\-](?P<metres>\d{2,3})m)?$", re.IGNORECASE)
_SEPARATED = re.compile(r"(?:^|[_.\- ])(?:(?:SR|ST)_)?B\d{1,2}A?(?:[_\-]\d{2,3}m)?$", re.IGNORECASE)
_QUALITY = re.compile(
    r"^(?P<scene>.*?)(?:^|[_.\- ])(?P<band>BQA|QA|(?:QA|SR_QA|ST_QA)_[A-Z]+|SCL|AOT|WVP|TCI|CLDPRB|CLD|SNW|PVI|UDM2?|"
    r"preview|thumbnail|thumb|browse|quicklook)(?:[_\-](?P<metres>\d{2,3})m)?(?:[_\-](?:small|large))?$",
    re.IGNORECASE,
)
_PARTS = re.compile(r"\d+|\D+")
RESOLUTION_FOLDER = re.compile(r"^R(\d+)m$", re.IGNORECASE)
"""Sentinel-2 keeps the bands of one pixel size in a folder: R10m, R20m, R60m."""
_LABEL_WORD = re.compile(r"[_.\- ](?:label|labels|mask|masks|gt|truth|annotation|lbl|msk)$", re.IGNORECASE)


@dataclass(frozen=True)
class BandFile:
    """One band: its name as the file spells it, the file, and which of the file's bands it is (from 1)."""

    name: str
    path: str
    number: int = 1


@dataclass(frozen=True)
class Scene:
    """One scene: either `bands`, one file each, or one `file` that holds them all (its bands are known once it is opened).

    `scene_id` is unique in one scan and safe as part of a file name. `label` is the path of this scene's label raster.
    """

    scene_id: str
    bands: tuple[BandFile, ...] = ()
    label: str | None = None
    group: str = ""
    split: str = ""
    file: str | None = None

    @property
    def band_names(self) -> list[str]:
        return [band.name for band in self.bands]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file of the scene once, its label last."""
        files = [self.file] if self.file is not None else [band.path for band in self.bands]
        return tuple(dict.fromkeys([*files, *([self.label] if self.label is not None else [])]))


@dataclass(frozen=True)
class ScannedScenes:
    """The scenes that are complete, what keeps others out, and what was chosen."""

    scenes: list[Scene]
    findings: list[Finding] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)


@dataclass(frozen=True)
class BandName:
    """What a file's stem says: the scene before the band's name, the band, and its pixel size where the name has one.

    `quality` bands (QA, scene classification, previews) are no image bands unless they are asked for.
    """

    scene: str
    band: str
    metres: int | None = None
    quality: bool = False


def split_stem(stem: str, *, wanted: Sequence[str] = ()) -> BandName | None:
    """The band that a file's stem names; None for a file that is no single band by its name.

    Names in `wanted` are bands whatever they look like: `site_red` is the band `red` of `site` if that was asked for.
    """
    for name in wanted:
        before, band = stem[: -len(name)], stem[-len(name) :]
        if band.lower() == name.lower() and (not before or before[-1] in "_.- "):
            return BandName(before.rstrip("_.- "), band)
    quality = _QUALITY.match(stem)
    found = quality or (_BAND.match(stem) if _SEPARATED.search(stem) else None)
    if found is None:
        return None
    metres = int(found["metres"]) if found["metres"] else None
    return BandName(found["scene"].rstrip("_.- "), found["band"], metres, quality is not None)


def canonical(name: str) -> str:
    """What two spellings of one band have in common: `B2` and `b02`, `SR_B2` is another."""
    return "".join(part.lstrip("0") or "0" if part.isdigit() else part for part in _PARTS.findall(name.strip().lower()))


def find_band(name: str, there: Sequence[str]) -> int | None:
    """The position of the band that `name` means: as spelled, else by number (`B2` is `B02`), else by its last part (`SR_B2`).

    A name that fits several that way means none of them.
    """
    if name in there:
        return there.index(name)
    for reduce in (canonical, lambda text: re.sub(r"^(?:sr|st)_", "", canonical(text))):
        hits = [position for position, other in enumerate(there) if reduce(other) == reduce(name)]
        if len(hits) == 1:
            return hits[0]
    return None


def refuse_repeats(names: Sequence[str]) -> None:
    """A band that is asked for twice is a slip: the bands of a scene are told apart by their names."""
    kept: dict[str, str] = {}
    for name in names:
        if canonical(name) in kept:
            raise UsageError(
                f"--bands names the band {name} twice",
                code="duplicate-bands",
                why=f"it is there as {kept[canonical(name)]} already",
                try_=f"--bands {','.join(kept.values())}",
            )
        kept[canonical(name)] = name


def natural_order(names: Iterable[str]) -> list[str]:
    """B1, B2, …, B8, B8A, B9, B10: numbers by their value."""

    def key(name: str) -> tuple[list[tuple[int, int, str]], str]:
        parts = _PARTS.findall(name.lower())
        return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts], name

    return sorted(names, key=key)


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
    names = natural_order({name for scene in scenes for name in scene.band_names})
    unknown = [name for name in wanted if all(find_band(name, scene.band_names) is None for scene in scenes)]
    if unknown:
        raise UsageError(
            f"no scene has a band {list_some(unknown)}",
            code="no-such-band",
            why=f"the bands there are {list_some(names, limit=20)}",
            try_=f"--bands {','.join(names[:4])}",
        )


def _with_bands(scenes: Sequence[Scene], wanted: Sequence[str], choices: list[Choice]) -> ScannedScenes:
    kept, findings = [], []
    for scene in scenes:
        found = [find_band(name, scene.band_names) for name in wanted]
        missing = [name for name, position in zip(wanted, found, strict=True) if position is None]
        if missing:
            findings.append(missing_band(scene, missing))
        else:
            kept.append(replace(scene, bands=tuple(scene.bands[position] for position in found if position is not None)))
    return ScannedScenes(kept, findings, choices)


def missing_band(scene: Scene, missing: Sequence[str], *, because: str = "") -> Finding:
    """The finding for a scene that lacks bands."""
    there = ", ".join(scene.band_names) or "none"
    return Finding(
        "missing-band",
        f"the scene {scene.scene_id} has no band {list_some(list(missing))}{because or f'; it has {there}'}",
        severity="error",
        path=str(locate(scene.bands[0].path).parent) if scene.bands else None,
        evidence={"scene": scene.scene_id, "missing": list(missing)},
        fix="add the file, take the scene out, or leave the band out of --bands",
    )


def told_left_out(names: Sequence[str], reason: str) -> list[Choice]:
    """A choice that names what is not used; none where nothing was left out."""
    if not names:
        return []
    return [Choice("left out", list_some(list(names)), reason, {"count": len(names)})]


def label_place(label: str | None, *, data: DataPlace) -> DataPlace | None:
    """The file or folder that `label` means, as typed or inside the data; None without a label."""
    if label is None:
        return None
    folder = data if data.is_dir() else data.parent
    for place in (locate(label), join(folder, label)):
        if place.exists():
            return place.absolute()
    raise UsageError(
        f"no such label raster or folder: {label}",
        code="no-such-label",
        why="--label takes a raster file, a folder of them, or a column of a table of scenes",
        try_=f"ls {shlex.quote(str(locate(label).parent))}",
    )


def is_below(path: str, place: DataPlace) -> bool:
    """Whether a file is `place` or lies inside it."""
    if isinstance(place, RemotePlace) or is_url(path):
        return path == str(place) or path.startswith(f"{place}/")
    real, inside = os.path.realpath(path), os.path.realpath(place)
    return real == inside or real.startswith(inside + os.sep)


def give_labels(
    scenes: Sequence[Scene], label: str | None, *, data: DataPlace
) -> tuple[list[Scene], list[Finding], list[Choice]]:  # fmt: skip
    """The scenes with their labels; one without is named in a warning and kept, for it can still be tiled."""
    place = label_place(label, data=data)
    if place is None:
        return list(scenes), [], []
    if place.is_file():
        return [replace(scene, label=str(place)) for scene in scenes], [], []
    matched = match_labels(scenes, place)
    labelled = [replace(scene, label=path) for scene, path in zip(scenes, matched, strict=True)]
    bare = [scene.scene_id for scene in labelled if scene.label is None]
    choice = Choice("labels", len(labelled) - len(bare), f"files of {place.name} that bear the name of a scene")
    return labelled, missing_labels(bare, place=str(place)), [choice]


def missing_labels(scene_ids: Sequence[str], *, place: str) -> list[Finding]:
    """The warning for scenes without a label."""
    if not scene_ids:
        return []
    return [
        Finding(
            "missing-label",
            f"{format_count(len(scene_ids), 'scene')} without a label in {place}: {list_some(list(scene_ids))}",
            path=place,
            evidence={"scenes": list(scene_ids)[:1000], "count": len(scene_ids)},
            fix="name the label rasters after the scenes, or give a table with a column of labels",
        )
    ]


def match_labels(scenes: Sequence[Scene], folder: DataPlace) -> list[str | None]:
    """For each scene the one raster below `folder` that bears its name: its id, its file's stem, the name before its bands'."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for entry in find_files([folder]).images:
        stem = stem_of(Path(entry.relative).name)
        for name in {stem, _LABEL_WORD.sub("", stem)}:
            by_name[name.lower()].append(entry.path)
    hits = [[by_name.get(name.lower(), []) for name in _names_of(scene)] for scene in scenes]
    return [next((paths[0] for paths in found if len(paths) == 1), None) for found in hits]


def _names_of(scene: Scene) -> list[str]:
    names = [scene.scene_id]
    if scene.file is not None:
        names.append(stem_of(Path(scene.file).name))
    elif scene.bands:
        first = Path(scene.bands[0].path)
        named = split_stem(stem_of(first.name), wanted=[scene.bands[0].name])
        names += [first.parent.name, *([named.scene] if named is not None and named.scene else [])]
    return names
