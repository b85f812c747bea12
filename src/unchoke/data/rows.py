"""A table plus image folders to samples. In: a `DataSource` whose data is a table. Out: a `Scan`.

Rows and files are matched both ways. Rows that cannot be used are named in an error finding and left out, never repaired.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unchoke.core import listing
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.input_file import size_and_time
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, RemotePlace, cannot_list, locate
from unchoke.core.units import format_count
from unchoke.core.urls import is_url
from unchoke.data.columns import NO_HEADER, Columns, choose_columns, refuse_leaks, with_header
from unchoke.data.extra_inputs import read_inputs, settle_inputs
from unchoke.data.groups import (
    LikelyGroup,
    diagnose_ungrouped,
    find_likely_group,
    find_path_group,
    path_word,
    read_path_groups,
    suspicious_names,
)
from unchoke.data.image_files import (
    FileMatcher,
    FolderFiles,
    Matches,
    diagnose_names,
    diagnose_special,
    diagnose_unused,
    exclude_files,
    find_files,
    match_rows,
    plain,
    require_folders,
)
from unchoke.data.limits import refuse_box_columns
from unchoke.data.sample_set import (
    FIXED_COLUMNS,
    LIKELY_GROUP,
    SPLIT_WORDS,
    DataSource,
    Samples,
    Scan,
    TaskSpec,
    build_samples,
    input_column,
    is_reserved,
)
from unchoke.data.several_labels import MULTI_LABEL, task_of
from unchoke.data.table import (
    PICTURES,
    all_dropped,
    is_missing,
    name_rows,
    no_rows,
    read_labels,
    read_numbers,
    read_table,
    with_points,
)
from unchoke.data.value_findings import diagnose_labels

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class _Values:
    """What is learnt and what is given, per row: columns of labels or numbers, extra inputs, and which rows have them all."""

    task_kind: str
    columns: dict[str, Any]
    inputs: pd.DataFrame
    usable: npt.NDArray[np.bool_]
    findings: list[Finding] = field(default_factory=list)


def scan_table(source: DataSource, table: pd.DataFrame | None = None) -> Scan:
    """Every row that has a file and a value; `table` is what DATA holds where it was read before."""
    table = read_table(source.data, unpack_to=source.unpack_to) if table is None else table
    said = (
        [Choice("encoding", table.attrs["encoding"].partition(",")[0], table.attrs["encoding"])]
        if "encoding" in table.attrs
        else []
    )
    if PICTURES in table.attrs and not source.images:
        column, folder = table.attrs[PICTURES]
        source = replace(source, images=(folder,), path=source.path or (None if source.id else column))
        said.append(Choice("pictures", "in the table", f"those of the column {column!r} were unpacked to {folder}"))
    if not len(table):
        raise no_rows(source.data)
    require_folders(source.images)
    source, ungrouped = _settle_group(source, table)
    found = _find(source, table)
    exclusion = exclude_files(found.images, source.exclude)
    found = replace(found, images=exclusion.kept)
    matcher = FileMatcher(found.images)
    if source.label is None and not source.targets and source.long is None:
        refuse_box_columns(source.data.name, table.columns)
    table = with_header(table, matcher)
    if NO_HEADER in table.attrs:
        said.append(Choice("header", "none", f"the first row of {source.data.name} names a file, so it is no header"))
    table, columns, choices = choose_columns(table, source, matcher=matcher)
    table, found, dropped = _without_dropped(table, columns, source, found)
    matcher = FileMatcher(found.images) if dropped else matcher
    whole = table
    numbers = [*columns.targets, *source.inputs, *(columns.long or ())[1:]]
    if commas := [name for name in numbers if with_points(table[name]).ne(table[name].str.strip()).any()]:
        choices.append(Choice("decimal commas", list_some(commas), "each number has a comma where others have a point"))
    if columns.long is not None:
        keep = tuple(
            name for name in (columns.sample_id, source.group_column, source.split, source.fold_column) if name is not None
        )
        table, targets, findings = widen(table, columns, keep=keep, targets=source.targets, inputs=source.inputs)
        inputs = table[[input_column(name) for name in source.inputs]]
        values = _Values("regression", {name: table[name] for name in targets}, inputs, _complete(inputs), findings)
    else:
        values = _read_values(table, columns, source.inputs)
    excluded = FileMatcher(exclusion.excluded) if exclusion.excluded else None
    allowed = 0 if source.strict else source.failure_rate
    matches = match_rows(table, columns.key, matcher=matcher, excluded=excluded, failure_rate=allowed)
    _refuse_no_match(source, table, columns.key, matches)
    likely = _suspect(whole, table, source, columns)
    samples, findings = _assemble(table, source, columns, found, matches, values, likely)
    findings += diagnose_unused(found.images, matches, strict=source.strict) + _point_out(samples, likely)
    of_folders = diagnose_names(found, failure_rate=source.failure_rate) + diagnose_special(found.special)
    findings = exclusion.findings + of_folders + ungrouped + findings
    return Scan(samples, [*findings, *diagnose_labels(samples)], said + exclusion.choices + choices, dropped)


def _without_dropped(
    table: pd.DataFrame, columns: Columns, source: DataSource, found: FolderFiles
) -> tuple[pd.DataFrame, FolderFiles, dict[str, str]]:
    """The rows that nobody decided to leave out, the files that are not theirs alone, and the ids of the others."""
    if not source.dropped:
        return table, found, {}
    matches = match_rows(table, columns.key, matcher=FileMatcher(found.images))
    ids = _sample_ids(table, columns, found, matches)
    gone = np.array([name in source.dropped for name in ids], dtype=bool)
    if gone.all():
        raise all_dropped(source.data, len(ids), "row")
    used = {int(place) for place in matches.positions[~gone]}
    theirs = {int(place) for place in matches.positions[gone]} - used
    images = [entry for place, entry in enumerate(found.images) if place not in theirs]
    places = zip(ids, matches.positions.tolist(), gone, strict=True)
    dropped = {name: found.images[place].path if place >= 0 else "" for name, place, out in places if out}
    return table[~gone], replace(found, images=images), dropped


def _settle_group(source: DataSource, table: pd.DataFrame) -> tuple[DataSource, list[Finding]]:
    """The source without the group that a preset names, where the table has no such column; and a word of it."""
    if source.group is None or source.group in table.columns or not source.group_is_preset:
        return source, []
    name = source.group
    text = f"the preset keeps samples of one {name!r} together, and the table has no such column: they are divided without it"
    fix = "name the column that says which photos belong together with --group, or type --group none"
    without = replace(source, group=None, suspects=True)
    return without, [Finding("no-group-column", text, evidence={"column": name, "columns": list(table.columns)[:100]}, fix=fix)]


def _find(source: DataSource, table: pd.DataFrame) -> FolderFiles:
    """Files below the image folders; without any named, the table's own folder and those that its paths lead to."""
    roots = list(source.images) or _default_roots(source, table)
    found = find_files(roots)
    found.images.extend(_named_by_url(source, table, found.images))
    if not found.images:
        raise DataError(
            f"no images below {list_some([str(root) for root in roots or [source.data.parent]])}",
            code="no-images",
            why="the rows of a table are matched with image files, and there are none",
            try_="name the folder that holds them with --images, or the URL of each in the table",
        )
    return found


