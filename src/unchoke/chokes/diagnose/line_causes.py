"""Rules about single lines of the user's own, whatever they do: the looks of the stack sampler, explained by the source.

In: a `TrainingFigures` and the causes found so far (a line that one of them explains is not explained twice). Out: causes. Looks
are grouped by function, or by line in a function that also trains; what the costliest line of a group does is said by
`line_kinds`. A line of making samples that does nothing known to be avoidable is left to the rules about workers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unchoke.chokes.diagnose.line_kinds import LOOP_KINDS, MAKING_KINDS, LineFacts, LineKind, kind_of, shrinks
from unchoke.chokes.diagnose.source_lines import SourceLine, source_line
from unchoke.chokes.diagnose.training_figures import MAKING, TrainingFigures
from unchoke.chokes.recording import StackRow
from unchoke.core.findings import Cause, CodeLine, per
from unchoke.core.units import format_seconds

_NETWORK = ("forward", "backward", "optimizer", "evaluate", "checkpoint", "wait", "collate", "handover")
"""Stages that are not a line's own doing, unless its source says so."""
_INNER = re.compile(r"(\.<locals>)?\.<(listcomp|genexpr|dictcomp|setcomp|lambda)>$")
_PER = {"getitem": "sample", "collate": "batch", "outside": "epoch"}
_GENERIC_SAVES = 0.7
_CLAIMED = 0.3
_READ_LINES = 20
Chain = list[tuple[str, int, str]]
"""The user's lines of a look, innermost first."""
_AS_MUCH = 0.8
_LARGE = 6
_NOT_LARGE_STAGES = {"decode", "open", "read", "stat", "list", "wait"}


@dataclass(frozen=True, eq=False)
class LineGroup:
    """Looks at one function, or at one line of a function that trains."""

    looks: tuple[tuple[StackRow, float], ...]

    @cached_property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.looks)

    @cached_property
    def costliest(self) -> StackRow:
        """A look at the line that took most, at the piece of it that took most."""
        lines: Counter[tuple[str, int]] = Counter()
        pieces: Counter[tuple[tuple[str, int], tuple[int, ...]]] = Counter()
        for row, seconds in self.looks:
            lines[row.file, row.line] += seconds  # type: ignore[assignment]
            pieces[(row.file, row.line), row.span] += seconds  # type: ignore[assignment]
        line = lines.most_common(1)[0][0]
        span = max((key for key in pieces if key[0] == line), key=lambda key: pieces[key])[1]
        return max((row for row, _ in self.looks if (row.file, row.line) == line and row.span == span), key=lambda row: row.count)

    @cached_property
    def at_costliest(self) -> LineGroup:
        """The looks at that line alone."""
        row = self.costliest
        return LineGroup(tuple(look for look in self.looks if (look[0].file, look[0].line) == (row.file, row.line)))

    @cached_property
    def place(self) -> CodeLine:
        row, source = self.costliest, self.source
        line = row.line if source is None or source.statement.lineno <= row.line else source.statement.lineno
        return CodeLine(row.file, line, row.function)

    @cached_property
    def source(self) -> SourceLine | None:
        row = self.costliest
        return source_line(row.file, row.line, row.span)

    def share(self, *states: str) -> float:
        return per(sum(seconds for row, seconds in self.looks if row.state in states), self.seconds)

    @cached_property
    def facts(self) -> LineFacts:
        row = self.costliest
        at_line = [(one, seconds) for one, seconds in self.looks if (one.file, one.line) == (row.file, row.line)]
        libraries: Counter[str] = Counter()
        for one, seconds in at_line:
            libraries[one.library] += seconds  # type: ignore[assignment]
        line_s = sum(seconds for _, seconds in at_line)
        shares = {
            state: per(sum(seconds for one, seconds in at_line if _state(one) == state), line_s) for state in ("python", "lock")
        }
        phases = Counter(one.phase for one, _ in self.looks)
        return LineFacts(
            libraries.most_common(1)[0][0],
            shares["python"],
            shares["lock"],
            _PER.get(phases.most_common(1)[0][0], "step"),
        )


