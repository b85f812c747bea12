"""Which samples exist: DATA in, a `Scan` out.

DATA is a class-folder tree or a table with image folders. Every problem of the data is a finding in the result; only what
leaves nothing to go on with (no such file or column, no rows, no image) is raised. Reads names, sizes and times, never pixels.
"""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unchoke.core import listing
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.image_names import FOREIGN_IMAGE_SUFFIXES, HEIC_SUFFIXES, IMAGE_SUFFIXES, suffix_of
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, RemotePlace, cannot_list, refuse_unlisted
from unchoke.core.stores import explain_missing
from unchoke.core.units import format_count
from unchoke.core.urls import url_behind
from unchoke.core.workspace import Workspace
from unchoke.data.groups import diagnose_ungrouped, find_folder_group, find_path_group, path_word, read_path_groups
from unchoke.data.image_files import (
    WORKSPACE_MARK,
    Exclusion,
    FolderFiles,
    diagnose_names,
    diagnose_special,
    exclude_files,
    find_files,
)
from unchoke.data.limits import refuse_file, refuse_foreign
from unchoke.data.rows import scan_table
from unchoke.data.sample_set import DataSource, Scan, TaskSpec, build_samples
from unchoke.data.table import TABLE_SUFFIXES, all_dropped
from unchoke.data.understand import Reading, is_text_table, labels_by_name, says_level, understand
from unchoke.data.value_findings import diagnose_labels

_HEIC_FIX = "pip install 'unchoke[heic]' reads HEIC; or convert them to JPEG"


def scan_samples(source: DataSource) -> Scan:
    """Find the samples that `source` describes, with every problem on the way."""
    import pyarrow as pa

    refuse_missing(source.data)
    if source.data.is_dir():
        scan = _scan_folder(source)
    else:
        refuse_file(source.data)
        scan = scan_table(source)
    pa.default_memory_pool().release_unused()  # what reading and sorting needed: several times the size of the result
    return scan


def refuse_missing(place: DataPlace) -> None:
    """DATA that is not there is an error that says what is."""
    if cannot_list(place) and suffix_of(place.name) not in TABLE_SUFFIXES:
        refuse_unlisted(place)
    if not place.exists():
        raise _no_such_remote(place) if isinstance(place, RemotePlace) else _no_such(place)


def _no_such_remote(place: RemotePlace) -> UsageError:
    error = explain_missing(place.url)
    if place.parent == place or cannot_list(place) or not place.parent.is_dir():
        return error
    close = difflib.get_close_matches(place.name, listing.names(place.parent), n=1)
    return explain_missing(place.url, close[0]) if close else error


def _no_such(path: Path) -> UsageError:
    if url := url_behind(path):
        return UsageError(
            f"no such file or folder: {path}",
            code="no-such-file",
            why="a URL in a pathlib.Path loses one of its slashes",
            try_=f"give it as text: {url!r}",
        )
    parent = path.absolute().parent
    names = listing.names(parent) if parent.is_dir() else []
    others = [name for name in names if not Workspace(parent / name).lock_file.exists()]  # a workspace is no data
    close = difflib.get_close_matches(path.name, others, n=1)
    why = f"{parent} holds nothing of that name" if parent.is_dir() else f"{parent} does not exist either"
    return UsageError(
        f"no such file or folder: {path}",
        code="no-such-file",
        why=why,
        try_=f"unchoke check {shlex.quote(str(parent / close[0]))}" if close else f"ls {shlex.quote(str(parent))}",
    )


def _scan_folder(source: DataSource) -> Scan:
    """A folder as `understand` reads it: its class folders, or the table in it."""
    found = find_files([source.data])
    exclusion = exclude_files(found.images, source.exclude)
    reading = understand(source, replace(found, images=exclusion.kept))
    if reading.table is None:
        return _scan_class_folders(source, replace(found, images=exclusion.kept), reading, exclusion)
    assert reading.table_file is not None, "a table has a file"
    split = source.split or (None if source.fold_column else reading.split)
    path = source.path or (None if source.id else reading.key)
    images = source.images or reading.images
    source_of_table = replace(source, data=reading.table_file, images=images, path=path, split=split, asked=reading.asked)
    scan = scan_table(source_of_table, reading.table)
    choices = [Choice("data", reading.value, reading.reason, {"to_predict": reading.to_predict}), *scan.choices]
    return replace(scan, choices=choices, findings=[*scan.findings, *_point_to_unlabelled(source.data, reading.to_predict)])


