"""What a recording says in numbers: where the training's seconds went, by stage and by line of the user's own. Nothing is judged.

Every look of the stack sampler that belongs to the training stands for seconds of it. What worker processes did counts as far
as the loop waited for them: their looks take the place of that waiting. Looks are grouped by function, or by line in a
function that holds a training loop; a group is shown by its costliest line, whatever stage it is in.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from unchoke_doctor.recording import FETCHED, CallRow, LoaderRecord, ModuleRecord, Recording, StackRow
from unchoke_doctor.source_lines import SourceLine, add_cells, line_text, source_line

MAKING = ("getitem", "collate")
"""Phases in which samples are made and put together, in whichever process."""
NETWORK = ("forward", "backward", "optimizer")
_NOT_TRAINING = ("setup", "after", "watcher")
_INNER = re.compile(r"(\.<locals>)?(^|\.)<(listcomp|genexpr|dictcomp|setcomp|lambda)>")
_SUMMED = (*FETCHED, "iterators", "startup_s", "batches", "samples", "wait_s")
_TORCH_LOADING = "torch.utils.data"


def per(amount: float, number: float) -> float:
    return amount / number if number else 0.0


@dataclass(frozen=True)
class Place:
    """A line of the user's."""

    file: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True)
class Look:
    """What was seen at one place, and the seconds of the training it stands for."""

    row: StackRow
    seconds: float

    @cached_property
    def chain(self) -> list[Place]:
        """The lines of the user's own that were running, innermost first."""
        inner = [Place(self.row.file, self.row.line, self.row.function)] if self.row.file else []
        return [*inner, *(Place(*caller) for caller in self.row.callers)]


@dataclass(frozen=True)
class LineGroup:
    """Looks at one function, or at one line of a function that trains."""

    looks: tuple[Look, ...]
    span_s: float

    @cached_property
    def seconds(self) -> float:
        return sum(look.seconds for look in self.looks)

    @property
    def share(self) -> float:
        return min(1.0, per(self.seconds, self.span_s))

    @cached_property
    def row(self) -> StackRow:
        """The row that took most at the costliest line, at the piece of it that took most."""
        span = _most((look.row.span, look.seconds) for look in self.at_line)
        return max((look for look in self.at_line if look.row.span == span), key=lambda look: look.seconds).row

    @cached_property
    def at_line(self) -> tuple[Look, ...]:
        """Looks at the costliest statement; those of one loop compete with the others together."""
        blocks = {look.row: _block_of(look.row) for look in self.looks}
        block = _most((blocks[look.row], look.seconds) for look in self.looks)
        looks = [look for look in self.looks if blocks[look.row] == block]
        line = _most((_line_of(look.row), look.seconds) for look in looks)
        return tuple(look for look in looks if _line_of(look.row) == line)

    @cached_property
    def source(self) -> SourceLine | None:
        return _source_of(self.row)

    @cached_property
    def place(self) -> Place:
        """The first line of the statement that costs most."""
        return Place(self.row.file, _line_of(self.row), plain(self.row.function))

    @cached_property
    def stage(self) -> str:
        return stage_name(_most((look.row.stage, look.seconds) for look in self.looks), self.phase)

    @cached_property
    def phase(self) -> str:
        return str(_most((look.row.phase, look.seconds) for look in self.looks))

    @cached_property
    def library(self) -> str:
        """What the costliest line had called most of the time, as `module:function`; empty for its own doing."""
        return str(_most((look.row.library, look.seconds) for look in self.at_line))

    @cached_property
    def caller(self) -> Place | None:
        """The nearest line of another function of the user's that led here, where most of the time came from."""
        key = (self.row.file, plain(self.row.function))
        found: Counter[Place] = Counter()
        for look in self.looks:
            for place in look.chain[1:]:
                if (place.file, plain(place.function)) != key:
                    found[place] += look.seconds  # type: ignore[assignment]
                    break
        return found.most_common(1)[0][0] if found else None

    def share_in(self, *states: str) -> float:
        """The share of the costliest line's time that was spent running Python, sleeping, …"""
        return per(
            sum(look.seconds for look in self.at_line if look.row.state in states), sum(look.seconds for look in self.at_line)
        )

    def to_dict(self, steps: int) -> dict[str, Any]:
        place, caller = self.place, self.caller
        return {
            **asdict(place), "text": line_text(place.file, place.line)[:120], "stage": self.stage, "share": round(self.share, 4),
            "seconds": self.seconds, "step_s": per(self.seconds, max(1, steps)), "library": self.library,
            "caller": {**asdict(caller), "text": line_text(caller.file, caller.line)[:120]} if caller else None,
        }  # fmt: skip


