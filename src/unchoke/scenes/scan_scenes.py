"""Which scenes there are, by names alone: DATA in, scenes out. No file is opened except a table.

DATA is a folder (band files of one scene, folders of such, several scenes told apart by the name before the band, or files that
each hold a whole scene), one file, or a table. Names are those of Landsat (`LC08_…_B2.TIF`), Sentinel-2 (`T33UUP_…_B8A_20m.jp2`)
and anything like `scene_B2.tif`. A scene that lacks a band is left out with a finding that names both; every guess is a choice
with its reason.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.input_file import read_plain
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, RemotePlace, join, locate, refuse_unlisted
from unchoke.core.stores import explain_missing
from unchoke.core.units import format_count
from unchoke.core.urls import is_url
from unchoke.core.workspace import safe_name
from unchoke.data.columns import ID_NAMES, PATH_NAMES, describe_columns, require_columns
from unchoke.data.image_files import FileMatcher, diagnose_special, find_files, require_folders, spellings, stem_of
from unchoke.data.sample_set import SPLIT_WORDS
from unchoke.data.table import TABLE_SUFFIXES, is_missing, no_rows, read_table
from unchoke.scenes.scene_facts import BandFile, Scene

if TYPE_CHECKING:
    import pandas as pd

# B2, B02, B8A, b10; SR_B2 and ST_B10 (Landsat collection 2) keep their prefix out of the scene's name.
_BAND = re.compile(r"^(?P<scene>.*?)[_.\- ]?(?P<band>(?:(?:SR|ST)_)?B\d{1,2}A?)(?:[_\-](?P<metres>\d{2,3})m)?$", re.IGNORECASE)
_SEPARATED = re.compile(r"(?:^|[_.\- ])(?:(?:SR|ST)_)?B\d{1,2}A?(?:[_\-]\d{2,3}m)?$", re.IGNORECASE)
_QUALITY = re.compile(
    r"^(?P<scene>.*?)(?:^|[_.\- ])(?P<band>BQA|QA|(?:QA|SR_QA|ST_QA)_[A-Z]+|SCL|AOT|WVP|TCI|CLDPRB|CLD|SNW|PVI|UDM2?|"
    r"preview|thumbnail|thumb|browse|quicklook)(?:[_\-](?P<metres>\d{2,3})m)?(?:[_\-](?:small|large))?$",
    re.IGNORECASE,
)
_PARTS = re.compile(r"\d+|\D+")
_RESOLUTION_FOLDER = re.compile(r"^R(\d+)m$", re.IGNORECASE)
"""Sentinel-2 keeps the bands of one pixel size in a folder: R10m, R20m, R60m."""
_LABEL_WORD = re.compile(r"[_.\- ](?:label|labels|mask|masks|gt|truth|annotation|lbl|msk)$", re.IGNORECASE)

# Products: files made from a scene, named like it with one of these words, or in a folder of such a name.
_MASKS = "label|labels|mask|masks|gt|truth|ground_?truth|annotation|annotations|lbl|msk"
_MADE = (
    "class|classes|pred|preds|prediction|predictions|predicted|prob|probs|probability|probabilities|confidence|"
    "seg|segmentation|segmentations|overlay|overlays|ndvi|ndwi|mndwi|ndsi|evi"
)
_AFTER = re.compile(rf"[_.\- ](?:{_MASKS}|{_MADE})$", re.IGNORECASE)
_BEFORE = re.compile(rf"^(?:{_MASKS}|{_MADE})[_.\- ]", re.IGNORECASE)
_PRODUCT_FOLDER = re.compile(rf"^(?:.*[_.\- ])?(?:{_MASKS}|{_MADE})$", re.IGNORECASE)
_MASK_FOLDER = re.compile(rf"^(?:.*[_.\- ])?(?:{_MASKS})$", re.IGNORECASE)
_RASTERS = frozenset({".tif", ".tiff", ".jp2"})

_SCENE_COLUMNS = ("scene_id", "scene", "scene_name", "product", "product_id", "granule", *ID_NAMES)
_BAND_COLUMNS = ("band", "band_name", "bands", "band_id")
_PATH_COLUMNS = (*PATH_NAMES, "scene_path", "folder", "raster", "tif", "href")


_RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))})
"""Names that Windows keeps for devices, with any ending."""
_VOC_PHOTOS, _VOC_MASKS, _VOC_SPLITS = "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"
NAMING = "a label bears the name of its scene: lake.png, lake_mask.png or mask_lake.png for lake.jpg"


@dataclass(frozen=True)
class LabelCode:
    """What the classes 0, 1, … of labels are called and painted, where the labels say it."""

    class_names: tuple[str, ...] = ()
    colours: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class ScannedScenes:
    """The scenes that are complete, what keeps others out, and what was chosen.

    `layers` are the label files of scenes that have one for each class, by scene and class. `label` is where labels were sought.
    """

    scenes: list[Scene]
    findings: list[Finding] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    layers: dict[str, dict[str, str]] = field(default_factory=dict)
    label: str = ""
    code: LabelCode = LabelCode()


def scan_scenes(
    data: DataPlace,
    *,
    bands: Sequence[str] = (),
    label: str | None = None,
    path: str | None = None,
    id: str | None = None,
    images: Sequence[DataPlace] = (),
    group: str | None = None,
    split: str | None = None,
) -> ScannedScenes:
    """Find the scenes of `data`.

    `bands` names the bands to use, in their order (none: all that every scene has). `label` is a raster, a folder of rasters,
    or a column of the table; `path`, `id`, `group` and `split` are columns; a table's files are sought in `images` as well.
    """
    _refuse_repeats(bands)
    suffix = suffix_of(data.name)
    if suffix not in TABLE_SUFFIXES and suffix not in IMAGE_SUFFIXES:
        refuse_unlisted(data)
    if not data.exists():
        if isinstance(data, RemotePlace):
            raise explain_missing(data.url)
        raise UsageError(
            f"no such file or folder: {data}",
            code="no-such-file",
            why="scenes are a folder, a table or a raster file",
            try_=f"ls {shlex.quote(str(data.absolute().parent))}",
        )
    if data.is_dir():
        options = {"--path": path, "--id": id, "--group": group, "--split": split, "--images": images or None}
        if given := [option for option, value in options.items() if value is not None]:
            raise UsageError(
                f"{', '.join(given)} given, but {data} is a folder",
                code="columns-without-table",
                why="those options are about a table of scenes",
                try_="give the table itself, or leave the options out",
            )
        if join(data, _VOC_PHOTOS).is_dir() and join(data, _VOC_MASKS).is_dir():
            return _scan_voc(data, bands=bands, label=label)
        return _scan_folder(data, bands=bands, label=label)
    if suffix in TABLE_SUFFIXES:
        return _scan_table(data, bands=bands, label=label, path=path, id=id, images=images, group=group, split=split)
    if suffix not in IMAGE_SUFFIXES:
        raise UsageError(
            f"{data} is neither a raster nor a table",
            code="not-a-scene",
            why=f"rasters end in {', '.join(sorted(IMAGE_SUFFIXES))}; tables in {', '.join(TABLE_SUFFIXES)}",
            try_="give a folder of scenes, or rename the file if its ending is wrong",
        )
    scanned = ScannedScenes([Scene(_unique_ids([(data.stem, data.stem)])[0], file=str(data.absolute()))])
    return _give_labels(scanned, label, data=data)


# Names


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


def _refuse_repeats(names: Sequence[str]) -> None:
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


def _unique_ids(names: Sequence[tuple[str, str]]) -> list[str]:
    """The short name of each scene where all of these differ, else the long ones; safe in file names, in any letter case."""
    ids: list[str] = []
    for choice in (0, 1):
        ids = [safe_name(pair[choice].replace(".SAFE", "").replace("/", "_")) for pair in names]
        ids = [f"{id_}_" if id_.partition(".")[0].lower() in _RESERVED else id_ for id_ in ids]
        if len({id_.lower() for id_ in ids}) == len(ids):
            return ids
    taken: Counter[str] = Counter(id_.lower() for id_ in ids)
    return [f"{id_}-{digest(pair[1])[:6]}" if taken[id_.lower()] > 1 else id_ for id_, pair in zip(ids, names, strict=True)]


def _stem(relative: str) -> str:
    return stem_of(PurePosixPath(relative).name)


def _left_out(names: Sequence[str], reason: str) -> list[Choice]:
    """A choice that names what is not used; none where nothing was left out."""
    return [Choice("left out", list_some(list(names)), reason, {"count": len(names)})] if names else []


# Folders


def _scan_folder(root: DataPlace, *, bands: Sequence[str], label: str | None) -> ScannedScenes:
    """Every scene below `root`; files of the label's are no scenes."""
    place = _label_place(label, data=root)
    files = find_files([root])
    apart = None if place is None or _is_below(str(root), place) else place  # masks among the photos are told by their names
    entries = [entry for entry in files.images if apart is None or not _is_below(entry.path, apart)]
    if not entries:
        raise DataError(
            f"no rasters below {root}",
            code="no-scenes",
            why="scenes are TIFF, JPEG 2000 or picture files",
            try_=f"ls -R {shlex.quote(str(root))}",
        )
    named = [(entry, split_stem(_stem(entry.relative), wanted=bands)) for entry in entries]
    if any(name is not None and not name.quality for _, name in named):
        scanned = _scan_band_files(root, named, bands)
    else:
        scanned = _scan_whole_files(root, named, labelled=label is not None)
    special = diagnose_special(files.special)
    return _give_labels(replace(scanned, findings=special + scanned.findings), label, data=root)