def _state(row: StackRow) -> str:
    """Where the system does not say what a thread waited for, its stage tells running Python from the rest."""
    return row.state or ("python" if row.stage == "python" else "")


def _groups(looks: Sequence[tuple[StackRow, float]], trains: set[tuple[str, str]]) -> list[LineGroup]:
    """The costliest first."""
    found: dict[tuple[object, ...], list[tuple[StackRow, float]]] = {}
    for row, seconds in looks:
        if row.file:
            function = _INNER.sub("", row.function)
            key = (row.file, function, row.line) if (row.file, function) in trains else (row.file, function)
            found.setdefault(key, []).append((row, seconds))
    return sorted((LineGroup(tuple(group)) for group in found.values()), key=lambda group: -group.seconds)


def full_size_arrays(run: TrainingFigures) -> Iterator[Cause]:
    """Arithmetic on pictures far larger than what is used, as the arrays seen at those lines tell."""
    if not run.used_px or run.trained is None:
        return
    used = run.trained.used_sides
    large = {
        (peek["file"], peek["line"]): peek
        for peek in run.peeks
        if peek["px"] >= _LARGE * run.used_px and all(side >= 2 * of for side, of in zip(peek["sides"], used, strict=True))
    }
    looks = [
        (row, seconds)
        for row, seconds in run.looks
        if row.phase in MAKING and (row.file, row.line) in large and row.stage not in _NOT_LARGE_STAGES
    ]
    groups = _groups(looks, set())
    if not groups:
        return
    place = groups[0].place
    peek = large[groups[0].costliest.file, groups[0].costliest.line]
    wide = [one for one in large.values() if one["dtype"] == "float64"]
    saved_s = sum(
        seconds * (_shrinking_saves(large[row.file, row.line]) if _shrinks(row) else 1 - run.used_px / peek["px"])
        for row, seconds in looks
    )
    yield Cause(
        "transform-at-full-size",
        "transform",
        run.on_path_s(saved_s),
        f"{len({(row.file, row.line) for row, _ in looks})} lines work on whole pictures ({peek['name']}: {peek['text']}), "
        f"{peek['px'] / run.used_px:.0f} times the {run.used_px:,} pixels that are used" + (", in float64" if wide else ""),
        "shrink or crop the picture first, while it is small in memory, then work on what is left"
        + (", in float32" if wide else ""),
        place,
        {"seconds": sum(seconds for _, seconds in looks), "array": peek["text"], "used_px": run.used_px},
        "image = image.resize((size, size))  # or the crop, before anything else is done with its pixels",
    )


def _shrinks(row: StackRow) -> bool:
    return shrinks(source_line(row.file, row.line, row.span))


def _shrinking_saves(peek: dict[str, Any]) -> float:
    """Somewhere a picture must be shrunk: bytes cost the same before anything else is done with them, numbers become bytes."""
    return 0.0 if peek["dtype"] == "uint8" else 0.9


def recomputed(run: TrainingFigures) -> Iterator[Cause]:
    """A function that was met in many steps or batches with arguments it had before: its results could be kept."""
    same = {(row["file"], row["function"]): row for row in run.facts.get("same_arguments") or () if isinstance(row, dict)}
    chains = [(row, seconds, [(row.file, row.line, row.function), *row.callers]) for row, seconds in run.looks if row.file]
    trains = {
        (file, function) for row, _, chain in chains if row.stage in ("backward", "optimizer") for file, _, function in chain
    }
    steady = {key for key in same.keys() - trains if not _changes(key, [(row, chain) for row, _, chain in chains])}
    claimed: dict[tuple[str, str], list[tuple[StackRow, float, int]]] = {}
    for row, seconds, chain in chains:
        depth = max((at for at, (file, _, function) in enumerate(chain) if (file, function) in steady), default=-1)
        if 0 <= depth < len(chain) - 1:
            file, _, function = chain[depth]
            claimed.setdefault((file, function), []).append((row, seconds, depth))
    for key, looks in claimed.items():
        yield _recomputed(run, same[key], looks)


