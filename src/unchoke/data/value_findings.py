"""What the labels, targets and sides of the samples say against one another. Pure: samples and settings in, findings out.

Labels that only spelling tells apart, targets that never change or contradict what was said of them (`--positive`, `--sum`), and
splits and folds that leave nothing to judge by. Files are the business of `preflight.py`, counts of classes that of
`class_labels.py`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding, Severity
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.data.sample_set import Samples
from unchoke.data.table import NUMBER

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 0.01
"""How far a sum may be off, as a share of what is usual for it: tables are rounded."""
_SOME = 0.05
"""Up to this share of the rows a contradiction is a slip, beyond it the declaration is wrong."""


def diagnose_values(samples: Samples, settings: Settings) -> list[Finding]:
    """Every contradiction within the values that are learnt."""
    if samples.task.kind == "classification":
        return _alike(samples)
    learned = [name for name in samples.task.names if name not in settings.sums]
    return _constant(samples, learned) + (_negative(samples) if settings.positive else []) + _wrong_sums(samples, settings)


def _alike(samples: Samples) -> list[Finding]:
    """Labels that mean the same but for the way they are spelt."""
    alike, shown = _spelt_alike(samples.frame["label"])
    if not alike:
        return []
    return [
        Finding(
            "similar-labels",
            f"{format_count(len(alike), 'class', 'classes')} spelt in several ways: {list_some(shown)}",
            evidence={"classes": alike[:100]},
            fix="each spelling is a class of its own: if they mean the same, write them alike",
        )
    ]


def _spelt_alike(cells: pd.Series[str]) -> tuple[list[list[str]], list[str]]:
    """Texts that differ in letter case, spaces, dashes or Unicode form only, or are equal numbers; then with their counts."""
    counts = {str(name): int(count) for name, count in cells.value_counts().items()}
    spelt: dict[str | Decimal, list[str]] = defaultdict(list)
    for name in sorted(counts):
        spelt[_meaning(name)].append(name)
    alike = [names for names in spelt.values() if len(names) > 1]
    return alike, [" and ".join(f"{name!r} ({counts[name]:,})" for name in names) for names in alike]


def _meaning(text: str) -> str | Decimal:
    """The number a text says, or the text without what only spelling tells apart."""
    plain = unicodedata.normalize("NFKC", text).strip()
    if NUMBER.fullmatch(plain):
        return Decimal(plain)
    return re.sub(r"[\s_-]+", "", plain.casefold()) or text


def diagnose_fold_names(samples: Samples) -> list[Finding]:
    """Values of the user's own fold column that mean the same but for the way they are spelt; before folds are numbered."""
    alike, shown = _spelt_alike(samples.frame["fold"]) if samples.fold_name else ([], [])
    if not alike:
        return []
    text = f"{format_count(len(alike), 'fold')} of {samples.fold_name!r} spelt in several ways: {list_some(shown)}"
    fix = "each spelling is a fold of its own: if they mean the same, write them alike"
    return [Finding("similar-folds", text, evidence={"folds": alike[:100]}, fix=fix)]


def _constant(samples: Samples, learned: list[str]) -> list[Finding]:
    constant = {name: float(samples.frame[name].iloc[0]) for name in learned if samples.frame[name].nunique() == 1}
    if not constant or len(samples) < 2:
        return []
    severity: Severity = "error" if len(constant) == len(learned) else "warning"
    shown = list_some([f"{name!r} is always {value:g}" for name, value in constant.items()])
    text = f"{format_count(len(constant), 'target')} with nothing to learn: {shown}"
    fix = "name a target that varies with --target, or leave this one out: its r2 says nothing"
    return [Finding("constant-target", text, severity=severity, evidence={"targets": constant}, fix=fix)]


def _negative(samples: Samples) -> list[Finding]:
    below = {name: int((samples.frame[name] < 0).sum()) for name in samples.task.names}
    below = {name: count for name, count in below.items() if count}
    if not below:
        return []
    shown = list_some([f"{count:,} of {name!r}, the lowest {samples.frame[name].min():g}" for name, count in below.items()])
    text = f"{format_count(sum(below.values()), 'value')} below 0 although --positive says there are none: {shown}"
    fix = "mend the values, or leave --positive out (--no-positive): outputs that cannot be negative would never reach them"
    return [Finding("negative-targets", text, severity="error", evidence={"below_0": below}, fix=fix)]