def _scan_voc(root: DataPlace, *, bands: Sequence[str], label: str | None) -> ScannedScenes:
    """Photos and masks in the folders of Pascal VOC, with the splits that its lists give; photos without a mask are left out."""
    scanned = _scan_folder(join(root, _VOC_PHOTOS), bands=bands, label=label or str(join(root, _VOC_MASKS)))
    splits: dict[str, str] = {}
    for name in ("train", "val", "test"):
        file = Path(str(join(root, f"{_VOC_SPLITS}/{name}.txt")))
        if not is_url(str(file)) and file.is_file():
            splits |= dict.fromkeys(read_plain(file).decode("utf-8").split(), name)
    kept = [scene for scene in scanned.scenes if scene.label is not None]
    left = len(scanned.scenes) - len(kept)
    reason = f"the folders of Pascal VOC; {format_count(left, 'photo')} without a mask are left out"
    choices = [Choice("layout", "VOC", reason)]
    if splits and "train" in splits.values():
        kept = [replace(scene, split=splits.get(_stem(scene.file or ""), "")) for scene in kept]
        choices.append(Choice("split", f"from {_VOC_SPLITS}", "its lists name the photos of train and val"))
    findings = [one for one in scanned.findings if one.code != "missing-label"]
    return replace(scanned, scenes=kept or scanned.scenes, findings=findings, choices=[*scanned.choices, *choices])