def _recomputed(run: TrainingFigures, same: dict[str, Any], looks: Sequence[tuple[StackRow, float, int]]) -> Cause:
    making_s = sum(seconds for row, seconds, _ in looks if row.phase in MAKING)
    spent_s = sum(seconds for _, seconds, _ in looks)
    sites: Counter[tuple[str, int, str]] = Counter()
    for row, seconds, depth in looks:
        sites[row.callers[depth]] += seconds  # type: ignore[assignment]
    arguments, name = ", ".join(same["arguments"]), same["function"].rpartition(".")[2]
    met, distinct = same["met"], same.get("distinct", 1)
    always = distinct == 1
    again = 1.0 if always else max(1 - distinct / met, 1 - 1 / run.epochs)
    seen = f"the same arguments each of {met} times" if always else f"{distinct} different ones in {met} times"
    return Cause(
        "recomputed-result",
        "transform" if making_s > 0.5 * spent_s else "step",
        0.98 * again * (run.on_path_s(making_s) + spent_s - making_s),
        f"{name}({arguments}) takes {format_seconds(spent_s)} of {format_seconds(run.span_s)}; looked at, it was given {seen}",
        "work it out once, before the loop or in __init__, and keep the result"
        if always
        else "work it out once for each sample, before training or when first needed, and keep the results beside the samples",
        CodeLine(*sites.most_common(1)[0][0]),
        {"seconds": spent_s, "called": same["function"], "called_file": same["file"], "met": met, "distinct": distinct},
        f"self.{name} = {name}({arguments})  # once; then use self.{name}" if always else "",
    )


def _changes(key: tuple[str, str], looks: Sequence[tuple[StackRow, Chain]]) -> bool:
    """Whether a function draws random numbers or runs a network that learns: its result is another one each time."""
    lines: set[int] = set()
    for row, chain in looks:
        inside = [line for file, line, function in chain if (file, function) == key]
        if inside and row.library.startswith("torch.nn.modules.module:"):
            return True
        lines.update(inside)
    for line in sorted(lines)[:_READ_LINES]:
        source = source_line(key[0], line)
        if source is not None and source.function is not None and source.program.facts.draws_at_random(source.function):
            return True
    return False


def _is_recomputed(group: LineGroup, found: Sequence[Cause], kind: LineKind | None) -> bool:
    """Whether the line is part of a function whose results could be kept, which saves about as much as mending the line would."""
    row = group.costliest
    chain = {(file, function) for file, _, function in [(row.file, row.line, row.function), *row.callers]}
    mended_s = (1 - kind.left_share) * group.seconds if kind is not None else 0.0
    return any(
        cause.code == "recomputed-result"
        and (cause.evidence["called_file"], cause.evidence["called"]) in chain
        and (cause.evidence["distinct"] == 1 or cause.saved_s >= _AS_MUCH * mended_s)
        for cause in found
    )


def sample_lines(run: TrainingFigures, found: Sequence[Cause]) -> Iterator[Cause]:
    """Lines of making samples that do again what could be done once, or in Python what could be done with arrays."""
    looks = [(row, seconds) for row, seconds in run.looks if row.phase in MAKING]
    for group in _groups(looks, set()):
        place, facts = group.place, group.facts
        kind = kind_of(group.source, facts, MAKING_KINDS) if not facts.library.startswith("torch.utils.data") else None
        if _explained(group, found, by_line=False) or _is_recomputed(group, found, kind) or _calls_at(run, place):
            continue
        if kind is not None:
            yield _cause(run, group, kind, facts, stage="collate" if facts.per == "batch" else "transform")


def loop_lines(run: TrainingFigures, found: Sequence[Cause]) -> Iterator[Cause]:
    """Lines beside the network: in the loop, between steps and epochs, in samplers, callbacks, `forward` and the loss."""
    looks = [(row, seconds) for row, seconds in run.looks if row.phase not in MAKING]
    trains = {(row.file, _INNER.sub("", row.function)) for row, _ in looks if row.stage in ("backward", "optimizer")}
    for group in _groups(looks, trains):
        place, facts = group.place, group.facts
        by_line = (place.file, _INNER.sub("", place.function)) in trains
        kind = kind_of(group.source, facts, LOOP_KINDS)
        if _explained(group, found, by_line=by_line) or _is_recomputed(group, found, kind):
            continue
        own = LineGroup(tuple(look for look in group.looks if look[0].stage not in _NETWORK))
        if kind is not None and kind.code == "loader-per-step":
            yield _cause(run, group, kind, facts, stage="wait", more_s=_in_its_wake_s(run, group))
        elif (
            kind is not None
            and kind.code == "small-operations"
            and group.costliest.stage not in ("backward", "optimizer", "evaluate")
        ):
            yield _small_operations(run, group, kind, facts)
        elif kind is not None and kind.code == "costly-operation" and group.costliest.stage in ("forward", "other"):
            yield _cause(run, group.at_costliest, kind, facts, stage="forward")
        elif own.looks and own.seconds >= 0.5 * group.seconds:
            yield _cause(run, own, kind or _unknown(own), own.facts, stage="step")