def _point_to_unlabelled(root: DataPlace, to_predict: Mapping[str, int]) -> Iterator[Finding]:
    if to_predict:
        folders = ", ".join(f"{folder} ({format_count(count, 'image')})" for folder, count in to_predict.items())
        places = " ".join(shlex.quote(str(root / folder)) for folder in to_predict)
        text = f"without labels, to be predicted: {folders}"
        fix = f"after training: unchoke predict best {places}"
        yield Finding("to-predict", text, severity="info", evidence=dict(to_predict), fix=fix)


def _scan_class_folders(source: DataSource, found: FolderFiles, reading: Reading, exclusion: Exclusion) -> Scan:
    """Every image that has a class; the id is the path below DATA."""
    root = source.data
    if not found.images and not exclusion.excluded:
        raise _no_images(root, found)
    if not says_level(source.label):
        _refuse_columns(source)
    if source.multi_label:
        raise UsageError(
            "--multi-label was given, and folders say one class of each photo",
            code="multi-label-without-labels",
            why="a photo lies in one folder",
            try_="leave it out, or write a table: path,label with cells such as a|b",
        )
    rows = [row for row, entry in enumerate(found.images) if entry.relative not in source.dropped]
    dropped = {entry.relative: entry.path for entry in found.images if entry.relative in source.dropped}
    kept = [row for row in rows if reading.labels[row]]
    if not kept:
        everything = dropped and not rows
        raise all_dropped(root, len(dropped), "photo") if everything else _no_classes(root, found)
    placed, labels = [found.images[row] for row in kept], [reading.labels[row] for row in kept]
    splits = None if reading.splits is None else [reading.splits[row] for row in kept]
    inside = [reading.inside[row] for row in kept]
    word = path_word(source.group)
    likely = None
    if source.group is None and source.suspects:
        likely = find_path_group(inside, labels) or find_folder_group(inside, labels)
    samples = build_samples(
        TaskSpec("classification", tuple(sorted(set(labels)))),
        placed,
        sample_ids=[entry.relative for entry in placed],
        values={"label": labels},
        groups=None if word is None else read_path_groups(inside, word),
        splits=splits,
        group_name=source.group or "",
        likely_groups=None if likely is None else likely.values,
    )
    choices = [*exclusion.choices, Choice("labels", reading.value, reading.reason)]
    if splits is not None:
        choices.append(Choice("split", "from the folders", "folders are named after splits"))
    unplaced = [found.images[row] for row in rows if not reading.labels[row]]
    to_predict: Counter[str] = Counter()
    if reading.splits is not None:
        to_predict.update(
            found.images[row].relative.rpartition("/")[0]
            for row in rows
            if not reading.labels[row] and reading.splits[row] == "test"
        )
    findings = [
        *exclusion.findings,
        *diagnose_names(found, failure_rate=source.failure_rate),
        *diagnose_special(found.special),
        *_diagnose_others(found, unplaced, strict=source.strict),
        *_point_to_unlabelled(root, {folder: count for folder, count in to_predict.items() if folder}),
        *(_diagnose_root(root, found, set(labels), dropped) if reading.at_root else []),
        *([] if likely is None else diagnose_ungrouped(likely, splits)),
        *diagnose_labels(samples),
    ]
    return Scan(samples, findings, choices, dropped)


def _refuse_columns(source: DataSource) -> None:
    group = None if path_word(source.group) else source.group
    named = {"--id": source.id, "--path": source.path, "--label": source.label, "--group": group, "--split": source.split,
             "--fold-column": source.fold_column, "--target": source.targets or None, "--images": source.images or None,
             "--long": source.long, "--input": source.inputs or None}  # fmt: skip
    given = [option for option, value in named.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} given, but {source.data} is a folder",
            code="columns-without-table",
            why="those options name columns of a table, and the folders that go with it",
            try_="give the table itself as DATA, or leave the options out to use folder names as classes"
            + ("; --group path:WORD takes groups from names like WORD12" if group is not None else ""),
        )


def _no_images(root: DataPlace, found: FolderFiles) -> DataError:
    if unnamed := sum(suffix_of(name.rstrip("'\"")) in IMAGE_SUFFIXES for name in found.unnameable):
        return DataError(
            f"no image below {root} has a name that can be used",
            code="name-not-utf8",
            why=f"{format_count(unnamed, 'image')} with names that are not UTF-8, which cannot be written to a manifest: "
            f"{list_some(found.unnameable, limit=3)}",
            try_=f"convmv -f latin1 -t utf-8 -r --notest {shlex.quote(str(root))}, or rename them in another way",
        )
    refuse_foreign(root, found)
    foreign = sum(suffix_of(name) in FOREIGN_IMAGE_SUFFIXES for name in found.others)
    seen = f"{format_count(len(found.others) + len(found.unnameable), 'other file')} lie there"
    return DataError(
        f"no images below {root}",
        code="no-images",
        why=f"{seen}, {foreign:,} of them in picture formats that cannot be decoded here" if foreign else seen,
        try_=_HEIC_FIX
        if any(suffix_of(name) in HEIC_SUFFIXES for name in found.others)
        else "give the folder that holds one sub-folder of JPEG, PNG, TIFF or WebP files per class",
    )