def _scan_whole_files(root: DataPlace, named: Sequence[tuple[FileEntry, BandName | None]], *, labelled: bool) -> ScannedScenes:
    """Each file a scene; previews, quality files, masks and other products beside them are not."""
    kept = [entry for entry, name in named if name is None]
    products = find_products([entry.relative for entry in kept])
    kept = [entry for entry in kept if entry.relative not in products]
    if not kept:
        raise DataError(
            f"only quality bands and previews below {root}",
            code="no-scenes",
            why=f"found {list_some([entry.relative for entry, _ in named])}",
            try_="name them with --bands if they are what you want",
        )
    ids = _unique_ids([(_stem(entry.relative), stem_of(entry.relative)) for entry in kept])
    splits, choices = _folder_splits([entry.relative for entry in kept])
    scenes = [Scene(id_, file=entry.path, split=split) for id_, entry, split in zip(ids, kept, splits, strict=True)]
    choices.insert(0, Choice("scenes", len(scenes), "no file is named after a band, so each file is a scene"))
    left = [entry.relative for entry, name in named if name is not None]
    choices += _left_out(left, "quality bands and previews, by their names")
    if products:
        parts = [PurePosixPath(one).parts for one in sorted(products)]
        folders = sorted({one[0] for one in parts if len(one) > 1 and _MASK_FOLDER.match(one[0])})
        hint = f"; --label {folders[0]} makes labels of those in it" if folders and not labelled else ""
        value = f"{format_count(len(products), 'file')}: {list_some(sorted(products))}"
        reason = f"masks and other products of scenes, by their names{hint}"
        choices.append(Choice("products", value, reason, {"count": len(products)}))
    return ScannedScenes(scenes, [], choices)


def find_products(relatives: Sequence[str]) -> set[str]:
    """Those of the paths that are products of another of them: masks, predictions, indices, pictures in another format.

    A file of such a name without a scene to belong to may be a scene itself, and stays one.
    """

    def base(stem: str) -> str:
        return _BEFORE.sub("", _AFTER.sub("", stem))

    stems = {one: _stem(one) for one in relatives}
    folders = [one.rpartition("/")[0] for one in relatives]
    above = len(PurePosixPath(posixpath.commonpath(folders)).parts) if folders else 0  # folders that hold all of them
    in_folders = {one for one in relatives if any(_PRODUCT_FOLDER.match(part) for part in one.split("/")[above:-1])}
    marked = {one for one, stem in stems.items() if base(stem) != stem}
    scenes = {stems[one].lower() for one in relatives if one not in in_folders and one not in marked}
    products = {one for one in marked if base(stems[one]).lower() in scenes}
    products |= {one for one in in_folders if {stems[one].lower(), base(stems[one]).lower()} & scenes}
    by_name: dict[str, list[str]] = defaultdict(list)
    for one in relatives:
        if one not in products:
            by_name[stem_of(one).lower()].append(one)
    for group in by_name.values():  # PNG, JPEG and the like beside a raster of the same name: how a scene looks, not another one
        if any(suffix_of(one) in _RASTERS for one in group):
            products |= {one for one in group if suffix_of(one) not in _RASTERS}
    return products