def _in_its_wake_s(run: TrainingFigures, group: LineGroup) -> float:
    """Workers that start and end slow down what runs beside them: where they are built to evaluate, all of the evaluation."""
    evaluated_s = run.total_s("evaluate_s")
    at_it_s = sum(seconds for row, seconds in group.looks if row.phase == "evaluate")
    others_s = sum(seconds for row, seconds in run.looks if row.phase == "evaluate") - at_it_s
    return max(0.0, evaluated_s - group.seconds) if at_it_s >= others_s else 0.0


def _explained(group: LineGroup, found: Sequence[Cause], *, by_line: bool) -> bool:
    """Whether another cause already claims a good part of what this line, or its function, takes."""
    place = group.place
    return any(
        cause.place.file == place.file
        and (cause.place.line == place.line or (not by_line and cause.place.function == place.function))
        and cause.saved_s >= _CLAIMED * group.seconds
        for cause in found
    )


def _small_operations(run: TrainingFigures, group: LineGroup, kind: LineKind, facts: LineFacts) -> Cause:
    """What forward does in many pieces, backward does in as many again."""
    share = min(1.0, per(group.seconds, run.total_s("forward_s"))) if facts.per == "step" else 0.0
    return _cause(run, group, kind, facts, stage="forward", more_s=share * run.total_s("backward_s"))


def _unknown(group: LineGroup) -> LineKind:
    """A line that takes long, and no more is known of it."""
    library = group.costliest.library
    states = Counter({state: group.share(state) for state in ("python", "native", "sleep", "lock", "read", "wait")})
    doing = {
        "python": "running Python", "native": "computing", "sleep": "sleeping", "lock": "waiting for a lock", "read": "reading",
        "wait": "waiting",
    }[states.most_common(1)[0][0]]  # fmt: skip
    inside = f" in {library.replace(':', '.')}" if library else ""
    return LineKind(
        "slow-line",
        f"is beside the network ({doing}{inside})",
        "do it less often, once before the loop, or on whole tensors",
        "",
        1 - _GENERIC_SAVES,
    )


def _cause(run: TrainingFigures, group: LineGroup, kind: LineKind, facts: LineFacts, *, stage: str, more_s: float = 0.0) -> Cause:
    number = {"sample": run.made_samples, "batch": run.made_batches, "epoch": run.epochs}.get(facts.per, run.num_steps)
    making = facts.per in ("sample", "batch")
    saved_s = (1 - kind.left_share) * (run.with_strays_s(group.seconds, group.place) if making else group.seconds + more_s)
    function = _INNER.sub("", group.place.function)
    return Cause(
        kind.code,
        stage,
        run.on_path_s(saved_s) if making else saved_s,
        f"{function or 'this line'} takes {format_seconds(per(group.seconds, number))} of every {facts.per}: it {kind.does}",
        kind.fix,
        group.place,
        {
            "seconds": group.seconds,
            "line": group.source.text if group.source else "",
            "library": facts.library,
            "python_share": facts.python_share,
        },
        kind.edit,
    )


def _calls_at(run: TrainingFigures, place: CodeLine) -> bool:
    """Whether a rule of its own knows what this line does: it decodes, shrinks, or reads arrays."""
    kinds = ("decode", "resize", "transform", "npz", "csv", "raster_open", "raster_read", "to_array", "read")
    return any(row.file == place.file and row.line == place.line for row in run.calls(*kinds))
