"""Which column of a table means what: chosen by the user, or guessed with a reason.

In: a table of text and the user's options. Out: a `Columns` and the choices made. A name the table lacks, and a question with
no clear answer, become a `UsageError` that lists the columns there are. Cells are not judged here.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.image_names import PICTURE_SUFFIXES, suffix_of
from unchoke.core.input_file import parse_json
from unchoke.data.image_files import FileMatcher
from unchoke.data.limits import refuse_texts
from unchoke.data.sample_set import FIXED_COLUMNS, SPLIT_WORDS, DataSource, is_reserved
from unchoke.data.several_labels import NO_LABEL, join_labels, label_cells
from unchoke.data.table import is_missing, is_number

if TYPE_CHECKING:
    import pandas as pd

_MOST_FOLDS = 30
"""Values beyond which a column is not proposed for folds."""
PATH_NAMES = ("path", "image_path", "img_path", "file_path", "filepath", "relative_path", "file", "file_name", "filename",
              "image_file", "image_filename", "image_name", "img_name", "image", "img", "photo", "picture")  # fmt: skip
ID_NAMES = ("image_id", "img_id", "imageid", "sample_id", "photo_id", "id", "uid", "uuid", "name", "key")
LABEL_NAMES = ("label", "labels", "class", "class_name", "classname", "category", "dx", "diagnosis", "target", "y")
LONG_NAMES = (("target_name", "target"), ("target_name", "value"), ("target", "value"), ("variable", "value"), ("name", "value"))
GROUP_NAMES = ("lesion_id", "patient_id", "patient", "subject_id", "subject", "person_id", "case_id", "group", "group_id",
               "site_id", "plant_id", "animal_id", "individual_id", "scene_id", "video_id")  # fmt: skip
_USUAL_NAMES = {"--path": PATH_NAMES, "--id": ID_NAMES, "--label": LABEL_NAMES, "--group": GROUP_NAMES}
NO_HEADER = "no header"
"""The attribute of a table whose first row was no header."""
_PROBES = 200
_MOST_CLASS_NUMBERS = 20
"""Whole numbers beyond so many may as well be a quantity."""


@dataclass(frozen=True)
class Columns:
    """The columns that count. `key` finds the file; `sample_id` names the sample (the key when None)."""

    key: str
    sample_id: str | None = None
    label: str | None = None
    targets: tuple[str, ...] = ()
    long: tuple[str, str] | None = None
    several: bool = False
    """Whether a cell of `label` names several labels, joined by `|`."""


def choose_columns(
    table: pd.DataFrame, source: DataSource, *, matcher: FileMatcher
) -> tuple[pd.DataFrame, Columns, list[Choice]]:
    """Every column's meaning, with the reasons for what the user left open; and the table, with one column of labels."""
    _refuse_contradictions(source)
    long = source.long if source.label is None else None
    require_columns(table, _named(source, long=long))
    choices: list[Choice] = []
    key = source.path or source.id or _choose_key(table, matcher, choices)
    sample_id = source.id if source.id is not None and source.id != key else None
    if long is None and source.label is None:
        long = _choose_long(table, key, choices)
    if long is not None:
        columns = Columns(key, sample_id, long=long)
    elif source.targets:
        require_columns(table, {"--target": list(source.targets)})
        if source.multi_label:
            table, columns = _join_marks(table, list(source.targets), key, sample_id, source, choices)
        else:
            columns = Columns(key, sample_id, targets=source.targets)
    elif source.label is not None:
        columns = Columns(key, sample_id, label=source.label)
    else:
        table, columns = _choose_value(table, key, sample_id, source, choices)
    if columns.label and source.multi_label and _is_mark(table[columns.label]) and not table[key].duplicated().any():
        table, columns = _join_marks(table, [columns.label], key, sample_id, source, choices)
    if columns.label is not None and not columns.several:
        table = _settle_several(table, columns, source, choices)
        columns = replace(columns, several=bool(source.multi_label))
    if source.multi_label and not columns.several:
        raise UsageError(
            "--multi-label was given, and what is learnt are numbers",
            code="multi-label-without-labels",
            why=f"of the columns {describe_columns(table)} none holds labels, and no two hold 0 and 1",
            try_="--label COLUMN for cells such as a|b, or leave --multi-label out",
        )
    learnt = (columns.label, *columns.targets, *(columns.long or ()))
    refuse_leaks(source.inputs, learnt=learnt, taken=(columns.key, columns.sample_id, source.split, source.fold_column))
    return table, columns, choices