def plain(function: str) -> str:
    """The function that a comprehension or a lambda stands in."""
    return _INNER.sub("", function) or "<module>"


def stage_name(stage: str, phase: str) -> str:
    """The stage of a step that a person knows."""
    if phase in ("evaluate", "checkpoint"):
        return {"evaluate": "evaluation"}.get(phase, phase)
    if phase in MAKING:
        return "loading"
    if stage in NETWORK:
        return stage
    return {"wait": "waiting for data", "handover": "loading", "checkpoint": "checkpoint"}.get(
        stage, {"step": "loop", "setup": "script"}.get(phase, "between steps")
    )


def _most(pairs: Iterable[tuple[Any, float]]) -> Any:
    found: Counter[Any] = Counter()
    for value, seconds in pairs:
        found[value] += seconds  # type: ignore[assignment]
    return found.most_common(1)[0][0] if found else ""


@dataclass(frozen=True)
class Headroom:
    """Seconds of a step as it is and with loading for free, both without evaluation and checkpoints.

    `free_s` is what the replay took, but never less than what is left of a step once all waiting and all work of workers is gone.
    """

    step_s: float
    free_s: float
    steps: int

    @property
    def share(self) -> float:
        return max(0.0, 1 - self.free_s / self.step_s) if self.step_s else 0.0


