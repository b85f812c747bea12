"""What the labels, targets and splits of the samples say against one another. Pure: samples and settings in, findings out.

Counts of classes, labels that only spelling tells apart, targets that never change or contradict what was declared of them
(`--positive`, `--sum`), and splits and folds that leave nothing to judge by. Files are the business of `file_findings.py`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.data.sample_set import Samples
from unchoke.data.several_labels import MULTI_LABEL, NO_LABEL
from unchoke.data.table import NUMBER, SEVERAL, is_number

if TYPE_CHECKING:
    import pandas as pd

_IMBALANCE_RATIO = 10
_FEW_SAMPLES = 50
_FEWEST_TO_DOUBT = 8
_ROUNDING = 0.01
"""How far a sum may be off, as a share of what is usual for it: tables are rounded."""
_SOME = 0.05
"""Up to this share of the rows a contradiction is a slip, beyond it the declaration is wrong."""


def diagnose_labels(samples: Samples) -> Iterator[Finding]:
    """Findings about counts: too few samples, classes too small, classes of very different sizes."""
    if len(samples) < _FEW_SAMPLES:
        yield Finding(
            "few-samples",
            f"there are only {format_count(len(samples), 'sample')}: the test figures will be rough",
            evidence={"samples": len(samples), "advised": _FEW_SAMPLES},
            fix="read the intervals, not the figures; or give --folds 5 --fold all, so that every sample is tested once",
        )
    if samples.task.kind == "regression":
        return
    several = samples.task.kind == MULTI_LABEL
    cells = samples.frame["label"]
    counts = _counts(cells.str.split(SEVERAL).explode().loc[lambda one: one != NO_LABEL] if several else cells)
    if several and (always := [name for name, count in counts.items() if count == len(samples)]):
        yield Finding(
            "constant-label",
            f"{format_count(len(always), 'label')} on every photo: {list_some([repr(name) for name in always])}",
            severity="error" if len(always) == len(counts) else "warning",
            evidence={"labels": always},
            fix="there is nothing to learn about it: add photos without it, or leave it out",
        )
    if len(counts) < 2 and not several:
        yield Finding(
            "one-class",
            f"every sample has the class {next(iter(counts), '')!r}: there is nothing to tell apart",
            severity="error",
            evidence={"classes": counts},
            fix="give the folder that holds one sub-folder per class, or another --label column",
        )
    single = sorted(name for name, count in counts.items() if count == 1)
    if len(single) > len(counts) / 2 and len(counts) >= _FEWEST_TO_DOUBT:  # names or numbers, not classes
        numeric = all(is_number(name) for name in counts)
        yield Finding(
            "not-classes",
            f"{len(single)} of {format_count(len(counts), 'class', 'classes')} have a single image: these are hardly classes",
            severity="error",
            evidence={"classes": len(counts), "with_one_image": len(single)},
            fix="predict the number with --target instead of --label" if numeric else "name the class column with --label",
        )
    if single:
        with_one = cells.map(lambda cell: not {cell, *cell.split(SEVERAL)}.isdisjoint(single)) if several else cells.isin(single)
        paths = tuple(str(path) for path in samples.frame.loc[with_one, "path"])
        yield Finding(
            "single-image-class",
            f"{format_count(len(single), 'class', 'classes')} with one image: {list_some([repr(name) for name in single])}",
            path=paths[0],
            paths=paths,
            evidence={"classes": single},
            fix="it is trained on but can be neither validated nor tested: add images, or merge it with another class",
        )
    if not counts:
        return
    largest, smallest = next(iter(counts)), list(counts)[-1]
    ratio = counts[largest] / counts[smallest]
    if ratio >= _IMBALANCE_RATIO:
        yield Finding(
            "class-imbalance",
            f"{largest!r} has {ratio:.0f} times as many images as {smallest!r} ({counts[largest]:,} and {counts[smallest]:,})",
            evidence={"ratio": round(ratio, 2), "classes": counts},
            fix="judge by macro F1" if several else "judge by balanced accuracy and macro F1, and keep class weights on",
        )


def _counts(cells: pd.Series[str]) -> dict[str, int]:
    """How often each text occurs, most frequent first, ties by name."""
    counts = {str(name): int(count) for name, count in cells.value_counts().items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def diagnose_values(samples: Samples, settings: Settings) -> Iterator[Finding]:
    """Every contradiction within the values that are learnt."""
    frame, names = samples.frame, samples.task.names
    if samples.task.kind != "regression":
        cells = frame["label"]
        alike, shown = _spelt_alike(cells.str.split(SEVERAL).explode() if samples.task.kind == MULTI_LABEL else cells)
        if alike:
            yield Finding(
                "similar-labels",
                f"{format_count(len(alike), 'class', 'classes')} spelt in several ways: {list_some(shown)}",
                evidence={"classes": alike[:100]},
                fix="each spelling is a class of its own: if they mean the same, write them alike",
            )
        return
    learned = [name for name in names if name not in settings.sums]
    constant = {name: float(frame[name].iloc[0]) for name in learned if frame[name].nunique() == 1}
    if constant and len(samples) >= 2:
        shown = [f"{name!r} is always {value:g}" for name, value in constant.items()]
        yield Finding(
            "constant-target",
            f"{format_count(len(constant), 'target')} with nothing to learn: {list_some(shown)}",
            severity="error" if len(constant) == len(learned) else "warning",
            evidence={"targets": constant},
            fix="name a target that varies with --target, or leave this one out: its r2 says nothing",
        )
    for name in learned:
        yield from _diagnose_placeholder(frame[name], name)
    below = {name: count for name in names if (count := int((frame[name] < 0).sum()))}
    if below and settings.positive:
        shown = [f"{count:,} of {name!r}, the lowest {frame[name].min():g}" for name, count in below.items()]
        yield Finding(
            "negative-targets",
            f"{format_count(sum(below.values()), 'value')} below 0 although --positive excludes them: {list_some(shown)}",
            severity="error",
            evidence={"below_0": below},
            fix="mend the values, or leave --positive out (--no-positive): outputs that cannot be negative never reach them",
        )
    for total, parts in settings.sums.items():
        if {total, *parts} <= set(frame.columns):
            yield from _diagnose_sum(frame, total, parts)


def _diagnose_placeholder(column: pd.Series[float], name: str) -> Iterator[Finding]:
    """A repeated -999 or 9999 at the end of the values, far from the others."""
    for value in sorted({float(column.min()), float(column.max())}):
        others, count = column[column != value], int((column == value).sum())
        if count < 2 or not len(others) or not re.fullmatch(r"-?9{2,}", f"{value:.0f}") or not value.is_integer():
            continue
        gap = float((others - value).abs().min())
        if gap > others.max() - others.min() or (value < 0 <= others.min()):
            yield Finding(
                "placeholder-values",
                f"{value:.0f} stands {count:,} times in {name!r}, far from the others ({others.min():g} to {others.max():g})",
                evidence={"target": name, "value": value, "count": count},
                fix="if it stands for a missing value, remove these rows: it would be learnt as a number",
            )


def _diagnose_sum(frame: pd.DataFrame, total: str, parts: tuple[str, ...]) -> Iterator[Finding]:
    written = frame[total].to_numpy(dtype=np.float64)
    added = frame[list(parts)].to_numpy(dtype=np.float64).sum(axis=1)
    wrong = np.abs(written - added) > _ROUNDING * np.maximum(np.abs(written), np.abs(written).mean())
    if not wrong.any():
        return
    row, count, share = int(np.argmax(np.abs(written - added))), int(wrong.sum()), float(wrong.mean())
    worst = f"{frame['sample_id'].iloc[row]!r} has {written[row]:g}, its parts make {added[row]:g}"
    yield Finding(
        "sum-contradicted",
        f"{format_count(count, 'row')} of {len(frame):,} where {total} is not {' + '.join(parts)}: {worst}",
        severity="error" if share > _SOME else "warning",
        evidence={"count": count, "share": round(share, 5), "ids": frame["sample_id"][wrong].tolist()[:100]},
        fix=f"mend the table, or leave --sum {total}={'+'.join(parts)} out: what is derived by it would be wrong",
    )


def _spelt_alike(cells: pd.Series[str]) -> tuple[list[list[str]], list[str]]:
    """Texts that differ in letter case, spaces, dashes or Unicode form only, or are equal numbers; then with their counts."""
    counts = _counts(cells)
    spelt: dict[str | Decimal, list[str]] = defaultdict(list)
    for name in sorted(counts):
        plain = unicodedata.normalize("NFKC", name).strip()
        meant = Decimal(plain) if NUMBER.fullmatch(plain) else re.sub(r"[\s_-]+", "", plain.casefold()) or name
        spelt[meant].append(name)
    alike = [names for names in spelt.values() if len(names) > 1]
    return alike, [" and ".join(f"{name!r} ({counts[name]:,})" for name in names) for names in alike]


def diagnose_splits(samples: Samples, settings: Settings, *, given: bool) -> Iterator[Finding]:
    """Splits that are wanted and empty; `given` is whether the data itself says which split a sample is in."""
    counts = samples.frame["split"].value_counts()
    wanted = [split for split, share in (("val", settings.val_share), ("test", settings.test_share)) if share > 0]
    empty = [split for split in wanted if not counts.get(split, 0)]
    if not empty or settings.folds is not None or samples.fold_name:
        return
    nothing = len(empty) == len(wanted) == 2
    groups = samples.frame["group"]
    num_groups = int(groups[groups != ""].nunique())
    tied = f": {format_count(num_groups, 'group')} of {samples.group_name!r} cannot be divided"
    lost = {"val": "no epoch can be picked", "test": "there will be no test figure"}[empty[0]]
    fix = "put some samples in it in the --split column" if given else "add samples of other groups, or name another --group"
    yield Finding(
        "empty-side",
        f"no sample is in the {' or the '.join(empty)} split{tied if num_groups and not given else ''}; "
        + ("nothing will be scored" if nothing else lost),
        severity="error" if nothing and not given else "warning",
        evidence={"sides": {str(split): int(count) for split, count in counts.items()}, "groups": num_groups},
        fix=f"{fix}; where it is meant, say so with {' and '.join(f'--{split}-share 0' for split in empty)}",
    )


def diagnose_fold_names(samples: Samples) -> Iterator[Finding]:
    """Values of the user's own fold column that mean the same but for their spelling; before folds are numbered."""
    alike, shown = _spelt_alike(samples.frame["fold"]) if samples.fold_name else ([], [])
    if alike:
        text = f"{format_count(len(alike), 'fold')} of {samples.fold_name!r} spelt in several ways: {list_some(shown)}"
        fix = "each spelling is a fold of its own: if they mean the same, write them alike"
        yield Finding("similar-folds", text, evidence={"folds": alike[:100]}, fix=fix)