def _default_roots(source: DataSource, table: pd.DataFrame) -> list[DataPlace]:
    base = source.data.absolute().parent
    if isinstance(base, RemotePlace):
        return [] if cannot_list(base) else [base]
    return [base, *_outside_folders(base, source, table)]


def _named_by_url(source: DataSource, table: pd.DataFrame, listed: list[FileEntry]) -> list[FileEntry]:
    """The files that cells name by URL, as far as they are there and are not `listed` already."""
    columns = _url_columns(source, table, listed)
    known = {entry.path for entry in listed} if columns else set()
    places = [locate(cell) for name in columns for cell in table[name].drop_duplicates().str.strip() if is_url(cell)]
    local = [str(place) for place in places if isinstance(place, Path) and place.is_file()]
    remote = [str(place) for place in places if isinstance(place, RemotePlace)]
    there = [FileEntry(path, Path(path).name, *size_and_time(path)) for path in local if path not in known]
    return there + listing.look_up(url for url in remote if url not in known)


def _url_columns(source: DataSource, table: pd.DataFrame, listed: list[FileEntry]) -> list[str]:
    """The columns that name files by URL: the one that was said to, else those of URLs that end like pictures.

    Where another column names files that were found already, nobody on the network is asked: such URLs say where they came from.
    """
    if named := source.path or source.id:
        return [named] if named in table.columns else []
    columns = [str(name) for name in table.columns if _holds_picture_urls(table[name])]
    if columns and listed:
        matcher = FileMatcher(listed)
        others = [name for name in table.columns if name not in columns]
        return [] if any(matcher.share_found([str(cell) for cell in table[name].head(50)]) >= 0.5 for name in others) else columns
    return columns