def _no_classes(root: DataPlace, found: FolderFiles) -> UsageError:
    tables = [name for name in found.others if is_text_table(name)]
    command = f"unchoke check {shlex.quote(str(root / tables[0]) if tables else 'labels.csv')} --images {shlex.quote(str(root))}"
    named = labels_by_name(found.images)
    by_name = f"unchoke fit {shlex.quote(str(root))} --label name, where file names say the class ({named})" if named else ""
    return UsageError(
        f"{root} holds {format_count(len(found.images), 'image')} but no class folders",
        code="no-class-folders",
        why="without sub-folders named after classes, a table must say what each image is",
        try_=command if tables else by_name or f"write a labels.csv with the columns path and label, then {command}",
    )


def _diagnose_others(found: FolderFiles, unplaced: list[FileEntry], *, strict: bool) -> Iterator[Finding]:
    """Files that are not used: pictures in foreign formats, no pictures at all, pictures outside every class folder."""
    counts = sorted(Counter(suffix_of(name) or "no extension" for name in found.others).items())
    foreign = {suffix: count for suffix, count in counts if suffix in FOREIGN_IMAGE_SUFFIXES}
    rest = {suffix: count for suffix, count in counts if suffix not in FOREIGN_IMAGE_SUFFIXES}
    if foreign:
        text = f"{format_count(sum(foreign.values()), 'picture')} in formats that cannot be decoded here: {', '.join(foreign)}"
        most = sum(foreign.values()) > len(found.images)  # of what was meant to be learnt
        fix = _HEIC_FIX if set(foreign) & HEIC_SUFFIXES else "convert them to JPEG or PNG"
        yield Finding("unsupported-files", text, severity="error" if most else "warning", evidence=foreign, fix=fix)
    if rest:
        text = f"{format_count(sum(rest.values()), 'file')} that are no images: {', '.join(rest)}"
        yield Finding("other-files", text, severity="info", evidence=rest)
    if unplaced:
        paths = tuple(entry.path for entry in unplaced)
        names = list_some([repr(entry.relative) for entry in unplaced])
        most = len(paths) > len(found.images) / 2
        yield Finding(
            "files-without-class",
            f"{format_count(len(paths), 'image')} outside every class folder: {names}",
            severity="error" if strict or most else "warning",
            path=paths[0],
            paths=paths,
            evidence={"files": len(paths)},
            fix="they are not used: move them into the folder of their class, or leave them out with --exclude",
        )


def _diagnose_root(root: DataPlace, found: FolderFiles, labels: set[str], dropped: Iterable[str]) -> Iterator[Finding]:
    """Folders directly in DATA that become no class, and a table that lies beside the folders."""
    files = {name for name in found.others if "/" not in name} | {e.relative for e in found.images if "/" not in e.relative}
    names = [name for name in listing.names(root) if not name.startswith((".", "__")) and name not in files | labels]
    empty = [name for name in names if (root / name).is_dir() and not (root / name / WORKSPACE_MARK).exists()]
    if empty:
        emptied = {name.partition("/")[0] for name in dropped} & set(empty)
        shown = [f"{name!r} (corrections drop all of its images)" if name in emptied else repr(name) for name in empty]
        fix = "add images to it or remove it"
        if emptied:
            fix = "take some of its images back by lines with an empty value, if that was not meant"
        yield Finding(
            "empty-class",
            f"{format_count(len(empty), 'folder')} without a usable image: {list_some(shown)}",
            path=str(root / empty[0]),
            evidence={"folders": empty},
            fix=f"it becomes no class: {fix}",
        )
    tables = [name for name in found.others if "/" not in name and is_text_table(name)]
    if tables:
        yield Finding(
            "table-beside-folders",
            f"{tables[0]!r} lies beside the folders, but the folder names are used as classes",
            path=str(root / tables[0]),
            evidence={"tables": tables},
            fix="if the table holds the labels, give it instead of the folder",
            command=f"unchoke check {shlex.quote(str(root / tables[0]))} --images {shlex.quote(str(root))}",
        )