def _refuse_contradictions(source: DataSource) -> None:
    if source.label is not None and source.targets:
        raise UsageError(
            f"both --label {source.label} and --target {source.targets[0]} were given",
            code="label-and-target",
            why="a label makes it classification, a target regression",
            try_="leave one of the two out",
        )
    taken = [name for name in source.targets if is_reserved(name)]
    if taken:
        raise UsageError(
            f"a target cannot be called {taken[0]!r}",
            code="reserved-name",
            why=f"the manifest uses these names itself: {', '.join(FIXED_COLUMNS)}, and input/…",
            try_="rename that column in the table's header",
        )


def refuse_leaks(inputs: Sequence[str], *, learnt: Sequence[str | None], taken: Sequence[str | None] = ()) -> None:
    """Refuse an input that is given twice, that is what shall be learnt, or that only says which image and split a row is."""
    for name in inputs:
        if name in learnt:
            raise UsageError(
                f"{name!r} is both what shall be learnt and an input",
                code="input-is-target",
                why="a network that is shown the answer learns nothing else, and its figures mean nothing",
                try_=f"leave out --input {shlex.quote(name)}",
            )
        if name in taken or inputs.count(name) > 1:
            why = "the column says which image a row is about, or which split it is in" if name in taken else "it was given twice"
            raise UsageError(
                f"{name!r} cannot be an input",
                code="bad-input-column",
                why=why,
                try_=f"leave out one --input {shlex.quote(name)}",
            )


def _named(source: DataSource, *, long: tuple[str, str] | None) -> dict[str, list[str]]:
    group = source.group_column
    given = {"--id": source.id, "--path": source.path, "--label": source.label, "--group": group, "--split": source.split,
             "--fold-column": source.fold_column}  # fmt: skip
    named = {option: [name] for option, name in given.items() if name is not None}
    if source.inputs:
        named["--input"] = list(source.inputs)
    return {**named, "--long": list(long)} if long else named


def require_columns(table: pd.DataFrame, named: dict[str, list[str]]) -> None:
    """Refuse names the table lacks, all of them in one error, with the nearest name there is."""
    there = [str(name) for name in table.columns]
    missing = [(option, name) for option, names in named.items() for name in names if name not in there]
    if not missing:
        return
    option, name = missing[0]
    likely = [column for column in there if option != "--fold-column" or _names_folds(table[column])]
    close = difflib.get_close_matches(name.lower(), [column.lower() for column in likely], n=1, cutoff=0.5)
    suggestion = next((column for column in likely if close and column.lower() == close[0]), None) or _usual(table, option)
    raise UsageError(
        f"the table has no column {' nor '.join(f'{name!r} ({option})' for option, name in missing)}",
        code="no-such-column",
        why=f"its columns are {describe_columns(table)}",
        try_=f"{option} {shlex.quote(suggestion)}" if suggestion else f"name one of them, or leave {option} out",
    )


def _usual(table: pd.DataFrame, option: str) -> str | None:
    """A column that may well be meant by an option, by its name or by its cells; None where nothing speaks for one."""
    named = known_columns(table, _USUAL_NAMES.get(option, ()))
    if named or option not in ("--label", "--split", "--target", "--input"):
        return named[0] if named else None
    taken = known_columns(table, PATH_NAMES + ID_NAMES + GROUP_NAMES)
    return next((str(name) for name in table.columns if name not in taken and _speaks_for(table[name], option)), None)


