"""Which samples exist: DATA in, a `Scan` out.

DATA is a class-folder tree or a table with image folders. Every problem of the data is a finding in the result; only what
leaves nothing to go on with (no such file or column, no rows, no image) is raised. Reads names, sizes and times, never pixels.
"""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from unchoke.core import listing
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.image_names import FOREIGN_IMAGE_SUFFIXES, IMAGE_SUFFIXES, suffix_of
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, RemotePlace, cannot_list, refuse_unlisted
from unchoke.core.stores import explain_missing
from unchoke.core.units import format_count
from unchoke.core.urls import url_behind
from unchoke.core.workspace import Workspace
from unchoke.data.groups import diagnose_ungrouped, find_path_group, path_word, read_path_groups
from unchoke.data.image_files import WORKSPACE_MARK, FolderFiles, diagnose_names, diagnose_special, exclude_files, find_files
from unchoke.data.rows import scan_table
from unchoke.data.sample_set import SPLIT_WORDS, DataSource, Scan, TaskSpec, build_samples
from unchoke.data.table import TABLE_SUFFIXES, all_dropped
from unchoke.data.value_findings import diagnose_labels


def scan_samples(source: DataSource) -> Scan:
    """Find the samples that `source` describes, with every problem on the way."""
    import pyarrow as pa

    refuse_missing(source.data)
    scan = scan_folders(source) if source.data.is_dir() else scan_table(source)
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


def scan_folders(source: DataSource) -> Scan:
    """Every image below a class folder; the class is the folder's name, the id the path below DATA."""
    root = source.data
    _refuse_columns(source)
    found = find_files([root])
    if not found.images:
        raise _no_images(root, found)
    exclusion = exclude_files(found.images, source.exclude)
    dropped = {entry.relative: entry.path for entry in exclusion.kept if entry.relative in source.dropped}
    found = replace(found, images=[entry for entry in exclusion.kept if entry.relative not in source.dropped])
    by_split = _has_split_folders(found.images)
    depth = 1 if by_split else 0
    placed = [entry for entry in found.images if entry.relative.count("/") > depth]
    if not placed:
        raise all_dropped(root, len(dropped), "photo") if dropped and not found.images else _no_classes(root, found)
    labels = [entry.relative.split("/")[depth] for entry in placed]
    splits = [SPLIT_WORDS[entry.relative.partition("/")[0].lower()] for entry in placed] if by_split else None
    inside = [entry.relative.split("/", depth + 1)[-1] for entry in placed]
    word = path_word(source.group)
    likely = find_path_group(inside, labels) if source.group is None and source.suspects else None
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
    choices = [
        *exclusion.choices,
        Choice("labels", "folder names", f"{root.name} holds {format_count(len(set(labels)), 'class folder')}"),
    ]
    if by_split:
        choices.append(Choice("split", "from the folders", "the folders directly inside are named after splits"))
    unplaced = [entry for entry in found.images if entry.relative.count("/") <= depth]
    findings = [
        *exclusion.findings,
        *diagnose_names(found, failure_rate=source.failure_rate),
        *diagnose_special(found.special),
        *_diagnose_others(found.others, unplaced, strict=source.strict),
        *([] if by_split else _diagnose_root(root, found, set(labels), dropped)),
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


def _has_split_folders(images: Sequence[FileEntry]) -> bool:
    """Whether the folders directly inside are all named after splits, with train among them and classes below it."""
    tops = {entry.relative.partition("/")[0] for entry in images if "/" in entry.relative}
    words = {SPLIT_WORDS.get(top.lower()) for top in tops}
    if None in words or "train" not in words:
        return False
    return any(
        entry.relative.count("/") >= 2 and SPLIT_WORDS[entry.relative.partition("/")[0].lower()] == "train"
        for entry in images
        if "/" in entry.relative
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
    foreign = sum(suffix_of(name) in FOREIGN_IMAGE_SUFFIXES for name in found.others)
    seen = f"{format_count(len(found.others) + len(found.unnameable), 'other file')} lie there"
    return DataError(
        f"no images below {root}",
        code="no-images",
        why=f"{seen}, {foreign:,} of them in picture formats that cannot be decoded here" if foreign else seen,
        try_="give the folder that holds one sub-folder of JPEG, PNG, TIFF or WebP files per class",
    )


def _no_classes(root: DataPlace, found: FolderFiles) -> UsageError:
    tables = [name for name in found.others if suffix_of(name) in TABLE_SUFFIXES]
    command = f"unchoke check {shlex.quote(str(root / tables[0]) if tables else 'labels.csv')} --images {shlex.quote(str(root))}"
    return UsageError(
        f"{root} holds {format_count(len(found.images), 'image')} but no class folders",
        code="no-class-folders",
        why="without sub-folders named after classes, a table must say what each image is",
        try_=command if tables else f"write a labels.csv with the columns path and label, then {command}",
    )


def _diagnose_others(others: list[str], unplaced: list[FileEntry], *, strict: bool) -> Iterator[Finding]:
    """Files that are not used: pictures in foreign formats, no pictures at all, pictures outside every class folder."""
    counts = sorted(Counter(suffix_of(name) or "no extension" for name in others).items())
    foreign = {suffix: count for suffix, count in counts if suffix in FOREIGN_IMAGE_SUFFIXES}
    rest = {suffix: count for suffix, count in counts if suffix not in FOREIGN_IMAGE_SUFFIXES}
    if foreign:
        text = f"{format_count(sum(foreign.values()), 'picture')} in formats that cannot be decoded here: {', '.join(foreign)}"
        yield Finding("unsupported-files", text, evidence=foreign, fix="convert them to JPEG or PNG")
    if rest:
        text = f"{format_count(sum(rest.values()), 'file')} that are no images: {', '.join(rest)}"
        yield Finding("other-files", text, severity="info", evidence=rest)
    if unplaced:
        paths = tuple(entry.path for entry in unplaced)
        names = list_some([repr(entry.relative) for entry in unplaced])
        yield Finding(
            "files-without-class",
            f"{format_count(len(paths), 'image')} outside every class folder: {names}",
            severity="error" if strict else "warning",
            path=paths[0],
            paths=paths,
            evidence={"files": len(paths)},
            fix="they are not used: move them into the folder of their class, or leave them out with --exclude",
        )


def _diagnose_root(root: DataPlace, found: FolderFiles, labels: set[str], dropped: Iterable[str]) -> Iterator[Finding]:
    """Folders directly in DATA that become no class, and a table that lies beside the folders."""
    files = {name for name in found.others if "/" not in name} | {e.relative for e in found.images if "/" not in e.relative}
    names = [name for name in listing.names(root) if not name.startswith(".") and name not in files and name not in labels]
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
    tables = [name for name in found.others if "/" not in name and suffix_of(name) in TABLE_SUFFIXES[:2] + TABLE_SUFFIXES[3:]]
    if tables:
        yield Finding(
            "table-beside-folders",
            f"{tables[0]!r} lies beside the folders, but the folder names are used as classes",
            path=str(root / tables[0]),
            evidence={"tables": tables},
            fix="if the table holds the labels, give it instead of the folder",
            command=f"unchoke check {shlex.quote(str(root / tables[0]))} --images {shlex.quote(str(root))}",
        )
