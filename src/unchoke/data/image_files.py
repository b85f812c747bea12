"""Files of the data, which of them `--exclude` leaves out, and which a table's cell means.

One walk per folder, through `listing`; every later question is a dictionary look-up. A cell may be a relative or absolute
path, a bare name or an id without its extension, written with either slash, in any letter case and Unicode form. A pattern of
`--exclude` is compared with the path below DATA or the image folder; one without a slash also with each name on it, so that
`*_mask.png` leaves out files and `old` a folder. There letter case counts.
"""

from __future__ import annotations

import os
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unchoke.core import listing
from unchoke.core.choices import Choice
from unchoke.core.clock import during
from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, RemotePlace, refuse_unlisted
from unchoke.core.stores import explain_missing
from unchoke.core.units import format_count
from unchoke.data.table import name_rows

if TYPE_CHECKING:
    import pandas as pd

WORKSPACE_MARK = "unchoke.toml"
NO_FILE = -1
SEVERAL_FILES = -2
LEFT_OUT = -3


@dataclass(frozen=True)
class FolderFiles:
    """The files of one or several folders: images that can be used, everything else by name."""

    images: list[FileEntry]
    others: list[str]
    unnameable: list[str]
    special: dict[str, str] = field(default_factory=dict)
    """What is neither file nor folder, by its path below the folder: a link to nothing, a pipe."""


def find_files(roots: Iterable[DataPlace]) -> FolderFiles:
    """Everything below `roots`, each file once, leaving out workspaces of our own."""
    found = FolderFiles([], [], [])
    for root in outermost(roots):
        with during("list"):
            entries = list(_walk(root, found.special))
        marks = tuple(
            entry.relative[: -len(WORKSPACE_MARK)] for entry in entries if entry.relative.endswith("/" + WORKSPACE_MARK)
        )
        for entry in entries:
            if marks and entry.relative.startswith(marks):
                continue  # a workspace inside the data (a folder with our settings file) is not data
            if not _is_text(entry.path):
                found.unnameable.append(ascii(entry.relative))
            elif suffix_of(entry.relative) in IMAGE_SUFFIXES:
                found.images.append(entry)
            else:
                found.others.append(entry.relative)
    return found


def outermost(roots: Iterable[DataPlace]) -> list[DataPlace]:
    """`roots` as absolute places without repeats and without folders that lie inside another of them."""
    absolute = list(dict.fromkeys(root if isinstance(root, RemotePlace) else Path(os.path.abspath(root)) for root in roots))  # noqa: PTH100
    return [root for root in absolute if not any(other in root.parents for other in absolute)]


def _walk(root: DataPlace, special: dict[str, str]) -> Iterator[FileEntry]:
    def note(relative: str, what: str) -> None:
        special[relative if _is_text(relative) else ascii(relative)] = what

    try:
        yield from listing.walk(root, on_special=note)
    except PermissionError as error:
        raise UsageError(
            f"cannot list {error.filename!r}",
            code="cannot-list",
            why="this user may not read that folder",
            try_=f"chmod -R u+rX {shlex.quote(str(root))}",
        ) from error


def _is_text(name: str) -> bool:
    """Whether a name is valid Unicode; names in other encodings cannot be written to any table."""
    return not any("\ud800" <= char <= "\udfff" for char in name) if not name.isascii() else True


@dataclass(frozen=True)
class Exclusion:
    """Files that stay, files that are left out, and how many each pattern took; a file goes to the first that fits."""

    kept: list[FileEntry]
    excluded: list[FileEntry] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def choices(self) -> list[Choice]:
        """What was left out, for the record."""
        if not self.counts:
            return []
        total = format_count(len(self.kept) + len(self.excluded), "image")
        reason = f"{len(self.excluded):,} of {total} left out, as asked for"
        return [Choice("exclude", list(self.counts), reason, dict(self.counts))]

    @property
    def findings(self) -> list[Finding]:
        """Patterns that fit nothing: most likely mistyped."""
        idle = [pattern for pattern, count in self.counts.items() if not count]
        if not idle:
            return []
        text = f"--exclude {list_some([repr(pattern) for pattern in idle])} fits no image"
        fix = "compare it with the paths below DATA; * stands for any text, and letter case counts"
        return [Finding("exclude-unused", text, evidence={"patterns": idle}, fix=fix)]