def _names_folds(column: pd.Series[str]) -> bool:
    """Whether there are as few values as there are folds."""
    return 2 <= column.nunique() <= min(_MOST_FOLDS, len(column) // 2)


def _speaks_for(column: pd.Series[str], option: str) -> bool:
    """Whether the cells are what the option is about: words of splits, numbers, or classes, which come several times."""
    distinct = [str(cell).strip() for cell in column.drop_duplicates() if not is_missing(str(cell))]
    splits = bool(distinct) and all(cell.lower() in SPLIT_WORDS for cell in distinct)
    if option == "--split":
        return splits
    if option == "--label":
        return not splits and 1 < len(distinct) <= len(column) / 2
    return bool(distinct) and all(is_number(cell) for cell in distinct)


def describe_columns(table: pd.DataFrame) -> str:
    """Each column with its number of distinct values."""
    return ", ".join(f"{name!r} ({table[name].nunique():,} distinct)" for name in table.columns)


def _simple(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def known_columns(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The table's columns that bear one of `names`, in the order of `names`."""
    by_name = {_simple(str(column)): str(column) for column in reversed(list(table.columns))}
    return [by_name[name] for name in names if name in by_name]


def _choose_key(table: pd.DataFrame, matcher: FileMatcher, choices: list[Choice]) -> str:
    """The column whose cells name files: a usual name first, then any column that does."""
    known = known_columns(table, PATH_NAMES + ID_NAMES)
    shares = {name: matcher.share_found(_probe(table[name])) for name in known}
    if not any(shares.values()):
        others = [str(name) for name in table.columns if name not in known]
        rest = {name: share for name in others if (share := matcher.share_found(_probe(table[name]))) >= 0.5}
        if len(rest) > 1:
            raise _unclear("several columns could name the images", table, option="--path", example=next(iter(rest)))
        shares = rest or shares
    if not shares:
        raise _unclear("no column names the images", table, option="--path", example=str(table.columns[0]))
    best = max(shares, key=lambda name: shares[name])
    reason = (
        f"{shares[best]:.0%} of its cells name an image file"
        if shares[best]
        else "its name says so, though none of its cells names a file"
    )
    choices.append(Choice("path column", best, reason, {name: round(share, 3) for name, share in shares.items()}))
    return best


def _probe(column: pd.Series[str]) -> list[str]:
    """Some distinct cells, evenly spread."""
    distinct = column.drop_duplicates()
    return [str(cell) for cell in distinct.iloc[:: max(1, len(distinct) // _PROBES)]]


def _choose_long(table: pd.DataFrame, key: str, choices: list[Choice]) -> tuple[str, str] | None:
    """Name and value columns of a table with one row per image and target, if this is one."""
    distinct = table[key].nunique()
    if distinct == len(table):
        return None
    for name, value in LONG_NAMES:
        pair = known_columns(table, (name, value))
        if len(pair) == 2 and key not in pair:
            reason = f"{key!r} repeats ({len(table):,} rows, {distinct:,} distinct), once for each {pair[0]!r}"
            choices.append(Choice("long table", f"{pair[0]} → {pair[1]}", reason))
            return (pair[0], pair[1])
    return None


def _choose_value(
    table: pd.DataFrame, key: str, sample_id: str | None, source: DataSource, choices: list[Choice]
) -> tuple[pd.DataFrame, Columns]:
    """What to learn when neither --label nor --target says: a column called like a label, or columns of 0 and 1."""
    taken = {key, sample_id, source.group, source.split, source.fold_column, *source.inputs}
    candidates = [name for name in known_columns(table, LABEL_NAMES) if name not in taken]
    marked = [str(name) for name in table.columns if name not in taken and _is_mark(table[name])]
    if len(marked) > 1 and set(candidates) <= set(marked):
        return _join_marks(table, marked, key, sample_id, source, choices)
    others = [str(name) for name in table.columns if name not in taken]
    if (asked := [name for name in source.asked if name in others]) or (not candidates and len(others) == 1):
        why = "the sample of what is to be handed in asks for it" if asked else "the only other column"
        if (columns := _choose_asked(table, Columns(key, sample_id), asked or others, why, choices)) is not None:
            return table, columns
    if not candidates:
        refuse_texts(key, others, table)
        likely = (*asked, _usual(table, "--label") or "COLUMN")[0]
        raise _unclear("no column is plainly the label", table, option="--label", example=likely)
    name = candidates[0]
    if _has_fractions(table[name]):
        choices.append(
            Choice("target", name, "it holds numbers with fractions, so this is regression; --label would make them classes")
        )
        return table, Columns(key, sample_id, targets=(name,))
    choices.append(Choice("label column", name, f"its name says so; {table[name].nunique():,} distinct values"))
    return table, Columns(key, sample_id, label=name)


def _choose_asked(table: pd.DataFrame, columns: Columns, asked: Sequence[str], why: str, choices: list[Choice]) -> Columns | None:
    """Columns that must be what is learnt: numbers with fractions, or one column of classes; None for anything else."""
    if all(_has_fractions(table[name]) for name in asked):
        choices.append(Choice("target", ", ".join(asked), f"{why}, and it holds numbers with fractions: regression"))
        return replace(columns, targets=tuple(asked))
    if len(asked) > 1:
        return None
    name, distinct = asked[0], int(table[asked[0]].nunique())
    if distinct > _MOST_CLASS_NUMBERS and all(map(is_number, table[name])):
        raise UsageError(
            f"{name!r} holds {distinct:,} whole numbers: classes, or a number to predict?",
            code="several-readings",
            why=why,
            try_=f"--target {shlex.quote(name)} for the number; --label {shlex.quote(name)} for {distinct:,} classes",
        )
    if not _speaks_for(table[name], "--label"):
        return None
    choices.append(Choice("label column", name, f"{why}; {distinct:,} distinct values"))
    return replace(columns, label=name)


def with_header(table: pd.DataFrame, matcher: FileMatcher) -> pd.DataFrame:
    """The table; where its header names a file it is a row, and columns are called `path` and, if there is one, `label`."""
    import pandas as pd

    names = [str(name) for name in table.columns]
    paths = [place for place, name in enumerate(names) if suffix_of(name) in PICTURE_SUFFIXES and matcher.find(name)]
    if len(paths) != 1:
        return table
    others = ["label"] if len(names) == 2 else [f"column {number}" for number in range(1, len(names))]
    called = [*others[: paths[0]], "path", *others[paths[0] :]]
    first = pd.DataFrame([names], columns=called, dtype="str")
    whole = pd.concat([first, table.set_axis(called, axis=1)], ignore_index=True)
    whole.attrs = {**table.attrs, NO_HEADER: True}
    return whole


def _is_mark(column: pd.Series[str]) -> bool:
    """Whether a column holds 0 and 1, or -1 and 1, and both of them."""
    return {cell.strip().removesuffix(".0") for cell in column.drop_duplicates()} - {""} in ({"0", "1"}, {"-1", "1"})


def _join_marks(
    table: pd.DataFrame, marked: list[str], key: str, sample_id: str | None, source: DataSource, choices: list[Choice]
) -> tuple[pd.DataFrame, Columns]:
    """Columns of 0 and 1 as one: classes where each row has a single 1, else several labels."""
    if odd := [name for name in marked if not _is_mark(table[name])]:
        raise UsageError(
            f"{odd[0]!r} is no column of 0 and 1",
            code="not-a-mark",
            why="with --multi-label each column says by 0 (or -1) and 1 whether a photo has this label; both have to occur",
            try_="leave it out, or leave --multi-label out to predict numbers",
        )
    ones = table[marked].apply(lambda column: column.str.strip().str.removesuffix(".0") == "1").to_numpy(dtype=bool)
    shown = list_some(marked, limit=4)
    labels = label_cells(ones, marked)
    name = "label" if "label" not in table.columns else "label of 0/1 columns"
    columns, table = Columns(key, sample_id, label=name), table.assign(**{name: labels})
    if (ones.sum(axis=1) == 1).all() and not source.multi_label:
        choices.append(Choice("label column", f"{len(marked)} columns", f"each row has a single 1 among {shown}"))
        return table, columns
    if source.multi_label is None:
        raise _several_labels(f"each of {len(marked)} columns says 0 or 1 ({shown})", marked, labels)
    choices.append(Choice("label column", f"{len(marked)} columns", f"the names of those that hold a 1: {shown}"))
    return table, replace(columns, several=bool(source.multi_label))


_SEPARATORS = {"|": 1.0, ";": 1.0, ",": 2.0, " ": 4.0}
"""What may stand between several labels, and how many times fewer labels than combinations there must be for it."""


def _settle_several(table: pd.DataFrame, columns: Columns, source: DataSource, choices: list[Choice]) -> pd.DataFrame:
    """Cells with several labels, or several rows with one each: sorted and joined by `|`, taken as they are, or refused until
    somebody says which.
    """
    name = str(columns.label)
    if source.multi_label is False:
        return table
    lists = {cell: _read_list(cell, name) for cell in table[name].drop_duplicates() if cell.lstrip().startswith(("[", "{"))}
    if lists and source.multi_label is None:
        named = sorted({label for labels in lists.values() for label in labels})
        raise _several_labels(f"cells of {name!r} hold lists of labels, such as {next(iter(lists))!r}", named, list(table[name]))
    if lists:
        choices.append(Choice("lists", name, f"a list such as {next(iter(lists))} names the labels of a photo"))
        table = table.assign(**{name: [join_labels(lists[cell]) if cell in lists else cell for cell in table[name]]})
    if source.multi_label and columns.sample_id is None and table[columns.key].duplicated().any():
        joined = table.groupby(columns.key, sort=False)[name].agg("|".join)
        once = table.drop_duplicates(columns.key)
        choices.append(
            Choice("rows", f"{len(table):,} for {len(once):,} photos", "the labels of the rows of one photo are joined")
        )
        table = once.assign(**{name: joined[once[columns.key]].to_numpy()})
    cells = [str(cell) for cell in table[name].drop_duplicates() if not is_missing(str(cell))]
    for mark, least in ({"|": 1.0} if lists else _SEPARATORS).items():
        parts = {part.strip() for cell in cells for part in cell.split(mark)} - {"", NO_LABEL}
        certain = source.multi_label and mark != " "
        if any(mark in cell for cell in cells) and (certain or len(parts) * least < len(cells)):
            several = [cell for cell in cells if mark in cell]
            if source.multi_label is None:
                raise _several_labels(f"cells of {name!r} hold several labels, such as {several[0]!r}", sorted(parts), cells)
            choices.append(Choice("labels", f"{len(parts)} in {name!r}", f"{mark!r} stands between them in {several[0]!r}"))
            return table.assign(**{name: ["" if is_missing(cell) else join_labels(cell.split(mark)) for cell in table[name]]})
    return table


def _read_list(cell: str, column: str) -> list[str]:
    """The labels in a cell such as `["a", "b"]`, `['a', 'b']` or `{"choices": ["a", "b"]}`."""
    found: Any = None
    for read in (parse_json, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            found = read(cell.strip())
            break
    found = found.get("choices") if isinstance(found, dict) else found
    if isinstance(found, list) and not any(isinstance(one, list | dict) for one in found):
        return [str(one) for one in found]
    raise DataError(
        f"a cell of {column!r} holds no labels, but {cell[:80]!r}",
        code="not-labels",
        why='a cell names a label, or several: a|b, ["a", "b"] or {"choices": ["a", "b"]}',
        try_="write the labels into a column of their own, or --no-multi-label to take each cell as it is for a class",
    )


def _several_labels(what: str, labels: Sequence[str], combinations: Sequence[str]) -> UsageError:
    num = len(set(combinations))
    return UsageError(
        what,
        code="several-labels",
        why=f"taken as they are, each of {num:,} combinations of {len(labels):,} labels ({list_some(list(labels), limit=4)}) "
        "would be a class of its own",
        try_="--multi-label learns each label by itself; --no-multi-label takes each combination for a class",
    )


def _has_fractions(column: pd.Series[str]) -> bool:
    """Whether every present cell is a number and at least one is not whole."""
    try:
        numbers = [float(cell) for cell in column.drop_duplicates() if not is_missing(str(cell))]
    except ValueError:
        return False
    return any(not number.is_integer() for number in numbers)


def _unclear(what: str, table: pd.DataFrame, *, option: str, example: str) -> UsageError:
    more = ", or --target COLUMN for a number" if option == "--label" else ", or --id COLUMN"
    return UsageError(
        what,
        code="unclear-columns",
        why=f"the columns are {describe_columns(table)}",
        try_=f"{option} {shlex.quote(example)}{more}",
    )