def _scan_band_files(root: DataPlace, named: Sequence[tuple[FileEntry, BandName | None]], wanted: Sequence[str]) -> ScannedScenes:
    """Files named after bands, gathered into scenes by their folder and the name before the band."""
    groups: dict[tuple[str, str], list[tuple[FileEntry, BandName]]] = defaultdict(list)
    for entry, name in named:
        if name is not None:
            groups[_scene_folder(entry.relative), name.scene].append((entry, name))
    bare = [key for key, files in groups.items() if all(name.quality for _, name in files)]
    apart = [entry.relative for key in bare for entry, _ in groups.pop(key)]
    ids = _unique_ids([(prefix or folder or root.name, f"{folder}/{prefix}".strip("/")) for folder, prefix in groups])
    splits, split_choices = _folder_splits([folder + "/" for folder, _ in groups])
    choices: list[Choice] = []
    scenes = []
    for id_, split, files in zip(ids, splits, groups.values(), strict=True):
        bands, finer = _one_file_per_band(files)
        choices += [choice for choice in finer if choice not in choices]
        scenes.append(Scene(id_, bands=bands, split=split))
    quality = {canonical(name.band) for _, name in named if name is not None and name.quality}
    settled = _settle_bands(scenes, wanted, quality=quality)
    stray = [entry.relative for entry, name in named if name is None]
    how = Choice("scenes", len(scenes), "files named after bands, gathered by folder and the name before the band")
    left = _left_out(stray, "not named after a band, while other files are")
    left += _left_out(apart, "quality bands and previews that belong to no scene by their names")
    return replace(settled, choices=[how, *choices[:3], *settled.choices, *left, *split_choices])


def _scene_folder(relative: str) -> str:
    """The folder that stands for a scene: a product's (`….SAFE`), or the file's own without `R10m` and `IMG_DATA`."""
    folders = relative.split("/")[:-1]
    for depth, folder in enumerate(folders):
        if folder.upper().endswith(".SAFE"):
            return "/".join(folders[: depth + 1])
    while folders and (_RESOLUTION_FOLDER.match(folders[-1]) or folders[-1].upper() == "IMG_DATA"):
        folders.pop()
    return "/".join(folders)


def _folder_splits(relatives: Sequence[str]) -> tuple[list[str], list[Choice]]:
    """The split of each path where the folders directly inside are all named after splits, with train among them."""
    tops = [relative.partition("/")[0].lower() if "/" in relative else "" for relative in relatives]
    splits = [SPLIT_WORDS.get(top, "") for top in tops]
    if "train" not in splits or "" in splits:
        return [""] * len(relatives), []
    return splits, [Choice("split", "from the folders", "the folders directly inside are named after splits")]


def _one_file_per_band(files: Iterable[tuple[FileEntry, BandName]]) -> tuple[tuple[BandFile, ...], list[Choice]]:
    """The bands of one scene in natural order; of a band at several pixel sizes the finest."""

    def pixel_size(entry: FileEntry, name: BandName) -> tuple[int, str]:
        """Metres by the file's or its folder's name, those without last; then in name order."""
        found = [_RESOLUTION_FOLDER.match(folder) for folder in entry.relative.split("/")[:-1]]
        by_folder = next((int(match[1]) for match in reversed(found) if match), None)
        return (name.metres or by_folder or 10_000, entry.relative)

    def spell(entry: FileEntry, name: BandName) -> str:
        metres = pixel_size(entry, name)[0]
        return f"{metres} m" if metres < 10_000 else Path(entry.relative).name

    by_band: dict[str, list[tuple[FileEntry, BandName]]] = defaultdict(list)
    for entry, name in files:
        by_band[canonical(name.band)].append((entry, name))
    chosen: dict[str, BandFile] = {}
    choices = []
    for several in by_band.values():
        ranked = sorted(several, key=lambda item: pixel_size(*item))
        entry, name = ranked[0]
        chosen[name.band] = BandFile(name.band, entry.path)
        if len(ranked) > 1:
            others = ", ".join(spell(*item) for item in ranked[1:])
            choices.append(Choice(f"{name.band} file", spell(entry, name), f"the finest; there is also {others}"))
    return tuple(chosen[name] for name in natural_order(chosen)), choices


