"""What a cProfile run says about stages: each second of self time belongs to the nearest marked function above it.

In: a finished profile and markers, which say where a stage begins. Out: one row for each stage, in the order the markers name
them, and one for everything else; their seconds add up to the whole profile. cProfile sees the one thread that it was switched
on in. Nothing is measured here, and nothing is rendered.

A function that several stages call (say `zlib.crc32`) is split by the time it took under each of its callers, which the profile
keeps; further up, where the profile no longer tells one path from another, by the callers' share of the caller's time.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

OTHER = "other"
_ROUNDS = 60
"""Contexts travel one call down in each round; Python code nests less deeply than this, and circles settle long before."""

Shares = dict[str, float]


class ProfiledFunction(NamedTuple):
    """A function as pstats names it; builtin ones have the file `~`."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Marker:
    """Where a stage begins: a function by its name and the end of its file's path (`~` for builtin ones).

    Only calls of functions marked as `counted` make up the stage's calls; the others lead there or belong to it.
    """

    stage: str
    file: str
    name: str
    counted: bool = True

    def matches(self, function: ProfiledFunction) -> bool:
        return function.name == self.name and function.file.replace("\\", "/").endswith(self.file)


@dataclass(frozen=True)
class StageRow:
    """One line of the table: `share` is of the whole profile, `calls` those of the stage's counted functions."""

    stage: str
    seconds: float
    share: float
    calls: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Cost:
    """What the profile knows of one function; `callers` gives its own and its whole seconds under each."""

    calls: int
    self_s: float
    callers: Mapping[ProfiledFunction, tuple[float, float]]


def profile_rows(profile: cProfile.Profile, markers: Sequence[Marker]) -> list[StageRow]:
    """One row for each stage and one for the rest; shares add up to 1, or are all 0 where nothing took time."""
    costs = _costs(profile)
    marked = {function: marker for function in costs for marker in markers if marker.matches(function)}
    seconds = _stage_seconds(costs, _contexts(costs, {function: marker.stage for function, marker in marked.items()}))
    total_s = sum(seconds.values())
    stages = [*dict.fromkeys(marker.stage for marker in markers), OTHER]
    calls = dict.fromkeys(stages, 0)
    for function, marker in marked.items():
        calls[marker.stage] += costs[function].calls if marker.counted else 0
    return [
        StageRow(stage, seconds.get(stage, 0.0), seconds.get(stage, 0.0) / total_s if total_s else 0.0, calls[stage])
        for stage in stages
    ]


def self_seconds(profile: cProfile.Profile, words: Iterable[str]) -> float:
    """Seconds spent in functions themselves, not in what they call, whose name or file holds one of the words."""
    wanted = tuple(words)
    return sum(
        cost.self_s
        for function, cost in _costs(profile).items()
        if any(word in function.name or word in function.file for word in wanted)
    )


def _costs(profile: cProfile.Profile) -> dict[ProfiledFunction, _Cost]:
    found: dict[Any, tuple[int, int, float, float, dict[Any, tuple[int, int, float, float]]]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return {
        ProfiledFunction(*key): _Cost(
            calls, self_s, {ProfiledFunction(*caller): (edge[2], edge[3]) for caller, edge in callers.items()}
        )
        for key, (_, calls, self_s, _, callers) in found.items()
    }


def _contexts(costs: Mapping[ProfiledFunction, _Cost], stages: Mapping[ProfiledFunction, str]) -> dict[ProfiledFunction, Shares]:
    """For each function, which stages its calls run under, as shares that add up to 1."""
    contexts: dict[ProfiledFunction, Shares] = {function: {stages.get(function, OTHER): 1.0} for function in costs}
    below = [function for function, cost in costs.items() if function not in stages and _outer(function, cost)]
    for _ in range(_ROUNDS):
        fresh = {function: _mix(_outer(function, costs[function]), contexts) for function in below}
        settled = all(fresh[function] == contexts[function] for function in below)
        contexts |= fresh
        if settled:
            break
    return contexts


def _outer(function: ProfiledFunction, cost: _Cost) -> dict[ProfiledFunction, float]:
    """A function's callers, itself left out, weighed by its whole time under them (evenly where none took time)."""
    whole = {caller: whole_s for caller, (_, whole_s) in cost.callers.items() if caller != function}
    return whole if any(seconds > 0 for seconds in whole.values()) else dict.fromkeys(whole, 1.0)


def _mix(weights: Mapping[ProfiledFunction, float], contexts: Mapping[ProfiledFunction, Shares]) -> Shares:
    total = sum(weights.values())
    mixed: Shares = {}
    for caller, weight in weights.items():
        for stage, share in contexts.get(caller, {OTHER: 1.0}).items():
            mixed[stage] = mixed.get(stage, 0.0) + share * weight / total
    return mixed


def _stage_seconds(costs: Mapping[ProfiledFunction, _Cost], contexts: Mapping[ProfiledFunction, Shares]) -> Shares:
    """Self time of every function, given to the stages it ran under."""
    seconds: Shares = {}
    for function, cost in costs.items():
        for stage, spent_s in _split(function, cost, contexts).items():
            seconds[stage] = seconds.get(stage, 0.0) + spent_s
    return seconds


def _split(function: ProfiledFunction, cost: _Cost, contexts: Mapping[ProfiledFunction, Shares]) -> Shares:
    """A marked function's context is one stage, so all of it goes there; others are split by their time under each caller."""
    context = contexts[function]
    under = {caller: own_s for caller, (own_s, _) in cost.callers.items() if caller != function and own_s > 0}
    if len(context) == 1 or not under:
        return {stage: share * cost.self_s for stage, share in context.items()}
    return {stage: share * cost.self_s for stage, share in _mix(under, contexts).items()}