def _holds_picture_urls(column: pd.Series[str]) -> bool:
    cells = [cell for cell in column.head(50).str.strip() if not is_missing(cell)]
    return bool(cells) and all(is_url(cell) and suffix_of(RemotePlace(cell).name) in IMAGE_SUFFIXES for cell in cells)


def _outside_folders(base: Path, source: DataSource, table: pd.DataFrame) -> list[Path]:
    """Folders beyond the table's own that its absolute and `../` paths name, if they exist."""
    names = [source.path] if source.path else list(table.columns)
    cells = (str(cell).strip() for name in names if name in table.columns for cell in table[name].drop_duplicates())
    folders = {os.path.dirname(cell) for cell in cells if cell.startswith("../") or os.path.isabs(cell)}  # noqa: PTH117, PTH120 (text)
    absolute = {Path(os.path.normpath(base / folder)) for folder in folders}
    return sorted(folder for folder in absolute if folder != base and base not in folder.parents and folder.is_dir())


def _read_values(table: pd.DataFrame, columns: Columns, input_names: tuple[str, ...]) -> _Values:
    inputs, faults = read_inputs(table, input_names, ids=table[columns.sample_id or columns.key])
    if columns.label is not None:
        labels, findings = read_labels(table, columns.label)
        usable = (labels != "").to_numpy(dtype=bool) & _complete(inputs)
        kind = MULTI_LABEL if columns.several else "classification"
        return _Values(kind, {"label": labels}, inputs, usable, findings + faults)
    numbers, findings = read_numbers(table, columns.targets)
    usable = _complete(numbers) & _complete(inputs)
    return _Values("regression", {name: numbers[name] for name in columns.targets}, inputs, usable, findings + faults)