def exclude_files(images: Sequence[FileEntry], patterns: Sequence[str]) -> Exclusion:
    """Divide files by whether a pattern fits them; refused when none is left. The word `none` is no pattern."""
    patterns = [pattern for pattern in patterns if pattern not in ("", "none")]
    if not patterns:
        return Exclusion(list(images))
    found = Exclusion([], [], dict.fromkeys(patterns, 0))
    for entry in images:
        pattern = next((one for one in patterns if fits(one, entry.relative)), None)
        if pattern is None:
            found.kept.append(entry)
        else:
            found.excluded.append(entry)
            found.counts[pattern] += 1
    if images and not found.kept:
        raise UsageError(
            f"--exclude leaves none of {format_count(len(images), 'image')}",
            code="everything-excluded",
            why=f"{', '.join(repr(pattern) for pattern in patterns)} fit every one, {images[0].relative!r} for instance",
            try_="a narrower pattern, '*_mask.png' for instance",
        )
    return found


def fits(pattern: str, relative: str) -> bool:
    """Whether a pattern means this file, by its path or, without a slash, by any name on it."""
    pattern = pattern.removeprefix("./")
    if fnmatchcase(relative, pattern):
        return True
    if pattern.endswith("/"):
        return fnmatchcase(relative, pattern + "*")
    return "/" not in pattern and any(fnmatchcase(name, pattern) for name in relative.split("/"))


def require_folders(folders: Sequence[DataPlace]) -> None:
    """Refuse folders that do not exist, all at once."""
    for folder in folders:
        refuse_unlisted(folder)
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        if isinstance(missing[0], RemotePlace) and not missing[0].exists():
            raise explain_missing(missing[0].url)
        raise UsageError(
            f"no such image folder: {list_some([str(folder) for folder in missing])}",
            code="no-such-folder",
            why="--images takes folders that exist",
            try_=f"ls {shlex.quote(str(missing[0].parent))}",
        )


def plain(text: str) -> str:
    """The composed Unicode form: "é" is one character whichever way it was typed."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def stem_of(name: str) -> str:
    """The name without its extension, if that is an image's."""
    return name[: -len(suffix)] if (suffix := suffix_of(name)) in IMAGE_SUFFIXES and len(suffix) < len(name) else name


def spellings(cell: str) -> Iterator[str]:
    """The cell as written, then without surrounding space, then with Windows' slashes turned."""
    yield from dict.fromkeys((cell, cell.strip(), cell.strip().replace("\\", "/")))


class _Positions:
    """Text to the positions that bear it; lean, because most texts occur once."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._first: dict[str, int] = {}
        self._more: dict[str, list[int]] = {}
        for position, text in enumerate(texts):
            if self._first.setdefault(text, position) != position:
                self._more.setdefault(text, []).append(position)

    def of(self, text: str) -> list[int]:
        first = self._first.get(text)
        return [] if first is None else [first, *self._more.get(text, ())]


class FileMatcher:
    """Answers which files a cell means: none, one, or several that are equally likely."""

    def __init__(self, entries: Sequence[FileEntry]) -> None:
        self.entries = entries
        self._tables: dict[tuple[Callable[[str], str], int], _Positions] = {}

    def find(self, cell: str) -> list[int]:
        """Positions of the files meant by `cell`; the letter case counts unless nothing is found that way."""
        for normal in (plain, _folded):
            for spelling in spellings(cell):
                parts = [normal(part) for part in spelling.split("/") if part not in ("", ".", "..")]
                kept = self._closest(parts, normal) if parts else []
                if kept:
                    return kept
        return []

    def share_found(self, cells: Sequence[str]) -> float:
        """The share of `cells` that means at least one file."""
        return sum(bool(self.find(cell)) for cell in cells) / max(len(cells), 1)

    def _closest(self, parts: list[str], normal: Callable[[str], str]) -> list[int]:
        """Of the files with that stem, those whose folders agree best with the cell's; a full name comes before a stem."""
        for depth in (1, 0) if len(parts) > 1 else (0,):
            hits = self._table(normal, depth).of(_tail(parts, depth))
            ranked = [(closeness, hit) for hit in hits if (closeness := _closeness(self.entries[hit], parts, normal)) is not None]
            if ranked:
                best = max(closeness for closeness, _ in ranked)
                return [hit for closeness, hit in ranked if closeness == best]
        return []

    def _table(self, normal: Callable[[str], str], depth: int) -> _Positions:
        """Files by stem, with the folder they lie in (`depth` 1) or without."""
        if (normal, depth) not in self._tables:
            paths = (normal(entry.path.replace(os.sep, "/")) for entry in self.entries)
            self._tables[normal, depth] = _Positions(_tail(path.rsplit("/", depth + 1), depth) for path in paths)
        return self._tables[normal, depth]


