"""Which targets a network learns, and which follow from them.

In: the targets' names, sums as declared ("total = GDM + dead"), weights, and whether values are never negative. Out: a
`TargetPlan`: what has an output of its own, and the matrix that turns those outputs into every reported target. The table's own
value of a sum stays the truth it is compared with. No data is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from unchoke.core.errors import UsageError, list_some
from unchoke.core.settings import Settings

if TYPE_CHECKING:
    import torch

Sums = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class TargetPlan:
    """`names` is every reported target in order; `learned` are those with an output of their own; `sums` says how the others
    follow (a part may be a sum itself); `weights` is aligned with `names`, None when none were declared.
    """

    names: tuple[str, ...]
    learned: tuple[str, ...]
    sums: Sums = field(default_factory=dict)
    weights: tuple[float, ...] | None = None
    positive: bool = False

    @property
    def matrix(self) -> torch.Tensor:
        """(learned, names), float32: how often each learned value counts in each target, so that all = learned @ matrix."""
        import torch

        counts = torch.zeros(len(self.learned), len(self.names))
        for column, name in enumerate(self.names):
            for leaf in _leaves(name, self.sums):
                counts[self.learned.index(leaf), column] += 1
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint or a record."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TargetPlan:
        weights = values["weights"]
        return cls(
            names=tuple(values["names"]),
            learned=tuple(values["learned"]),
            sums={name: tuple(parts) for name, parts in values["sums"].items()},
            weights=None if weights is None else tuple(float(weight) for weight in weights),
            positive=bool(values["positive"]),
        )


def check_target_names(settings: Settings, names: Sequence[str], *, kind: str = "regression") -> None:
    """Refuse sums and weights of targets that do not exist or cannot be; for classes there are none. `names` is every target."""
    declared = {"--sum": bool(settings.sums), "--target-weight": bool(settings.target_weights), "--positive": settings.positive}
    given = [option for option, is_given in declared.items() if is_given]
    if kind != "regression" and given:
        raise UsageError(
            f"{' and '.join(given)} given, but classes are learnt",
            code="option-not-for-classes",
            why="sums, weights and signs belong to targets, which are numbers",
            try_=f"leave {' and '.join(given)} out, or name targets with --target",
        )
    parts = [part for parts in settings.sums.values() for part in parts]
    used = dict.fromkeys([*settings.sums, *parts, *settings.target_weights])
    unknown = [name for name in used if name not in names]
    if unknown:
        raise UsageError(
            f"no target called {list_some([repr(name) for name in unknown])}, which a sum or a weight names",
            code="no-such-target",
            why=f"the targets are {list_some([repr(name) for name in names], limit=20)}",
            try_="correct the name in --sum or --target-weight, or in unchoke.toml",
        )
    if given:
        plan_targets(names, sums=settings.sums, weights=settings.target_weights, positive=settings.positive)


def plan_targets(
    names: Sequence[str],
    *,
    sums: Mapping[str, Sequence[str]] | None = None,
    weights: Mapping[str, float] | None = None,
    positive: bool = False,
) -> TargetPlan:
    """Check what was declared about the targets; no weights (or an empty mapping) means that all count alike."""
    declared = {name: tuple(parts) for name, parts in (sums or {}).items()}
    _check_sums(names, declared)
    _check_weights(names, weights or {})
    return TargetPlan(
        names=tuple(names),
        learned=tuple(name for name in names if name not in declared),
        sums=declared,
        weights=tuple(float(weights[name]) for name in names) if weights else None,
        positive=positive,
    )


def _leaves(name: str, sums: Sums) -> Iterator[str]:
    """The learned targets that `name` is made of, each as often as it counts."""
    if name not in sums:
        yield name
        return
    for part in sums[name]:
        yield from _leaves(part, sums)


def _check_sums(names: Sequence[str], sums: Sums) -> None:
    faults = [*_unknown("sum", sums, names)]
    faults += [fault for name, parts in sums.items() for fault in _unknown(f"part of {name!r}", parts, names)]
    faults += [f"{name!r} is a sum of nothing" for name, parts in sums.items() if not parts]
    faults = faults or [f"{name!r} is part of itself" for name in sums if name in _parts_of(name, sums)]
    if faults:
        raise UsageError(
            f"these sums of targets cannot be derived: {list_some(faults)}",
            code="bad-sums",
            why=f"a sum is one of the targets ({list_some(names, limit=8)}), made of others",
            try_="--sum TOTAL=A+B, where TOTAL, A and B are all targets",
        )


def _unknown(what: str, given: Mapping[str, Any] | Sequence[str], names: Sequence[str]) -> Iterator[str]:
    yield from (f"{what} {name!r} is no target" for name in given if name not in names)


def _parts_of(name: str, sums: Sums) -> set[str]:
    """Everything `name` is made of, directly or through other sums."""
    found: set[str] = set()
    waiting = [*sums[name]]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting.extend(sums.get(part, ()))
    return found


def _check_weights(names: Sequence[str], weights: Mapping[str, float]) -> None:
    faults = [*_unknown("weight of", weights, names)]
    faults += [f"weight {weight:g} of {name!r}" for name, weight in weights.items() if not 0 <= weight < math.inf]
    if weights:
        faults += [f"no weight for {name!r}" for name in names if name not in weights]
        faults += [] if faults or sum(weights.values()) > 0 else ["every weight is 0"]
    if faults:
        raise UsageError(
            f"these weights cannot be used: {list_some(faults)}",
            code="bad-target-weights",
            why="with weights, every target has one, 0 or more, and they do not all vanish",
            try_=f"--target-weight {names[0]}=0.5, once per target (0 leaves a target out of the score)",
        )