def _settle_bands(scenes: Sequence[Scene], wanted: Sequence[str], *, quality: Iterable[str]) -> ScannedScenes:
    """Every scene with the same bands in the same order; those that lack one become findings.

    Without `wanted` these are the bands that all scenes have, `quality` ones (canonical names) left out, or, where no band is
    in all of them, the bands of most scenes.
    """
    choices: list[Choice] = []
    if wanted:  # a band that no scene has is a slip in the command, not a fault of the data
        unknown = [name for name in wanted if all(find_band(name, scene.band_names) is None for scene in scenes)]
        if unknown:
            names = natural_order({name for scene in scenes for name in scene.band_names})
            raise UsageError(
                f"no scene has a band {list_some(unknown)}",
                code="no-such-band",
                why=f"the bands there are {list_some(names, limit=20)}",
                try_=f"--bands {','.join(names[:4])}",
            )
    else:
        hidden = set(quality)
        seen = Counter(canonical(band.name) for scene in scenes for band in scene.bands)
        spelled = {canonical(band.name): band.name for scene in reversed(scenes) for band in reversed(scene.bands)}
        usable = [key for key in seen if key not in hidden]
        everywhere = [key for key in usable if seen[key] == len(scenes)]
        most = [key for key in usable if 2 * seen[key] > len(scenes)] or usable
        wanted = natural_order(spelled[key] for key in everywhere or most)
        uneven = [f"{spelled[key]} ({seen[key]} of {len(scenes)})" for key in usable if spelled[key] not in wanted]
        have = "every scene has" if everywhere else "most scenes have"
        choices = [Choice("bands", ",".join(wanted), f"all bands that {have}")]
        choices += _left_out([spelled[key] for key in seen if key in hidden], "quality bands and previews; --bands names them")
        choices += _left_out(uneven, "bands that only some scenes have; --bands names them")
    kept, findings = [], []
    for scene in scenes:
        found = [find_band(name, scene.band_names) for name in wanted]
        if missing := [name for name, position in zip(wanted, found, strict=True) if position is None]:
            findings.append(_missing_band(scene, missing))
        else:
            kept.append(replace(scene, bands=tuple(scene.bands[position] for position in found if position is not None)))
    return ScannedScenes(kept, findings, choices)


def _missing_band(scene: Scene, missing: Sequence[str], *, because: str = "") -> Finding:
    there = ", ".join(scene.band_names) or "none"
    return Finding(
        "missing-band",
        f"the scene {scene.scene_id} has no band {list_some(list(missing))}{because or f'; it has {there}'}",
        severity="error",
        path=str(locate(scene.bands[0].path).parent) if scene.bands else None,
        evidence={"scene": scene.scene_id, "missing": list(missing)},
        fix="add the file, take the scene out, or leave the band out of --bands",
    )


# Labels


def _label_place(label: str | None, *, data: DataPlace) -> DataPlace | None:
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


def _is_below(path: str, place: DataPlace) -> bool:
    """Whether a file is `place` or lies inside it."""
    if isinstance(place, RemotePlace) or is_url(path):
        return path == str(place) or path.startswith(f"{place}/")
    real, inside = os.path.realpath(path), os.path.realpath(place)
    return real == inside or real.startswith(inside + os.sep)


def _whole(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)