def diagnose_folds(samples: Samples) -> Iterator[Finding]:
    """Folds of the user's own that say little when they are tested: with a single class or value, or with classes found nowhere
    else, which the others cannot learn.
    """
    if not samples.fold_name:
        return
    classes = samples.task.kind == "classification"
    kinds = samples.frame.groupby("fold")[list(samples.value_columns)].nunique().max(axis=1)
    single = [int(fold) for fold in kinds.index[kinds < 2]]
    if single:
        shown = list_some([f"fold {fold}" for fold in single])
        what = f"{format_count(len(single), 'fold')} of {samples.fold_name!r} with a single {'class' if classes else 'value'}"
        fix = "a score over one of them says little: look at all predictions together, with --fold all"
        yield Finding("fold-of-one-kind", f"{what}: {shown}", evidence={"folds": single}, fix=fix)
    if classes:
        places = samples.frame.groupby("label")["fold"].nunique()
        alone = [str(name) for name in places.index[places < 2]]
        if alone:
            text = f"{format_count(len(alone), 'class', 'classes')} in one fold of {samples.fold_name!r} alone: "
            text += list_some([repr(name) for name in alone])
            fix = "where that fold is tested, nothing has learnt them: spread them over folds, or leave them out"
            yield Finding("class-in-one-fold", text, evidence={"classes": alone[:100]}, fix=fix)