class Figures:
    """A recording, with what the rules and the report ask of it."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.steps, self.facts = recording, recording.steps, recording.facts
        add_cells(recording.facts.get("cells") or {})
        self.num_steps = len(recording.steps)
        self.device = str(recording.machine.get("device") or "")
        self.cores = int(recording.machine.get("cores") or 1)

    # --- seconds -------------------------------------------------------------------------------------------------------------

    @cached_property
    def span_s(self) -> float:
        """From the first batch to the last step, with evaluation and checkpoints after it; without steps all that was seen."""
        if not self.num_steps:
            return sum(row.seconds for row in self._main_rows)
        return self.steps.total("wall_s") + sum(self.steps.after(name) for name in ("evaluate_s", "checkpoint_s"))

    def total_s(self, column: str) -> float:
        after = self.steps.after(column) if column in ("evaluate_s", "checkpoint_s") else 0.0
        return min(self.steps.total(column) + after, self.span_s)

    @cached_property
    def forward_s(self) -> float:
        return sum(
            look.seconds for look in self.looks if look.row.stage == "forward" and look.row.phase not in (*MAKING, "evaluate")
        )

    @cached_property
    def compute_s(self) -> float:
        """Forward, backward and optimizer of all steps."""
        return min(self.span_s, self.forward_s + self.total_s("backward_s") + self.total_s("optimizer_s"))

    @cached_property
    def stages(self) -> dict[str, float]:
        """Seconds of all steps by stage: what was timed for each step, and the rest by what was seen."""
        timed = {"waiting for data" if self.beside else "loading": "wait_s", "backward": "backward_s", "optimizer": "optimizer_s"}
        found = {name: self.total_s(column) for name, column in timed.items()}
        zeroing_s = sum(look.seconds for look in self.looks if look.row.stage == "optimizer") - found["optimizer"]
        found["optimizer"] += max(0.0, min(zeroing_s, self.span_s - sum(found.values())))
        found |= {"evaluation": self.total_s("evaluate_s"), "checkpoint": self.total_s("checkpoint_s")}
        seen: dict[str, float] = {}
        for look in self.looks:
            stage = stage_name(look.row.stage, look.row.phase)
            if stage not in found and stage not in ("loading", "waiting for data"):
                seen[stage] = seen.get(stage, 0.0) + look.seconds
        rest_s, seen_s = max(0.0, self.span_s - sum(found.values())), sum(seen.values())
        found |= {name: seconds * per(rest_s, seen_s) for name, seconds in seen.items()}
        if not seen and rest_s:
            found["other"] = rest_s
        return {name: seconds for name, seconds in sorted(found.items(), key=lambda pair: -pair[1]) if seconds > 0}

    # --- loading -------------------------------------------------------------------------------------------------------------

    @cached_property
    def loaders(self) -> list[LoaderRecord]:
        """The loaders that gave batches; those that one line makes again, for every epoch for instance, are one."""
        found: dict[tuple[object, ...], LoaderRecord] = {}
        for loader in self.recording.loaders:
            key: tuple[object, ...] = (loader.made_file, loader.made_line, loader.dataset, loader.evaluation, loader.num_workers)
            key = key if loader.made_line else (loader.number,)
            if loader.batches and key in found:
                sums = {name: getattr(found[key], name) + getattr(loader, name) for name in _SUMMED}
                found[key] = replace(found[key], **sums, persistent=False)
            elif loader.batches:
                found[key] = loader
        return list(found.values())

    @cached_property
    def beside(self) -> list[LoaderRecord]:
        """Loaders whose samples are made in worker processes."""
        return [loader for loader in self.loaders if loader.num_workers]

    @cached_property
    def trained(self) -> LoaderRecord | None:
        """The loader that most training samples came from."""
        return max((one for one in self.loaders if not one.evaluation), key=lambda loader: loader.samples, default=None)

    @cached_property
    def epochs(self) -> float:
        """Passes over the training data, at least one."""
        loader = self.trained
        if loader is None:
            return 1.0
        samples = self.steps.total("samples") or loader.samples
        return max(1.0, samples / loader.num_samples if loader.num_samples else float(loader.iterators))

    @cached_property
    def made_samples(self) -> int:
        return sum(loader.fetched_samples for loader in self.loaders)

    @cached_property
    def making_s(self) -> float:
        """Seconds of making samples, over all processes."""
        return sum(loader.fetch_s for loader in self.loaders)

    @cached_property
    def waited_s(self) -> float:
        """Seconds of waiting for workers, without those of starting them."""
        return sum(max(0.0, loader.wait_s - loader.startup_s) for loader in self.beside)

    @cached_property
    def inline_s(self) -> float:
        """Seconds of making samples in the process that trains."""
        return sum(loader.fetch_s for loader in self.loaders if not loader.num_workers)

    @cached_property
    def headroom(self) -> Headroom | None:
        """The step as it was against the replayed one; None without a replay that measured something."""
        replay, steps = self.recording.replay, self.steps.steady()
        if replay is None or not replay.steps or not len(steps):
            return None
        step_s = steps.mean("wall_s") - steps.mean("evaluate_s") - steps.mean("checkpoint_s")
        in_workers_s = per(sum(loader.fetch_s for loader in self.beside if not loader.evaluation), self.num_steps)
        least_s = step_s - steps.mean("wait_s") - in_workers_s  # a busy machine may have become quieter for the replay
        return Headroom(step_s, min(max(replay.step_s, least_s), step_s), replay.steps)

    @cached_property
    def loading_limit_s(self) -> float:
        """What all of loading could save at the most: the time the loop stood still for it, or more if the replay shows more."""
        if not self.loaders:
            return self.span_s
        room, stood_s = self.headroom, self.inline_s + sum(loader.startup_s for loader in self.beside)
        if room is None:
            return stood_s + self.waited_s
        return max(stood_s, (room.step_s - room.free_s) * self.num_steps + self.total_s("evaluate_s"))

    def on_path_s(self, making_s: float) -> float:
        """What the training would save if so many seconds of making samples fell away.

        Without workers all of them. With workers the loop waits for as long as making takes longer than the step beside it, so
        the first seconds to go save most: that is put to the scale of the waiting that was seen.
        """
        made_s = sum(loader.fetch_s for loader in self.beside)
        if not made_s:
            return min(making_s, self.making_s if self.loaders else self.span_s)
        workers = max(loader.num_workers for loader in self.beside)
        rest_s = max(0.0, self.span_s - self.waited_s)
        share = per(min(making_s, made_s), made_s)
        expected_s = max(0.0, made_s / workers - rest_s)
        left_s = max(0.0, (1 - share) * made_s / workers - rest_s)
        return self.waited_s * (1 - left_s / expected_s if expected_s else share)

    @cached_property
    def free_cores(self) -> float:
        """Cores that others left for this training, as the system counted them: one at least."""
        own_s = self.steps.total("user_s") + self.steps.total("system_s")
        own_s += sum(loader.fetch_user_s + loader.fetch_system_s for loader in self.beside)
        others = max(0.0, float(self.recording.machine.get("busy_cores") or 0.0) - per(own_s, self.span_s))
        return max(1.0, self.cores - others)

    # --- calls, networks -----------------------------------------------------------------------------------------------------

    def calls(self, *kinds: str, phases: Collection[str] = ()) -> list[CallRow]:
        return self.recording.calls(*kinds, phases=phases or self.making)

    @cached_property
    def making(self) -> Collection[str]:
        """Phases in which samples are made: without a DataLoader the loop makes them itself."""
        return MAKING if self.loaders else (*MAKING, "step", "outside")

    @cached_property
    def used_sides(self) -> tuple[int, ...]:
        """The two sides of a sample as it is used: as its loader gives it, without one as the network gets it."""
        if self.trained is not None:
            return self.trained.used_sides
        roots = [one for one in self.trained_parts if one.depth == 0 and len(one.input_shape) >= 4]
        return tuple(sorted(roots[0].input_shape[-3:])[-2:]) if roots else ()

    @cached_property
    def trained_parts(self) -> list[ModuleRecord]:
        return [module for module in self.recording.modules if not module.in_evaluation]

    def forward_share(self, module: ModuleRecord) -> float:
        """A part's share of the forward pass, as it was timed in a few steps."""
        return min(1.0, per(module.seconds_per_step, sum(one.seconds_per_step for one in self.trained_parts if one.depth == 0)))

    @cached_property
    def accumulates(self) -> float:
        """Backward calls for each optimizer step: more than one where gradients are accumulated over micro-batches."""
        return max(1.0, per(self.steps.total("backwards"), self.num_steps))

    def step_s(self, part: slice) -> float:
        """The median step of some of the rows."""
        values = self.steps.each("wall_s")[part]
        return statistics.median(values) if values else 0.0

    # --- looks ---------------------------------------------------------------------------------------------------------------

    @cached_property
    def _main_rows(self) -> list[StackRow]:
        if not self.num_steps:
            rows = [row for row in self.recording.main.samples if row.phase != "watcher" and row.stage != "import"]
            return [row for row in rows if "importlib" not in row.library]
        return [row for row in self.recording.main.samples if row.phase not in _NOT_TRAINING]

    @cached_property
    def looks(self) -> list[Look]:
        """The looks at the training, worker processes in the place of the waiting for them."""
        rows = self._main_rows
        scale = per(self.span_s, sum(row.seconds for row in rows))
        waiting = [row for row in rows if row.stage == "wait" and row.library.startswith(_TORCH_LOADING)]
        made = [row for process in self.recording.workers for row in process.samples if row.phase in MAKING]
        users = [row for row in made if row.file and not row.library.startswith(_TORCH_LOADING)] or made
        wait_s, users_s = scale * sum(row.seconds for row in waiting), sum(row.seconds for row in users)
        replaced_s = min(wait_s, self.waited_s) if users_s else 0.0
        found = [Look(row, scale * row.seconds) for row in rows if row not in waiting]
        found += [Look(row, scale * row.seconds * (1 - per(replaced_s, wait_s))) for row in waiting]
        return _settled(found + [Look(row, row.seconds * per(replaced_s, users_s)) for row in users])

    @cached_property
    def looping(self) -> set[tuple[str, str]]:
        """Functions that hold a training loop, as file and name: their lines are told apart."""
        loops = {
            (row.file, plain(row.function))
            for row in self._main_rows
            if row.stage in ("backward", "optimizer") or (row.stage == "wait" and row.library.startswith(_TORCH_LOADING))
        }
        return loops | {(row.file, row.function) for row in self._main_rows if row.function == "<module>"}

    @cached_property
    def groups(self) -> list[LineGroup]:
        """The user's lines, the costliest first; what an evaluation or a checkpoint does is one group each.

        A line such as `trainer.train()` holds the backward pass of lines in the forward pass: they come in its place.
        """
        groups = self.grouped(self.looks)
        own = {group.place for group in groups if group.source and any("backward" in name for name, _ in group.source.all_calls)}
        trainers = {group.place for group in groups if group.stage == "optimizer"} - own
        held = {group.place: group.seconds for group in groups if group.stage == "backward" and group.place in trainers}
        again = per(sum(held.values()), sum(group.seconds for group in groups if group.stage == "forward"))

        def caused_s(group: LineGroup) -> float:
            if group.stage == "backward" and group.place in held:
                return 0.0
            return group.seconds * (1 + again if group.stage == "forward" else 1)

        return sorted(groups, key=caused_s, reverse=True)

    def grouped(self, looks: Sequence[Look]) -> list[LineGroup]:
        found: dict[tuple[object, ...], list[Look]] = {}
        for look in looks:
            if not look.row.file:
                continue
            function = plain(look.row.function)
            key: tuple[object, ...] = (look.row.file, function, look.row.phase in ("evaluate", "checkpoint"))
            if (look.row.file, function) in self.looping:  # a framework's one line holds all stages
                key = (*key, _line_of(look.row), stage_name(look.row.stage, look.row.phase))
            found.setdefault(key, []).append(look)
        groups = [LineGroup(tuple(group), self.span_s) for group in found.values()]
        return sorted(groups, key=lambda group: -group.seconds)

    def common_line(self, phase: str, share: float = 0.6) -> Place:
        """The innermost line under which most of a phase ran: of an evaluation its own loop, or the call that starts it."""
        inside: Counter[Place] = Counter()
        depth: dict[Place, int] = {}
        looks = [look for look in self.looks if look.row.phase == phase and look.row.file]
        for look in looks:
            for number, place in enumerate(reversed(look.chain)):
                inside[place] += look.seconds  # type: ignore[assignment]
                depth[place] = max(depth.get(place, 0), number)
        whole_s = sum(look.seconds for look in looks)
        common = [
            place for place, seconds in inside.items() if seconds >= share * whole_s and not place.function.endswith(".forward")
        ]
        return max(common, key=lambda place: depth[place], default=Place())

    def line_of_stage(self, *stages: str) -> Place:
        """The user's line that took most of a stage."""
        looks = [look for look in self.looks if look.row.stage in stages and look.row.file and look.row.phase not in MAKING]
        groups = self.grouped(looks)
        return groups[0].place if groups else Place()