def _tail(parts: list[str], depth: int) -> str:
    """The stem, below as many folders as `depth` says."""
    return "/".join([*parts[-1 - depth : -1], stem_of(parts[-1])])


def _closeness(entry: FileEntry, parts: list[str], normal: Callable[[str], str]) -> tuple[bool, int, bool] | None:
    """Whether the name is the same, how many folders agree from the file upwards, whether the relative path is the same.

    None when the folders clash: either the cell's must end the file's path, or the file's relative path must end the cell.
    """
    own = [normal(part) for part in entry.path.replace(os.sep, "/").split("/")]
    depth, folders, shared = entry.relative.count("/"), len(parts) - 1, 0
    while shared < min(len(own) - 1, folders) and own[-2 - shared] == parts[-2 - shared]:
        shared += 1
    if shared < folders and shared < depth:
        return None
    return (own[-1] == parts[-1], shared, shared == depth == folders)


def _folded(text: str) -> str:
    return plain(text.casefold()) if not text.isascii() else text.lower()


@dataclass
class Matches:
    """For each row the position of its file, or `NO_FILE`, `SEVERAL_FILES` or `LEFT_OUT`; and the problems."""

    positions: npt.NDArray[np.int64]
    findings: list[Finding] = field(default_factory=list)

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        return self.positions >= 0

    @property
    def ambiguous(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.positions, SEVERAL_FILES)


def match_rows(
    table: pd.DataFrame, key: str, *, matcher: FileMatcher, excluded: FileMatcher | None = None, failure_rate: float = 0
) -> Matches:
    """Find the file of each row by the cell in column `key`; a row whose only files are `excluded` is left out with them.

    Up to the failure rate rows without a file are left out as well, and training goes on.
    """
    files = matcher.entries
    cells = [str(cell) for cell in table[key]]
    positions = np.empty(len(cells), dtype=np.int64)
    several: dict[str, list[int]] = {}
    for row, cell in enumerate(cells):
        hits = matcher.find(cell)
        positions[row] = hits[0] if len(hits) == 1 else SEVERAL_FILES if hits else NO_FILE
        if len(hits) > 1:
            several[cell] = hits
        elif not hits and excluded is not None and excluded.find(cell):
            positions[row] = LEFT_OUT
    matches = Matches(positions)
    matches.findings += _diagnose_matches(table, cells, matches, files, several, key, failure_rate)
    return matches


