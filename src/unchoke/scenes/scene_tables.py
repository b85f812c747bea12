"""A table of scenes: CSV, TSV or Parquet in, scenes out.

A row is a scene, with a column per band or one path (a file that holds all bands, or a folder of band files); or a row is a
band, with columns for the scene, the band and the path. Paths count from the table's folder, then from the image folders. A row
whose file is missing is named and left out. The table is the only file that is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.remote import DataPlace, join, locate
from unchoke.core.urls import is_url
from unchoke.data.columns import ID_NAMES, PATH_NAMES, describe_columns, require_columns
from unchoke.data.image_files import FileMatcher, find_files, require_folders, spellings, stem_of
from unchoke.data.sample_set import SPLIT_WORDS
from unchoke.data.table import is_missing, no_rows, read_table
from unchoke.scenes.scene_files import (
    BandFile,
    ScannedScenes,
    Scene,
    canonical,
    find_band,
    give_labels,
    missing_band,
    missing_labels,
    one_file_per_band,
    settle_bands,
    split_stem,
    unique_ids,
)

if TYPE_CHECKING:
    import pandas as pd

_SCENE_NAMES = ("scene_id", "scene", "scene_name", "product", "product_id", "granule", *ID_NAMES)
_BAND_NAMES = ("band", "band_name", "bands", "band_id")
_PATHS = (*PATH_NAMES, "scene_path", "folder", "raster", "tif", "href")


@dataclass(frozen=True)
class _Columns:
    """Which column means what; `bands` holds (band name, column) pairs, `band` is the column of a table with a row per band."""

    scene: str | None
    path: str | None = None
    band: str | None = None
    bands: tuple[tuple[str, str], ...] = ()


def scan_scene_table(
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
    """The scenes of a table; see `scan_scenes` for the options."""
    require_folders(images)
    table = read_table(data)
    if table.empty:
        raise no_rows(data)
    given = {"--path": path, "--id": id, "--group": group, "--split": split}
    require_columns(table, {option: [name] for option, name in given.items() if name is not None})
    columns, choices = _choose_columns(table, bands=bands, path=path, id=id, used=(label, group, split))
    _require_split_words(table, split)
    finder = _PathFinder(data.absolute().parent, images)
    in_column = label if label is not None and label in table.columns else None
    reader = _SceneRows(table, columns, finder, label=in_column, group=group, split=split)
    scanned = reader.read_bands(bands) if columns.band else reader.read_rows(bands)
    if label is None or in_column is not None:
        return ScannedScenes(scanned.scenes, scanned.findings, choices + scanned.choices)
    scenes, findings, more = give_labels(scanned.scenes, label, data=data)
    return ScannedScenes(scenes, scanned.findings + findings, choices + scanned.choices + more)


def _choose_columns(
    table: pd.DataFrame, *, bands: Sequence[str], path: str | None, id: str | None, used: Sequence[str | None]
) -> tuple[_Columns, list[Choice]]:
    names = [str(name) for name in table.columns if name not in used]
    scene = id or _known(names, _SCENE_NAMES)
    band = _known(names, _BAND_NAMES)
    place = path or _path_column(table, [name for name in names if name not in (scene, band)])
    if band is not None and scene is not None and place is not None:
        return _Columns(scene, place, band), [Choice("table", "a row per band", f"its columns {scene!r}, {band!r} and {place!r}")]
    by_band = _band_columns(table, names, bands) if path is None else ()
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


def _known(names: Sequence[str], usual: Sequence[str]) -> str | None:
    by_name = {_simple(name): name for name in reversed(names)}
    return next((by_name[name] for name in usual if name in by_name), None)


def _path_column(table: pd.DataFrame, names: Sequence[str]) -> str | None:
    """A column of a usual name, those with raster files first; else the only one whose cells end like rasters."""
    usual = [name for name in names if _known([name], _PATHS)]
    usual.sort(key=lambda name: (not _holds_rasters(table, name), _PATHS.index(_simple(name))))
    if usual:
        return usual[0]
    rasters = [name for name in names if _holds_rasters(table, name)]
    return rasters[0] if len(rasters) == 1 else None


def _simple(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _holds_rasters(table: pd.DataFrame, name: str) -> bool:
    cells = [str(cell).strip() for cell in table[name].head(50) if not is_missing(str(cell))]
    return bool(cells) and all(suffix_of(cell) in IMAGE_SUFFIXES for cell in cells)


def _band_columns(table: pd.DataFrame, names: Sequence[str], wanted: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(band, column) for the wanted bands that are columns, or for every column that is named after a band."""
    rasters = [name for name in names if _holds_rasters(table, name)]
    if wanted:
        found = [find_band(name, rasters) for name in wanted]
        if any(position is not None for position in found):
            require_columns(table, {"--bands": [name for name, at in zip(wanted, found, strict=True) if at is None]})
        return tuple((rasters[at], rasters[at]) for at in found if at is not None)
    return tuple((name, name) for name in rasters if (split := split_stem(name)) is not None and not split.scene)