def _complete(numbers: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows have a number in every column."""
    return numbers.notna().all(axis=1).to_numpy(dtype=bool)


def _refuse_no_match(source: DataSource, table: pd.DataFrame, key: str, matches: Matches) -> None:
    if matches.found.any() or matches.ambiguous.any():
        return
    folders = list_some([str(folder) for folder in source.images or (source.data.parent,)])
    examples = list_some([repr(str(cell)) for cell in table[key].iloc[:3]])
    raise DataError(
        f"not one row of {source.data.name} names a file below {folders}",
        code="no-row-matches",
        why=f"the column {key!r} holds {examples}; no image there has such a path, name or stem",
        try_="name the images' folder with --images, or the column that names the files with --path or --id",
    )


def _suspect(whole: pd.DataFrame, table: pd.DataFrame, source: DataSource, columns: Columns) -> LikelyGroup | None:
    """The column that looks like a group, for the rows of `table`, where nothing was said of groups; `whole` has all columns."""
    if source.group is not None or not source.suspects:
        return None
    used = {
        columns.key,
        columns.sample_id,
        columns.label,
        *columns.targets,
        *(columns.long or ()),
        source.split,
        source.fold_column,
    }
    names = [name for name in suspicious_names(whole.columns) if name not in used]
    labels = table[columns.label].tolist() if columns.label else [""] * len(table)  # a group is no other name for a number
    if names:
        rows = whole.drop_duplicates(columns.key).set_index(columns.key)[names].reindex(table[columns.key]).fillna("")
        if (likely := find_likely_group(rows, used=used, labels=labels)) is not None:
            return likely
    return find_path_group(table[columns.key].tolist(), labels)


def _point_out(samples: Samples, likely: LikelyGroup | None) -> list[Finding]:
    """What is said of a likely group, as far as the usable rows go."""
    if likely is None:
        return []
    frame = samples.frame
    given = "fold" if samples.fold_name else "split" if frame["split"].ne("").any() else None
    there = replace(likely, values=tuple(frame[LIKELY_GROUP]))
    return diagnose_ungrouped(there, None if given is None else frame[given].tolist())


def _assemble(
    table: pd.DataFrame,
    source: DataSource,
    columns: Columns,
    found: FolderFiles,
    matches: Matches,
    values: _Values,
    likely: LikelyGroup | None,
) -> tuple[Samples, list[Finding]]:
    """Put together what each usable row says; a duplicate id is an error, and its first row stays."""
    ids = _sample_ids(table, columns, found, matches)
    duplicates, repeated = _diagnose_duplicates(table, ids, values.columns.get("label"))
    splits, split_findings = _read_splits(table, source)
    keep = np.flatnonzero(matches.found & values.usable & ~repeated)
    if not len(keep):
        raise DataError(
            f"no row of {source.data.name} is usable",
            code="no-usable-row",
            why="; ".join(finding.message for finding in matches.findings + values.findings + duplicates)
            or "every row has a problem",
            try_=next((finding.fix for finding in values.findings), "mend the rows named above and run the same command again"),
        )
    task = _task(values, keep)
    samples = build_samples(
        task,
        [found.images[position] for position in matches.positions[keep]],
        sample_ids=[ids[row] for row in keep],
        values={name: column.iloc[keep].to_numpy() for name, column in values.columns.items()},
        inputs={name: values.inputs[input_column(name)].iloc[keep].to_numpy() for name in source.inputs},
        groups=_read_groups(table, source, [found.images[position].relative for position in matches.positions[keep]], keep),
        splits=None if splits is None else [splits[row] for row in keep],
        folds=_read_folds(table, source, keep),
        group_name=source.group or "",
        fold_name=source.fold_column or "",
        likely_groups=None if likely is None else [likely.values[row] for row in keep],
    )
    return samples, matches.findings + values.findings + duplicates + split_findings


def _task(values: _Values, keep: npt.NDArray[np.int64]) -> TaskSpec:
    if values.task_kind == "regression":
        return TaskSpec("regression", tuple(values.columns))
    return task_of(values.task_kind, values.columns["label"].iloc[keep])


def _sample_ids(table: pd.DataFrame, columns: Columns, found: FolderFiles, matches: Matches) -> list[str]:
    """The id column, or the key as the table spells it (forward slashes); for an absolute path, the path below its folder."""
    if columns.sample_id is not None:
        return [plain(str(cell).strip()) for cell in table[columns.sample_id]]
    ids = []
    for cell, position in zip(table[columns.key], matches.positions, strict=True):
        text = plain(str(cell).strip().replace("\\", "/")).removeprefix("./")
        outside = text.startswith(("/", "../")) or text[1:3] == ":/"
        ids.append(found.images[position].relative if outside and position >= 0 else text)
    return ids


def _diagnose_duplicates(
    table: pd.DataFrame, ids: list[str], labels: pd.Series[str] | None
) -> tuple[list[Finding], npt.NDArray[np.bool_]]:
    import pandas as pd

    series = pd.Series(ids, dtype="str")
    repeated = series.duplicated().to_numpy(dtype=bool)
    findings = []
    if repeated.any():
        names = sorted({ids[row] for row in np.flatnonzero(repeated)})
        text = f"{format_count(len(names), 'id')} in more than one row: {list_some([repr(name) for name in names])}"
        evidence = {"ids": names[:1000], "rows": name_rows(table, series.duplicated(keep=False).to_numpy(dtype=bool))[:1000]}
        fix = "keep one row per id, or name another column with --id"
        if labels is not None and (labels.groupby(ids).nunique() > 1).any():
            fix = f"--multi-label, where a photo has the labels of all its rows; else {fix}"
        findings.append(Finding("duplicate-ids", text, severity="error", evidence=evidence, fix=fix))
    return findings, repeated


def _read_splits(table: pd.DataFrame, source: DataSource) -> tuple[list[str] | None, list[Finding]]:
    """The split column in our words; an unknown word is wrong usage, an empty cell leaves the row to be assigned."""
    if source.split is None:
        return None, []
    words = table[source.split].str.strip().str.lower()
    unknown = sorted({str(word) for word in words} - set(SPLIT_WORDS) - {""})
    if unknown:
        raise UsageError(
            f"unknown split in the column {source.split!r}: {list_some([repr(word) for word in unknown])}",
            code="unknown-split",
            why=f"a split is one of {', '.join(SPLIT_WORDS)}, or empty",
            try_="replace those words in the table, or leave --split out to have the splits made",
        )
    return [SPLIT_WORDS.get(str(word), "") for word in words], []


def _read_groups(table: pd.DataFrame, source: DataSource, relatives: list[str], keep: npt.NDArray[np.int64]) -> list[str] | None:
    """What the group column says, or what the paths of the files tell."""
    if (word := path_word(source.group)) is not None:
        return read_path_groups(relatives, word)
    return None if source.group is None else table[source.group].iloc[keep].str.strip().tolist()


def _read_folds(table: pd.DataFrame, source: DataSource, keep: npt.NDArray[np.int64]) -> list[str] | None:
    """What the user's own fold column says; an empty cell leaves the row to be assigned."""
    if source.fold_column is None:
        return None
    cells = (str(cell).strip() for cell in table[source.fold_column].iloc[keep])
    return ["" if is_missing(cell) else cell for cell in cells]


# -- long tables: one row per image and target -----------------------------------------------------------------------------------


_PAIRS = ("image and target", "images and targets")


def widen(
    table: pd.DataFrame,
    columns: Columns,
    *,
    keep: tuple[str, ...] = (),
    targets: tuple[str, ...] = (),
    inputs: tuple[str, ...] = (),
) -> tuple[pd.DataFrame, tuple[str, ...], list[Finding]]:
    """One row per key with a column for each target, the columns `keep` beside them; the target names; the problems.

    Images that lack a value, or have two different ones, are named in the findings and left out. Extra `inputs` become float
    columns `input/NAME`, NaN where an image has none. The index keeps the number of each image's first row.
    """
    import pandas as pd

    assert columns.long is not None
    name_column, value_column = columns.long
    rows = table.assign(**{name_column: table[name_column].str.strip()})
    names = _choose_targets(rows, name_column, targets, reserved=(columns.key, *keep))
    refuse_leaks(inputs, learnt=names)
    rows = rows[rows[name_column].isin(names)]
    numbers, findings = read_numbers(rows, [value_column])
    rows = rows.assign(**{value_column: numbers[value_column]})
    bad_keys = set(rows.loc[numbers[value_column].isna(), columns.key])
    findings += _conflicts(rows, columns.key, name_column, value_column, bad_keys)
    wide = rows.drop_duplicates([columns.key, name_column]).pivot(index=columns.key, columns=name_column, values=value_column)
    wide = wide.reindex(columns=list(names))
    findings += _gaps(wide, columns.key, bad_keys)
    beside, clashes = _constant(rows, columns.key, [name for name in keep if name != columns.key])
    measured, faults = settle_inputs(rows, inputs, key=columns.key)
    wide = wide[~wide.index.isin(list(bad_keys))].join(beside).join(measured)
    if not len(wide):
        raise DataError(
            "no image has a value for every target",
            code="no-complete-targets",
            why="; ".join(finding.message for finding in findings),
            try_=f"--target {shlex.quote(names[0])}",
        )
    first_rows = pd.Series(rows.index, index=rows[columns.key])[lambda line: ~line.index.duplicated()]
    return wide.reset_index().set_index(first_rows[wide.index].to_numpy()), names, findings + clashes + faults


def _choose_targets(
    rows: pd.DataFrame, name_column: str, targets: tuple[str, ...], *, reserved: tuple[str, ...]
) -> tuple[str, ...]:
    there = sorted({str(name) for name in rows[name_column]})
    unknown = [name for name in targets if name not in there]
    if unknown:
        raise UsageError(
            f"no target called {list_some([repr(name) for name in unknown])} in the column {name_column!r}",
            code="no-such-target",
            why=f"its values are {list_some([repr(name) for name in there], limit=20)}",
            try_=f"--target {shlex.quote(there[0])}",
        )
    taken = [name for name in (targets or there) if name in reserved or is_reserved(name)]
    if taken:
        raise UsageError(
            f"a target cannot be called {taken[0]!r}",
            code="reserved-name",
            why=f"these names are used for other columns: {', '.join(dict.fromkeys((*FIXED_COLUMNS, *reserved)))}, and input/…",
            try_=f"rename it in the column {name_column!r}",
        )
    return targets or tuple(there)


def _conflicts(rows: pd.DataFrame, key: str, name: str, value: str, bad_keys: set[str]) -> list[Finding]:
    """Several rows for one image and target: harmless when they agree; images whose rows do not agree join `bad_keys`."""
    repeated = rows[rows.duplicated([key, name], keep=False)]
    if not len(repeated):
        return []
    distinct = repeated.groupby([key, name])[value].nunique().reset_index()
    clashing = distinct[distinct[value] > 1]
    bad_keys.update(clashing[key].tolist())
    findings = []
    if len(clashing):
        pairs = [f"{image} {target}" for image, target in zip(clashing[key], clashing[name], strict=True)]
        text = f"{format_count(len(pairs), *_PAIRS)} with several different values: {list_some(pairs)}"
        fix = "keep one row for each image and target"
        findings.append(Finding("conflicting-targets", text, severity="error", evidence={"pairs": pairs[:1000]}, fix=fix))
    if harmless := len(distinct) - len(clashing):
        text = f"{format_count(harmless, *_PAIRS)} given more than once, with the same value"
        findings.append(Finding("duplicate-rows", text, evidence={"pairs": harmless}, fix="remove the repeated rows"))
    return findings


def _gaps(wide: pd.DataFrame, key: str, bad_keys: set[str]) -> list[Finding]:
    """Images for which a target has no row at all; they join `bad_keys`."""
    lacking = wide[wide.isna().any(axis=1) & ~wide.index.isin(list(bad_keys))]
    if not len(lacking):
        return []
    pairs = [f"{image} {target}" for image, row in lacking.iterrows() for target in row.index[row.isna()]]
    bad_keys.update(str(image) for image in lacking.index)
    return [
        Finding(
            "missing-targets",
            f"{format_count(len(pairs), *_PAIRS)} without a row: {list_some(pairs)}",
            severity="error",
            evidence={"pairs": pairs[:1000], "images": len(lacking)},
            fix=f"add the rows, or name with --target only the targets that every {key!r} has",
        )
    ]


def _constant(rows: pd.DataFrame, key: str, keep: list[str]) -> tuple[pd.DataFrame, list[Finding]]:
    """The columns `keep` once per image; images for which they differ from row to row are an error."""
    per_image = rows.groupby(key)
    findings = []
    for column in keep:
        varying = [str(image) for image, count in per_image[column].nunique().items() if count > 1]
        if varying:
            text = f"{format_count(len(varying), 'image')} with several values of {column!r}: {list_some(varying)}"
            fix = "give every row of an image the same value"
            findings.append(Finding("group-conflict", text, severity="error", evidence={"images": varying[:1000]}, fix=fix))
    return per_image[keep].first(), findings