def _settled(looks: Sequence[Look]) -> list[Look]:
    """The looks, those that came late moved to where the time went.

    Who looks waits while a line runs Python, and is let in where the thread next gives the interpreter away: at a native
    call. So a look that had to wait, at a piece of a line that was met in native code as well, tells of Python that ran just
    before, in the same function or in one that it called. It is shared out among the looks there that were let in by force,
    twice theirs at most.
    """
    native = {(look.row.file, look.row.line, look.row.span) for look in looks if look.row.state == "native" and look.row.file}
    late: dict[tuple[str, str, str], list[Look]] = {}
    forced: dict[tuple[str, str, str], list[Look]] = {}
    for look in looks:
        row = look.row
        if row.state != "python" or not row.file or row.library or row.stage in NETWORK:
            continue
        if (row.file, row.line, row.span) in native:
            late.setdefault((row.phase, row.file, plain(row.function)), []).append(look)
        else:
            for key in {(row.phase, place.file, plain(place.function)) for place in look.chain}:
                forced.setdefault(key, []).append(look)
    moved: dict[int, float] = {}
    for key, some in late.items():
        late_s, forced_s = sum(look.seconds for look in some), sum(look.seconds for look in forced.get(key, ()))
        share = min(1.0, per(forced_s, late_s))
        for look in some:
            moved[id(look)] = moved.get(id(look), 0.0) - share * look.seconds
        for look in forced.get(key, ()):
            moved[id(look)] = moved.get(id(look), 0.0) + share * late_s * per(look.seconds, forced_s)
    return [Look(look.row, look.seconds + moved[id(look)]) if id(look) in moved else look for look in looks]


def _source_of(row: StackRow) -> SourceLine | None:
    return source_line(row.file, row.line, row.span, called=bool(row.library))


def _line_of(row: StackRow) -> int:
    """The first line of the statement, so that a call over several lines is one."""
    source = _source_of(row)
    return row.line if source is None or hasattr(source.statement, "body") else source.statement.lineno


def _block_of(row: StackRow) -> int:
    """The outermost loop of its function that the line stands in, or its own line."""
    source = _source_of(row)
    loops = [loop for loop in source.loops if isinstance(loop, ast.For | ast.While)] if source is not None else []
    return loops[-1].lineno if loops else _line_of(row)


def made_at(loader: LoaderRecord) -> Place:
    """The line that made the loader; where it is unknown, that of its samples."""
    if loader.made_file:
        return Place(loader.made_file, loader.made_line, "DataLoader")
    return Place(loader.dataset_file, loader.dataset_line, f"{loader.dataset}.__getitem__")