def _give_labels(scanned: ScannedScenes, label: str | None, *, data: DataPlace) -> ScannedScenes:
    """The scenes with their labels: one file for all, or from a folder those that bear a name of the scene.

    A name may have the word mask or label, or whatever all labels have, before or behind it. A scene with several files, told
    apart by their folders or by the rest of their names, has one for each class. A scene without a label is named in a warning
    and kept, for it can still be tiled.
    """
    place = _label_place(label, data=data)
    if place is None:
        return scanned
    if place.is_file():
        return replace(scanned, scenes=[replace(scene, label=str(place)) for scene in scanned.scenes], label=str(place))
    scenes = scanned.scenes
    photos = {_whole(path) for scene in scenes for path in scene.paths}
    entries = [entry for entry in find_files([place]).images if _whole(entry.path) not in photos]
    if len(entries) == len(scenes) == 1:
        choice = Choice("labels", 1, f"{Path(entries[0].relative).name} is the only label, of the only scene")
        scene = replace(scenes[0], label=entries[0].path)
        return replace(scanned, scenes=[scene], choices=[*scanned.choices, choice], label=str(place))
    owners: dict[str, set[str]] = defaultdict(set)
    for scene in scenes:
        names = [scene.scene_id]
        if scene.file is not None:
            names.append(_stem(scene.file))
        elif scene.bands:
            first = Path(scene.bands[0].path)
            named = split_stem(stem_of(first.name), wanted=[scene.bands[0].name])
            names += [first.parent.name, *([named.scene] if named is not None and named.scene else [])]
        for name in names:
            owners[name.lower()].add(scene.scene_id)
    found: dict[str, dict[tuple[str, str], list[FileEntry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        stem = _stem(entry.relative)
        for name, rest in _names_in(stem):
            for scene_id in owners.get(name.lower(), ()):
                found[scene_id][PurePosixPath(entry.relative).parent.name, rest].append(entry)
            if name.lower() in owners:
                break
    layers, chosen = {}, []
    for scene in scenes:
        kinds = {kind: files[0].path for kind, files in found[scene.scene_id].items() if len(files) == 1}
        exact = {kind: path for kind, path in kinds.items() if not kind[1]} or kinds
        beside = Path(scene.paths[0]).parent.name if scene.paths else ""
        own = [path for kind, path in exact.items() if kind[0] == beside]  # train/a.png and val/a.png
        if len(exact) > 1 and len(own) != 1:
            by_folder = len({folder for folder, _ in exact}) == len(exact)
            layers[scene.scene_id] = {folder if by_folder else rest: path for (folder, rest), path in exact.items()}
        alone = len(exact) == 1 and len(found[scene.scene_id]) == len(kinds)
        chosen.append(replace(scene, label=own[0] if len(own) == 1 else next(iter(exact.values())) if alone else None))
    if layers:  # a scene that has one class alone has one file
        classes = {name for files in layers.values() for name in files}
        for scene in chosen:
            if scene.label is not None:
                kind = next(kind for kind, files in found[scene.scene_id].items() if files[0].path == scene.label)
                layers[scene.scene_id] = {name: scene.label for name in kind if name in classes}
    bare = [scene.scene_id for scene in chosen if scene.label is None and scene.scene_id not in layers]
    choice = Choice("labels", len(chosen) - len(bare), f"files of {place.name} that bear the name of a scene")
    findings, choices = scanned.findings + _missing_labels(bare, str(place)), [*scanned.choices, choice]
    return replace(scanned, scenes=chosen, findings=findings, choices=choices, layers=layers, label=str(place))


def _names_in(stem: str) -> Iterable[tuple[str, str]]:
    """The names of scenes that a label's stem may hold, the likeliest first, each with the rest of the stem."""
    yield stem, ""
    bare = _LABEL_WORD.sub("", stem)
    if bare != stem:
        yield bare, ""
    cuts = [match.start() for match in re.finditer(r"[_.\- ]", stem)]
    yield from ((stem[:at], stem[at + 1 :]) for at in reversed(cuts))
    yield from ((stem[at + 1 :], stem[:at]) for at in cuts)


def _missing_labels(scene_ids: Sequence[str], place: str) -> list[Finding]:
    if not scene_ids:
        return []
    return [
        Finding(
            "missing-label",
            f"{format_count(len(scene_ids), 'scene')} without a label in {place}: {list_some(list(scene_ids))}",
            path=place,
            evidence={"scenes": list(scene_ids)[:1000], "count": len(scene_ids)},
            fix=f"{NAMING}; or give a table with a column of labels",
        )
    ]


# Tables


@dataclass(frozen=True)
class _Columns:
    """Which column means what; `bands` holds (band name, column) pairs, `band` is the column of a table with a row per band."""

    scene: str | None
    path: str = ""
    band: str = ""
    bands: tuple[tuple[str, str], ...] = ()


Row = dict[str, str]


def _scan_table(
    data: DataPlace,
    *,
    bands: Sequence[str],
    label: str | None,
    path: str | None,
    id: str | None,
    images: Sequence[DataPlace],
    group: str | None,
    split: str | None,
) -> ScannedScenes:
    """The scenes of a CSV, TSV or Parquet table.

    A row is a scene, with a column per band or one path (a file that holds all bands, or a folder of band files); or a row is a
    band, with columns for the scene, the band and the path. A row whose file is missing is named and left out.
    """
    require_folders(images)
    table = read_table(data)
    if table.empty:
        raise no_rows(data)
    given = {"--path": path, "--id": id, "--group": group, "--split": split}
    require_columns(table, {option: [name] for option, name in given.items() if name is not None})
    columns, choices = _choose_columns(table, bands=bands, path=path, id=id, used=(label, group, split))
    if split is not None and (unknown := sorted({cell.strip().lower() for cell in map(str, table[split])} - {*SPLIT_WORDS, ""})):
        raise UsageError(
            f"unknown split in the column {split!r}: {list_some([repr(word) for word in unknown])}",
            code="unknown-split",
            why=f"a split is one of {', '.join(SPLIT_WORDS)}, or empty",
            try_="replace those words in the table, or leave --split out to have the splits made",
        )
    finder = _PathFinder(data.absolute().parent, images)
    label_column = label if label is not None and label in table.columns else None
    findings: list[Finding] = []
    unlabelled, scenes = [], []
    rows: list[Row] = [{str(key): str(cell) for key, cell in row.items()} for row in table.to_dict("records")]
    for id_, cells, row in _table_scenes(rows, columns):
        scene = _scene_of(id_, cells, row, columns, bands, finder, findings)
        cell = row[label_column] if label_column is not None else ""
        if scene is None:
            continue
        if label_column is not None and is_missing(cell):
            unlabelled.append(id_)
        elif label_column is not None:
            if (place := finder.find(cell)) is None:
                findings.append(_missing_file(id_, cell, column=label_column, what="no such label as"))
                continue
            scene = replace(scene, label=place)
        its_split = SPLIT_WORDS.get(row[split].strip().lower(), "") if split is not None else ""
        scenes.append(replace(scene, group=row[group].strip() if group is not None else "", split=its_split))
    findings += _missing_labels(unlabelled, f"the column {label_column!r}")
    if by_band := [scene for scene in scenes if scene.file is None]:  # other files are settled when they are opened
        names = (name for scene in by_band for name in scene.band_names)
        quality = [canonical(name) for name in names if (named := split_stem(name)) and named.quality]
        settled = _settle_bands(by_band, bands, quality=quality)
        kept = {scene.scene_id: scene for scene in settled.scenes}
        scenes = [kept.get(scene.scene_id, scene) for scene in scenes if scene.file is not None or scene.scene_id in kept]
        findings, choices = findings + settled.findings, choices + settled.choices
    scanned = ScannedScenes(scenes, findings, choices)
    return scanned if label is None or label_column is not None else _give_labels(scanned, label, data=data)


def _choose_columns(
    table: pd.DataFrame, *, bands: Sequence[str], path: str | None, id: str | None, used: Sequence[str | None]
) -> tuple[_Columns, list[Choice]]:
    names = [str(name) for name in table.columns if name not in used]
    simple = {name: name.strip().lower().replace(" ", "_").replace("-", "_") for name in names}

    def known(usual: Sequence[str]) -> str | None:
        return next((name for word in usual for name in names if simple[name] == word), None)

    def holds_rasters(name: str) -> bool:
        cells = [str(cell).strip() for cell in table[name].head(50) if not is_missing(str(cell))]
        return bool(cells) and all(suffix_of(cell) in IMAGE_SUFFIXES for cell in cells)

    scene, band = id or known(_SCENE_COLUMNS), known(_BAND_COLUMNS)
    rasters = [name for name in names if holds_rasters(name)]
    others = [name for name in names if name not in (scene, band)]
    usual = [name for name in others if simple[name] in _PATH_COLUMNS]
    usual.sort(key=lambda name: (name not in rasters, _PATH_COLUMNS.index(simple[name])))
    alone = [name for name in others if name in rasters]
    place = path or (usual[0] if usual else alone[0] if len(alone) == 1 else None)
    if band is not None and scene is not None and place is not None:
        return _Columns(scene, place, band), [Choice("table", "a row per band", f"its columns {scene!r}, {band!r} and {place!r}")]
    by_band: tuple[tuple[str, str], ...] = ()
    if path is None and bands:
        found = [find_band(name, rasters) for name in bands]
        if any(position is not None for position in found):
            require_columns(table, {"--bands": [name for name, at in zip(bands, found, strict=True) if at is None]})
        by_band = tuple((rasters[at], rasters[at]) for at in found if at is not None)
    elif path is None:
        by_band = tuple((name, name) for name in rasters if (named := split_stem(name)) is not None and not named.scene)
    if by_band:
        shown = ", ".join(column for _, column in by_band)
        return _Columns(scene, bands=by_band), [Choice("table", "a column per band", f"these name raster files: {shown}")]
    if place is None:
        raise UsageError(
            "no column names the scenes' files",
            code="no-scene-column",
            why=f"the columns are {describe_columns(table)}",
            try_="--path COLUMN, or --bands with the columns that hold one band each",
        )
    scene = scene if scene != place else None
    return _Columns(scene, place), [] if path else [Choice("path column", place, "its cells name the scenes' files")]


def _table_scenes(rows: list[Row], columns: _Columns) -> list[tuple[str, list[tuple[str, str]], Row]]:
    """Of each scene its id, the band and cell of each band file (none where one cell names it all), and one row for the rest."""
    if columns.band and columns.scene is not None:
        by_scene: dict[str, list[Row]] = {}
        for row in rows:
            by_scene.setdefault(row[columns.scene].strip(), []).append(row)
        ids = _unique_ids([(name, name) for name in by_scene])
        of_bands = [[(row[columns.band].strip(), row[columns.path]) for row in several] for several in by_scene.values()]
        firsts = [
            {name: next((row[name] for row in several if not is_missing(row[name])), "") for name in several[0]}
            for several in by_scene.values()
        ]
        return list(zip(ids, of_bands, firsts, strict=True))
    named = []
    for number, row in enumerate(rows, start=1):
        cell = row[columns.scene].strip() if columns.scene is not None else ""
        by_path = stem_of(row[columns.path].strip().replace("\\", "/").rstrip("/")) if columns.path else ""
        by_bands = ""
        if columns.bands:  # the name before the band in the first band's file
            band, column = columns.bands[0]
            stem = stem_of(row[column].strip().replace("\\", "/"))
            found = split_stem(stem.rpartition("/")[2], wanted=[band])
            by_bands = (found.scene if found is not None else "") or stem.rpartition("/")[0]
        name = cell or by_path or by_bands or f"row{number}"
        named.append((name.rpartition("/")[2], f"{name}/{number}" if not by_path else name))
    cells = [[(band, row[column]) for band, column in columns.bands] for row in rows]
    return list(zip(_unique_ids(named), cells, rows, strict=True))


def _scene_of(
    id_: str,
    cells: Sequence[tuple[str, str]],
    row: Row,
    columns: _Columns,
    wanted: Sequence[str],
    finder: _PathFinder,
    findings: list[Finding],
) -> Scene | None:
    """The scene with its files; None, and a finding, where some are missing."""
    if not cells:
        cell = row[columns.path]
        place = finder.find(cell) if not is_missing(cell) else None
        if place is None:
            findings.append(_missing_file(id_, cell, column=columns.path))
            return None
        if (is_url(place) and suffix_of(place) in IMAGE_SUFFIXES) or not locate(place).is_dir():
            return Scene(id_, file=place)
        named = [(entry, split_stem(_stem(entry.relative))) for entry in find_files([locate(place)]).images]
        bands, _ = _one_file_per_band((entry, name) for entry, name in named if name is not None and not name.quality)
        if not bands:
            findings.append(_missing_file(id_, place, column=columns.path, what="no band files in"))
            return None
        return Scene(id_, bands)
    found = [(band, cell, finder.find(cell)) for band, cell in cells]
    there = [BandFile(band, place) for band, _, place in found if place is not None]
    gone = [(band, cell) for band, cell, place in found if place is None]
    if any(not wanted or find_band(band, wanted) is not None for band, _ in gone):
        because = f": no such file as {list_some([repr(cell) for _, cell in gone])}"
        findings.append(_missing_band(Scene(id_, tuple(there)), [band for band, _ in gone], because=because))
        return None
    kept: dict[str, BandFile] = {}
    for band_file in there:
        first = kept.setdefault(canonical(band_file.name), band_file)
        if first is not band_file:
            name = band_file.name
            message = f"the scene {id_} has several rows for the band {name}; {first.path} is used, not {band_file.path}"
            findings.append(Finding("repeated-band", message, path=band_file.path, fix="keep one row for each band"))
    return Scene(id_, tuple(kept.values()))


class _PathFinder:
    """The file or folder that a cell means: from the table's folder, then from the image folders, then by name below those."""

    def __init__(self, base: DataPlace, images: Sequence[DataPlace]) -> None:
        self._folders = [base, *(folder.absolute() for folder in images)]
        self._images = list(images)
        self._matcher: FileMatcher | None = None

    def find(self, cell: str) -> str | None:
        for spelling in spellings(cell):
            for folder in self._folders:
                place = join(folder, spelling)
                if spelling and place.exists():
                    return str(place)
        if not self._images:
            return None
        self._matcher = self._matcher or FileMatcher(find_files(self._images).images)
        hits = self._matcher.find(cell)
        return self._matcher.entries[hits[0]].path if len(hits) == 1 else None


def _missing_file(scene_id: str, cell: str, *, column: str, what: str = "no such file as") -> Finding:
    return Finding(
        "missing-file",
        f"the scene {scene_id}: {what} {cell!r} (column {column!r})",
        severity="error",
        path=cell,
        evidence={"scene": scene_id, "column": column},
        fix="correct the path, which counts from the table's folder, or name the folder with --images",
    )