def _wrong_sums(samples: Samples, settings: Settings) -> list[Finding]:
    return [
        finding
        for total, parts in settings.sums.items()
        if {total, *parts} <= set(samples.frame.columns) and (finding := _wrong_sum(samples.frame, total, parts)) is not None
    ]


def _wrong_sum(frame: pd.DataFrame, total: str, parts: tuple[str, ...]) -> Finding | None:
    written = frame[total].to_numpy(dtype=np.float64)
    added = frame[list(parts)].to_numpy(dtype=np.float64).sum(axis=1)
    allowed = _ROUNDING * np.maximum(np.abs(written), np.abs(written).mean())
    wrong: npt.NDArray[np.bool_] = np.abs(written - added) > allowed
    if not wrong.any():
        return None
    row = int(np.argmax(np.abs(written - added)))
    worst = f"{frame['sample_id'].iloc[row]!r} has {written[row]:g}, its parts make {added[row]:g}"
    share = float(wrong.mean())
    evidence: dict[str, Any] = {
        "count": int(wrong.sum()),
        "share": round(share, 5),
        "ids": frame["sample_id"][wrong].tolist()[:100],
    }
    return Finding(
        "sum-contradicted",
        f"{format_count(int(wrong.sum()), 'row')} of {len(frame):,} where {total} is not {' + '.join(parts)}: {worst}",
        severity="error" if share > _SOME else "warning",
        evidence=evidence,
        fix=f"mend the table, or leave --sum {total}={'+'.join(parts)} out: what is derived by it would be wrong",
    )


def diagnose_sides(samples: Samples, settings: Settings, *, given: bool) -> list[Finding]:
    """Sides of the split that are wanted and empty; `given` is whether the data itself says who is on which."""
    counts = samples.frame["split"].value_counts()
    wanted = [side for side, share in (("val", settings.val_share), ("test", settings.test_share)) if share > 0]
    empty = [side for side in wanted if not counts.get(side, 0)]
    if not empty or settings.folds is not None or samples.fold_name:
        return []
    nothing = len(empty) == len(wanted) == 2
    groups = samples.frame["group"]
    num_groups = int(groups[groups != ""].nunique())
    tied = (
        f": {format_count(num_groups, 'group')} of {samples.group_name!r} cannot be divided" if num_groups and not given else ""
    )
    lost = (
        "nothing will be scored"
        if nothing
        else {"val": "no epoch can be picked", "test": "there will be no test figure"}[empty[0]]
    )
    fix = "put some samples on it in the --split column" if given else "add samples of other groups, or name another --group"
    return [
        Finding(
            "empty-side",
            f"no sample is on the {' or the '.join(empty)} side of the split{tied}; {lost}",
            severity="error" if nothing and not given else "warning",
            evidence={"sides": {str(side): int(count) for side, count in counts.items()}, "groups": num_groups},
            fix=f"{fix}; where it is meant, say so with {' and '.join(f'--{side}-share 0' for side in empty)}",
        )
    ]


def diagnose_folds(samples: Samples) -> list[Finding]:
    """Folds of the user's own that say little when they are tested: with a single class or value, or with classes found nowhere
    else, which the others cannot learn.
    """
    if not samples.fold_name:
        return []
    return _single_kinds(samples) + (_alone(samples) if samples.task.kind == "classification" else [])


def _single_kinds(samples: Samples) -> list[Finding]:
    kinds = samples.frame.groupby("fold")[list(samples.value_columns)].nunique().max(axis=1)
    single = [int(fold) for fold in kinds.index[kinds < 2]]
    if not single:
        return []
    what = "class" if samples.task.kind == "classification" else "value"
    shown = list_some([f"fold {fold}" for fold in single])
    text = f"{format_count(len(single), 'fold')} of {samples.fold_name!r} with a single {what}: {shown}"
    fix = "a score over one of them says little: look at all predictions together, with --fold all"
    return [Finding("fold-of-one-kind", text, evidence={"folds": single}, fix=fix)]


def _alone(samples: Samples) -> list[Finding]:
    places = samples.frame.groupby("label")["fold"].nunique()
    alone = [str(name) for name in places.index[places < 2]]
    if not alone:
        return []
    classes = format_count(len(alone), "class", "classes")
    text = f"{classes} in one fold of {samples.fold_name!r} alone: {list_some([repr(name) for name in alone])}"
    fix = "where that fold is tested, nobody has learnt them: spread them over folds, or leave them out"
    return [Finding("class-in-one-fold", text, evidence={"classes": alone[:100]}, fix=fix)]
