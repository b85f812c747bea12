"""Which scenes there are, by names alone: DATA in, scenes out.

DATA is a folder (the band files of one scene, folders of such, several scenes told apart by the names before the band, or files
that each hold a whole scene), one file, or a table (`scene_tables`). No file is opened except a table. A scene that lacks a band
is left out with a finding that names both; what was guessed is a choice with its reason.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, RemotePlace, refuse_unlisted
from unchoke.core.stores import explain_missing
from unchoke.core.workspace import safe_name
from unchoke.data.image_files import diagnose_special, find_files, stem_of
from unchoke.data.sample_set import SPLIT_WORDS
from unchoke.data.table import TABLE_SUFFIXES
from unchoke.scenes.scene_files import (
    RESOLUTION_FOLDER,
    BandName,
    ScannedScenes,
    Scene,
    canonical,
    give_labels,
    is_below,
    label_place,
    one_file_per_band,
    refuse_repeats,
    settle_bands,
    split_stem,
    told_left_out,
    unique_ids,
)
from unchoke.scenes.scene_products import find_products, told_products
from unchoke.scenes.scene_tables import scan_scene_table


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
    refuse_repeats(bands)
    is_file = suffix_of(data.name) in TABLE_SUFFIXES or suffix_of(data.name) in IMAGE_SUFFIXES
    if not is_file:
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
        _refuse_columns(data, {"--path": path, "--id": id, "--group": group, "--split": split, "--images": images or None})
        return scan_scene_folder(data, bands=bands, label=label)
    if suffix_of(data.name) in TABLE_SUFFIXES:
        return scan_scene_table(data, bands=bands, label=label, path=path, id=id, images=images, group=group, split=split)
    if suffix_of(data.name) not in IMAGE_SUFFIXES:
        raise UsageError(
            f"{data} is neither a raster nor a table",
            code="not-a-scene",
            why=f"rasters end in {', '.join(sorted(IMAGE_SUFFIXES))}; tables in {', '.join(TABLE_SUFFIXES)}",
            try_="give a folder of scenes, or rename the file if its ending is wrong",
        )
    scene = Scene(safe_name(data.stem), file=str(data.absolute()))
    scenes, findings, choices = give_labels([scene], label, data=data)
    return ScannedScenes(scenes, findings, choices)


def scan_scene_folder(root: DataPlace, *, bands: Sequence[str] = (), label: str | None = None) -> ScannedScenes:
    """Every scene below `root`; files of the label's are no scenes."""
    place = label_place(label, data=root)
    files = find_files([root])
    entries = [entry for entry in files.images if place is None or not is_below(entry.path, place)]
    if not entries:
        raise DataError(
            f"no rasters below {root}",
            code="no-scenes",
            why="scenes are TIFF, JPEG 2000 or picture files",
            try_=f"ls -R {shlex.quote(str(root))}",
        )
    named = [(entry, split_stem(stem_of(Path(entry.relative).name), wanted=bands)) for entry in entries]
    if any(name is not None and not name.quality for _, name in named):
        scanned = _scan_band_files(root, named, bands)
    else:
        scanned = _scan_whole_files(root, named, labelled=label is not None)
    scenes, findings, choices = give_labels(scanned.scenes, label, data=root)
    return ScannedScenes(scenes, diagnose_special(files.special) + scanned.findings + findings, scanned.choices + choices)


def _refuse_columns(data: DataPlace, options: dict[str, object]) -> None:
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} given, but {data} is a folder",
            code="columns-without-table",
            why="those options are about a table of scenes",
            try_="give the table itself, or leave the options out",
        )


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
    ids = unique_ids([(stem_of(Path(entry.relative).name), stem_of(entry.relative)) for entry in kept])
    splits, choices = _folder_splits([entry.relative for entry in kept])
    scenes = [Scene(id_, file=entry.path, split=side) for id_, entry, side in zip(ids, kept, splits, strict=True)]
    choices.insert(0, Choice("scenes", len(scenes), "no file is named after a band, so each file is a scene"))
    left = [entry.relative for entry, name in named if name is not None]
    choices += told_left_out(left, "quality bands and previews, by their names") + told_products(
        sorted(products), labelled=labelled
    )
    return ScannedScenes(scenes, [], choices)


def _scan_band_files(root: DataPlace, named: Sequence[tuple[FileEntry, BandName | None]], wanted: Sequence[str]) -> ScannedScenes:
    """Files named after bands, gathered into scenes by their folder and the name before the band."""
    groups: dict[tuple[str, str], list[tuple[FileEntry, BandName]]] = defaultdict(list)
    for entry, name in named:
        if name is not None:
            groups[_scene_folder(entry.relative), name.scene].append((entry, name))
    bare = [key for key, files in groups.items() if all(name.quality for _, name in files)]
    apart = [entry.relative for key in bare for entry, _ in groups.pop(key)]
    ids = unique_ids([(prefix or folder or root.name, f"{folder}/{prefix}".strip("/")) for folder, prefix in groups])
    splits, split_choices = _folder_splits([folder + "/" for folder, _ in groups])
    choices: list[Choice] = []
    scenes = []
    for id_, side, files in zip(ids, splits, groups.values(), strict=True):
        bands, finer = one_file_per_band(files)
        choices += [choice for choice in finer if choice not in choices]
        scenes.append(Scene(id_, bands=bands, split=side))
    quality = {canonical(name.band) for _, name in named if name is not None and name.quality}
    scanned = settle_bands(scenes, wanted, quality=quality)
    stray = [entry.relative for entry, name in named if name is None]
    how = Choice("scenes", len(scenes), "files named after bands, gathered by folder and the name before the band")
    told = told_left_out(stray, "not named after a band, while other files are")
    told += told_left_out(apart, "quality bands and previews that belong to no scene by their names")
    return ScannedScenes(scanned.scenes, scanned.findings, [how, *choices[:3], *scanned.choices, *told, *split_choices])


def _scene_folder(relative: str) -> str:
    """The folder that stands for a scene: a product's (`….SAFE`), or the file's own without `R10m` and `IMG_DATA`."""
    folders = relative.split("/")[:-1]
    for depth, folder in enumerate(folders):
        if folder.upper().endswith(".SAFE"):
            return "/".join(folders[: depth + 1])
    while folders and (RESOLUTION_FOLDER.match(folders[-1]) or folders[-1].upper() == "IMG_DATA"):
        folders.pop()
    return "/".join(folders)


def _folder_splits(relatives: Sequence[str]) -> tuple[list[str], list[Choice]]:
    """The side of each path where the folders directly inside are all named after splits, with train among them."""
    tops = [relative.partition("/")[0].lower() if "/" in relative else "" for relative in relatives]
    sides = [SPLIT_WORDS.get(top, "") for top in tops]
    if "train" not in sides or "" in sides:
        return [""] * len(relatives), []
    return sides, [Choice("split", "from the folders", "the folders directly inside are named after splits")]