def _diagnose_matches(
    table: pd.DataFrame,
    cells: list[str],
    matches: Matches,
    files: Sequence[FileEntry],
    several: dict[str, list[int]],
    key: str,
    failure_rate: float,
) -> Iterator[Finding]:
    """Rows without a file, cells that could mean several, and different cells that lead to one file.

    Equal cells are reported as duplicate ids instead.
    """
    positions = matches.positions
    missing = positions == NO_FILE
    if missing.any():
        names = [cells[row] for row in np.flatnonzero(missing)]
        yield Finding(
            "rows-without-file",
            f"{format_count(len(names), 'row')} of {len(cells):,} without an image file: {list_some(list(map(repr, names)))}",
            severity="error",
            evidence={
                "count": len(names),
                "column": key,
                "cells": names[:1000],
                "rows": name_rows(table, missing)[:1000],
                "failed_share": round(len(names) / len(cells), 5),
                "limit_share": failure_rate,
            },
            fix="add the files, add their folder with --images, or remove the rows",
        )
    if several:
        meant = {cell: [files[hit] for hit in hits] for cell, hits in several.items()}
        shown = [f"{cell!r} → {list_some(_told_apart(found), limit=3)}" for cell, found in list(meant.items())[:3]]
        paths = tuple(one.path for found in meant.values() for one in found)
        named = {cell: [one.path for one in found] for cell, found in list(meant.items())[:100]}
        yield Finding(
            "ambiguous-file",
            f"{format_count(len(several), 'cell')} of {key!r} could mean several files: {'; '.join(shown)}",
            severity="error",
            path=paths[0],
            paths=paths,
            evidence={"count": len(several), "cells": named},
            fix="write the path below the image folder in the table, or name fewer folders with --images",
        )
    counts = np.bincount(positions[positions >= 0], minlength=len(files))
    claims: dict[int, set[str]] = {int(position): set() for position in np.flatnonzero(counts > 1)}
    for row in np.flatnonzero(np.isin(positions, list(claims))) if claims else ():
        claims[int(positions[row])].add(cells[row])
    shared = {files[position]: sorted(claim) for position, claim in claims.items() if len(claim) > 1}
    if shared:
        paths = tuple(one.path for one in shared)
        shown = [f"{one.relative!r} ← {list_some(list(map(repr, claim)), limit=3)}" for one, claim in list(shared.items())[:3]]
        yield Finding(
            "rows-share-file",
            f"{format_count(len(shared), 'file')} claimed by several rows: {'; '.join(shown)}",
            severity="error",
            path=paths[0],
            paths=paths,
            evidence={"count": len(shared)},
            fix="give each image one row, or write the path so that it leads to one file",
        )


def _told_apart(files: Sequence[FileEntry]) -> list[str]:
    """Files with as many of their folders as it takes to tell them apart, whichever image folder they are in."""
    common = os.path.commonpath([os.path.dirname(entry.path) for entry in files])  # noqa: PTH120 (text)
    return [repr(os.path.relpath(entry.path, common).replace(os.sep, "/")) for entry in files]


def diagnose_unused(files: Sequence[FileEntry], matches: Matches, *, strict: bool = False) -> list[Finding]:
    """Files that no row names: `strict` makes that an error."""
    used = np.zeros(len(files), dtype=bool)
    used[matches.positions[matches.found]] = True
    for finding in matches.findings:
        if finding.code == "ambiguous-file":
            named = set(finding.paths)
            used |= np.fromiter((entry.path in named for entry in files), dtype=bool, count=len(files))
    if used.all():
        return []
    unused = [files[int(position)] for position in np.flatnonzero(~used)]
    shown = list_some([repr(entry.relative) for entry in unused])
    return [
        Finding(
            "files-without-row",
            f"{format_count(len(unused), 'image')} of {len(files):,} that no row names: {shown}",
            severity="error" if strict else "warning",
            path=unused[0].path,
            paths=tuple(entry.path for entry in unused),
            evidence={"count": len(unused), "files": len(files)},
            fix="they are not used: add rows for them, or name only the folders that belong to the table with --images",
        )
    ]


def diagnose_special(special: dict[str, str]) -> list[Finding]:
    """Entries that are neither files nor folders: a link to a picture that was moved, a pipe named like one."""
    if not special:
        return []
    shown = list_some([f"{name!r} ({what})" for name, what in special.items()])
    return [
        Finding(
            "not-a-file",
            f"{format_count(len(special), 'entry', 'entries')} that cannot be read as a file: {shown}",
            evidence={"count": len(special), "entries": dict(list(special.items())[:1000])},
            fix="they are not used: mend the links (ls -l shows where they lead), or remove them",
        )
    ]


def diagnose_names(found: FolderFiles, *, failure_rate: float) -> list[Finding]:
    """Files whose names are not Unicode: they cannot be written to a manifest, so they cannot be used; few of them only warn."""
    unnameable = found.unnameable
    if not unnameable:
        return []
    share = len(unnameable) / (len(found.images) + len(unnameable))
    return [
        Finding(
            "undecodable-name",
            f"{format_count(len(unnameable), 'file')} whose name is not valid Unicode: {list_some(unnameable)}",
            severity="error" if share > failure_rate else "warning",
            evidence={"files": len(unnameable), "failed_share": round(share, 5), "limit_share": failure_rate},
            fix="they are not used: rename them (convmv does so for a whole tree), such a name cannot be written to the manifest",
        )
    ]