def _require_split_words(table: pd.DataFrame, split: str | None) -> None:
    if split is None:
        return
    unknown = sorted({str(cell).strip().lower() for cell in table[split]} - set(SPLIT_WORDS) - {""})
    if unknown:
        raise UsageError(
            f"unknown split in the column {split!r}: {list_some([repr(word) for word in unknown])}",
            code="unknown-split",
            why=f"a split is one of {', '.join(SPLIT_WORDS)}, or empty",
            try_="replace those words in the table, or leave --split out to have the splits made",
        )


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
        return self._by_name(cell) if self._images else None

    def _by_name(self, cell: str) -> str | None:
        if self._matcher is None:
            self._matcher = FileMatcher(find_files(self._images).images)
        hits = self._matcher.find(cell)
        return self._matcher.entries[hits[0]].path if len(hits) == 1 else None


class _SceneRows:
    """Rows to scenes, problems collected on the way."""

    def __init__(
        self,
        table: pd.DataFrame,
        columns: _Columns,
        finder: _PathFinder,
        *,
        label: str | None,
        group: str | None,
        split: str | None,
    ) -> None:
        self._rows: list[dict[str, str]] = [
            {str(key): str(cell) for key, cell in row.items()} for row in table.to_dict("records")
        ]
        self._columns = columns
        self._finder = finder
        self._label, self._group, self._split = label, group, split
        self._findings: list[Finding] = []
        self._unlabelled: list[str] = []

    def read_rows(self, wanted: Sequence[str]) -> ScannedScenes:
        """A row per scene."""
        ids = self._row_ids()
        scenes = [scene for id_, row in zip(ids, self._rows, strict=True) if (scene := self._read_row(id_, row)) is not None]
        return self._settle(scenes, wanted)

    def read_bands(self, wanted: Sequence[str]) -> ScannedScenes:
        """A row per band: the rows of one scene are gathered, its label, group and split taken from the first that has one."""
        scene_column, band_column, path_column = self._columns.scene, self._columns.band, self._columns.path
        assert scene_column is not None and band_column is not None and path_column is not None
        by_scene: dict[str, list[dict[str, str]]] = {}
        for row in self._rows:
            by_scene.setdefault(row[scene_column].strip(), []).append(row)
        ids = unique_ids([(name, name) for name in by_scene])
        scenes = []
        for id_, rows in zip(ids, by_scene.values(), strict=True):
            found = [(row[band_column].strip(), self._finder.find(row[path_column])) for row in rows]
            gone = [name for name, place in found if place is None and (not wanted or find_band(name, wanted) is not None)]
            bands = self._first_of_each(id_, [BandFile(name, place) for name, place in found if place is not None])
            scene = self._finish(Scene(id_, bands), _first_cells(rows))
            if gone:
                cells = [row[path_column] for row, (_, place) in zip(rows, found, strict=True) if place is None]
                self._findings.append(missing_band(Scene(id_, bands), gone, because=f": no such file as {list_some(cells)}"))
            elif scene is not None:
                scenes.append(scene)
        return self._settle(scenes, wanted)

    def _first_of_each(self, id_: str, bands: Sequence[BandFile]) -> tuple[BandFile, ...]:
        """Each band once; a further row of the same band is named and not used."""
        kept: dict[str, BandFile] = {}
        for band in bands:
            first = kept.setdefault(canonical(band.name), band)
            if first is not band:
                message = f"the scene {id_} has several rows for the band {band.name}; {first.path} is used, not {band.path}"
                self._findings.append(Finding("repeated-band", message, path=band.path, fix="keep one row for each band"))
        return tuple(kept.values())

    def _row_ids(self) -> list[str]:
        named = []
        for number, row in enumerate(self._rows, start=1):
            cell = row[self._columns.scene].strip() if self._columns.scene is not None else ""
            by_path = stem_of(row[self._columns.path].strip().replace("\\", "/").rstrip("/")) if self._columns.path else ""
            name = cell or by_path or self._name_by_bands(row) or f"row{number}"
            named.append((name.rpartition("/")[2], f"{name}/{number}" if not by_path else name))
        return unique_ids(named)

    def _name_by_bands(self, row: dict[str, str]) -> str:
        """The name before the band in the first band's file."""
        band, column = self._columns.bands[0]
        stem = stem_of(row[column].strip().replace("\\", "/"))
        named = split_stem(stem.rpartition("/")[2], wanted=[band])
        return (named.scene if named is not None else "") or stem.rpartition("/")[0]

    def _read_row(self, id_: str, row: dict[str, str]) -> Scene | None:
        if self._columns.path is None:
            return self._read_band_cells(id_, row)
        cell = row[self._columns.path]
        place = self._finder.find(cell) if not is_missing(cell) else None
        if place is None:
            self._findings.append(_missing_file(id_, cell, column=self._columns.path))
            return None
        if (is_url(place) and suffix_of(place) in IMAGE_SUFFIXES) or not locate(place).is_dir():
            return self._finish(Scene(id_, file=place), row)
        bands = self._bands_in(id_, locate(place))
        return self._finish(Scene(id_, bands), row) if bands else None

    def _read_band_cells(self, id_: str, row: dict[str, str]) -> Scene | None:
        found = [(band, row[column], self._finder.find(row[column])) for band, column in self._columns.bands]
        gone = [(band, cell) for band, cell, place in found if place is None]
        bands = tuple(BandFile(band, place) for band, _, place in found if place is not None)
        if gone:
            because = f": no such file as {list_some([repr(cell) for _, cell in gone])}"
            self._findings.append(missing_band(Scene(id_, bands), [band for band, _ in gone], because=because))
            return None
        return self._finish(Scene(id_, bands), row)

    def _bands_in(self, id_: str, folder: DataPlace) -> tuple[BandFile, ...]:
        """The band files of a scene's folder."""
        named = [(entry, split_stem(stem_of(Path(entry.relative).name))) for entry in find_files([folder]).images]
        bands, _ = one_file_per_band((entry, name) for entry, name in named if name is not None and not name.quality)
        if not bands:
            self._findings.append(_missing_file(id_, str(folder), column=self._columns.path or "", what="no band files in"))
        return bands

    def _finish(self, scene: Scene, row: dict[str, str]) -> Scene | None:
        """Label, group and split of a scene; a label that is named but missing leaves the scene out."""
        group = row[self._group].strip() if self._group is not None else ""
        split = SPLIT_WORDS.get(row[self._split].strip().lower(), "") if self._split is not None else ""
        scene = replace(scene, group=group, split=split)
        if self._label is None:
            return scene
        cell = row[self._label]
        if is_missing(cell):
            self._unlabelled.append(scene.scene_id)
            return scene
        place = self._finder.find(cell)
        if place is None:
            self._findings.append(_missing_file(scene.scene_id, cell, column=self._label, what="no such label as"))
            return None
        return replace(scene, label=place)

    def _settle(self, scenes: list[Scene], wanted: Sequence[str]) -> ScannedScenes:
        """The same bands for all scenes made of band files; files that hold all bands are settled when they are opened."""
        findings = self._findings + missing_labels(self._unlabelled, place=f"the column {self._label!r}")
        by_file = [scene for scene in scenes if scene.file is not None]
        by_band = [scene for scene in scenes if scene.file is None]
        if not by_band:
            return ScannedScenes(by_file, findings, [])
        quality = [
            canonical(name) for scene in by_band for name in scene.band_names if (named := split_stem(name)) and named.quality
        ]
        settled = settle_bands(by_band, wanted, quality=quality)
        order = {scene.scene_id: position for position, scene in enumerate(scenes)}
        both = sorted([*by_file, *settled.scenes], key=lambda scene: order[scene.scene_id])
        return ScannedScenes(both, findings + settled.findings, settled.choices)


def _first_cells(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """One row out of several: of each column the first cell that says something."""
    return {name: next((row[name] for row in rows if not is_missing(row[name])), "") for name in rows[0]}


def _missing_file(scene_id: str, cell: str, *, column: str, what: str = "no such file as") -> Finding:
    return Finding(
        "missing-file",
        f"the scene {scene_id}: {what} {cell!r} (column {column!r})",
        severity="error",
        path=cell,
        evidence={"scene": scene_id, "column": column},
        fix="correct the path, which counts from the table's folder, or name the folder with --images",
    )
