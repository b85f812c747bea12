"""How much a random split leaks where several photos show one thing: a quick linear model in random folds, and in folds that keep
groups whole. In: cached features, targets and groups. Out: both scores, and how sure their difference is.

The model is ridge regression on standardised features, for classes on one-hot targets. One inverse of the kernel matrix gives the
held-out answers of every fold of every draw, so that a thousand photos take a fraction of a second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.findings import Finding
from unchoke.core.fingerprint import hash_unit
from unchoke.core.record import GroupGapRecord
from unchoke.data.groups import UNGROUPED
from unchoke.data.quotas import Unit, fill_quotas
from unchoke.data.sample_set import LIKELY_GROUP
from unchoke.runs.report.summary import describe_gap
from unchoke.runs.session import Session
from unchoke.training.data import FeatureSource, LearningTask, Positions, Problem

Features = NDArray[np.float32]
_MAX_SAMPLES = 1200
_MIN_SAMPLES, _MIN_GROUPS = 40, 3
_FOLDS, _DRAWS = 5, 2
_STRENGTH = 0.3
"""Of the ridge, on a kernel with ones on its diagonal. Of 0.01 to 10 it scored best on a thousand skin lesions, in both kinds of
folds."""


def tell_group_gap(
    session: Session, learnable: LearningTask, features: FeatureSource | None, findings: list[Finding]
) -> tuple[GroupGapRecord | None, list[Finding]]:
    """Where a column looks like a group that was not named: how much that leaks, as a warning and in the finding."""
    at = next((place for place, finding in enumerate(findings) if finding.code == UNGROUPED), None)
    if at is None or features is None or LIKELY_GROUP not in learnable.frame.columns:
        return None, findings
    found, settings = findings[at], session.settings
    column = str(found.evidence["column"])
    with session.stage("groups", f"random folds against folds that keep {column!r} together"):
        groups = learnable.frame[LIKELY_GROUP].tolist()
        rows = choose_rows(groups)
        vectors = features.rows(rows).astype(np.float32)
        if vectors.ndim > 2:  # several tiles: their mean
            vectors = vectors.reshape(len(rows), -1, vectors.shape[-1]).mean(axis=1)
        weights = [settings.target_weights.get(name, 0.0) for name in learnable.problem.names] if settings.target_weights else ()
        gap = measure_group_gap(vectors, learnable.problem, rows, [groups[row] for row in rows], column=column, weights=weights)
    if gap is None:
        return None, findings
    session.warn(f"{UNGROUPED}: {describe_gap(gap)}")
    told = replace(found, message=f"{found.message}; {describe_gap(gap)}", evidence={**found.evidence, "gap": gap.to_dict()})
    return gap, [*findings[:at], told, *findings[at + 1 :]]


def choose_rows(groups: Sequence[str], *, most: int = _MAX_SAMPLES) -> Positions:
    """Which samples to look at, in order: of each group a few, of as many groups as fit, whatever their order."""
    by_group: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        if group:
            by_group[group].append(row)
    of_each = max(8, most // max(1, len(by_group)))
    chosen: list[int] = []
    for group in sorted(by_group, key=lambda name: (hash_unit("gap", name), name)):
        chosen += by_group[group][:of_each] if len(chosen) < most else []
    return np.array(sorted(chosen[:most]), dtype=np.int64)


def measure_group_gap(
    features: Features, problem: Problem, rows: Positions, groups: Sequence[str], *, column: str, weights: Sequence[float] = ()
) -> GroupGapRecord | None:
    """The scores in both kinds of folds; None where there are too few samples. `features` and `groups` are those of `rows`."""
    if len(rows) < _MIN_SAMPLES or len(set(groups)) < _MIN_GROUPS:
        return None
    classes = problem.kind == "classification"
    goal = np.eye(len(problem.names), dtype=np.float32)[problem.targets[rows]] if classes else problem.targets[rows]
    spread = goal.std(axis=0)
    if not (spread > 0).any():
        return None
    wanted = goal - goal.mean(axis=0)
    strata = problem.targets[rows]
    if not classes:
        wanted = wanted / np.where(spread > 0, spread, 1)
        combined = wanted @ _shares(wanted, weights)
        strata = np.searchsorted(np.quantile(combined, (0.2, 0.4, 0.6, 0.8)), combined)
    standard = torch.from_numpy((features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6))
    kernel = standard @ standard.T / features.shape[1]
    inverse = torch.linalg.inv(kernel + _STRENGTH * torch.eye(len(rows)))
    labels, alone = [str(stratum) for stratum in strata], [f"{row}" for row in range(len(rows))]
    random, grouped = (
        np.mean([_gains(inverse, wanted, goal, _draw(keys, labels, seed), classes, weights) for seed in range(_DRAWS)], axis=0)
        for keys in (alone, list(groups))
    )
    # The standard error of the mean difference, rows of one group counted as one observation.
    differences = random - grouped
    numbers = np.unique(np.asarray(groups), return_inverse=True)[1]
    sums = np.bincount(numbers, weights=differences - differences.mean())
    error, gap = float(np.sqrt((sums**2).sum()) / len(differences)), float(random.mean()) - float(grouped.mean())
    return GroupGapRecord(
        column=column,
        metric="accuracy" if classes else "weighted_mean_r2" if len(weights) else "r2",
        random=round(float(random.mean()), 4),
        grouped=round(float(grouped.mean()), 4),
        low=round(gap - 1.96 * error, 4),
        high=round(gap + 1.96 * error, 4),
        num_samples=len(rows),
        num_groups=len(set(groups)),
    )


def _shares(wanted: Features, weights: Sequence[float]) -> Features:
    """How much each target counts, together 1."""
    shares: Features = np.asarray(weights if len(weights) else np.ones(wanted.shape[1]), dtype=np.float32)
    total: Features = shares / shares.sum()
    return total


def _draw(keys: Sequence[str], strata: Sequence[str], seed: int) -> NDArray[np.int64]:
    """A fold for each row, equal keys together, strata in proportion."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows_of[key].append(row)
    units = [
        Unit(Counter(strata[row] for row in rows).most_common(1)[0][0], len(rows), (hash_unit("gap", seed, key), key))
        for key, rows in rows_of.items()
    ]
    num = min(_FOLDS, len(units))
    folds = np.empty(len(keys), np.int64)
    for fold, rows in zip(fill_quotas(units, (1 / num,) * num), rows_of.values(), strict=True):
        folds[rows] = fold
    return folds


def _gains(
    inverse: torch.Tensor, wanted: Features, goal: Features, folds: NDArray[np.int64], classes: bool, weights: Sequence[float]
) -> NDArray[np.float64]:
    """What each held-out row is worth: 1 for the right class; for values 1 less its squared error, in units of their variance."""
    fitted = inverse @ torch.from_numpy(wanted)
    errors = np.empty_like(wanted)
    for fold in np.unique(folds):
        held = np.flatnonzero(folds == fold)
        errors[held] = torch.linalg.solve(inverse[held][:, held], fitted[held]).numpy()
    if classes:
        answers = (wanted - errors + goal.mean(axis=0)).argmax(axis=1)
        return np.asarray(answers == goal.argmax(axis=1), dtype=np.float64)
    return np.asarray(1 - (errors**2) @ _shares(wanted, weights), dtype=np.float64)
