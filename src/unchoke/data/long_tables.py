"""A long table (one row per image and target) to a wide one (one row per image). Pure: table to table and findings."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.data.columns import Columns, refuse_leaks
from unchoke.data.extra_inputs import settle_inputs
from unchoke.data.sample_set import FIXED_COLUMNS, is_reserved
from unchoke.data.table import read_numbers

if TYPE_CHECKING:
    import pandas as pd


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
        text = f"{_pairs(len(pairs))} with several different values: {list_some(pairs)}"
        fix = "keep one row for each image and target"
        findings.append(Finding("conflicting-targets", text, severity="error", evidence={"pairs": pairs[:1000]}, fix=fix))
    if harmless := len(distinct) - len(clashing):
        text = f"{_pairs(harmless)} given more than once, with the same value"
        findings.append(Finding("duplicate-rows", text, evidence={"pairs": harmless}, fix="remove the repeated rows"))
    return findings


def _pairs(count: int) -> str:
    return format_count(count, "image and target", "images and targets")


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
            f"{_pairs(len(pairs))} without a row: {list_some(pairs)}",
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
