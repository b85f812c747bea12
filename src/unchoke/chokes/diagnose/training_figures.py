"""Figures that several rules of the diagnosis need, worked out once from a recording.

In: a `Recording`. Out: seconds, by the places where they were spent, on the scale of the whole training. Loading in workers only
costs what the step waited for: `on_path_s` turns seconds of making samples into seconds of the run. Nothing is judged here.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection
from functools import cached_property
from typing import Any

from unchoke.chokes.breakdown import trained_s
from unchoke.chokes.recording import CallRow, LoaderRecord, Recording, StackRow, Steps
from unchoke.core.findings import CodeLine, per

MAKING = ("getitem", "collate")
_DECODE_SLACK, _OPENING_S = 1.5, 1e-4
"""What looks at decoding may exceed the timed calls by, and what opening a picture takes beside them."""
_NEARLY_ALL, _STRAYED = 0.7, 0.8
_OWN = ("python", "transform", "other", "stat", "list", "open", "read")
"""Stages of the sampler that may belong to a line of the user's which makes some call again and again."""


class TrainingFigures:
    """A recording, with what rules ask of it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.steps: Steps = recording.steps
        self.facts = recording.facts

    @cached_property
    def span_s(self) -> float:
        """From the first batch asked for to the last step, and what evaluation and checkpoints took after it."""
        return trained_s(self.recording)

    @cached_property
    def num_steps(self) -> int:
        return len(self.steps)

    @cached_property
    def cores(self) -> int:
        return int(self.recording.machine.get("cores") or 1)

    @cached_property
    def loaders(self) -> list[LoaderRecord]:
        return [loader for loader in self.recording.loaders if loader.batches]

    @cached_property
    def trained(self) -> LoaderRecord | None:
        """The loader that most training samples came from."""
        return max(self.recording.trained_loaders, key=lambda loader: loader.samples, default=None)

    @cached_property
    def epochs(self) -> float:
        """Passes over the training data, at least one."""
        loader = self.trained
        if loader is None:
            return 1.0
        seen = loader.samples / loader.num_samples if loader.num_samples else float(loader.iterators)
        return max(1.0, seen)

    @cached_property
    def made_samples(self) -> int:
        """Samples that were made, for training and for evaluation."""
        return sum(loader.fetched_samples for loader in self.loaders)

    @cached_property
    def used_px(self) -> int | None:
        """Pixels of a training sample as the loop gets it."""
        return self.trained.used_px if self.trained else None

    @cached_property
    def rest_s(self) -> float:
        """What the training takes beside making samples in its own process."""
        return max(0.0, self.span_s - sum(loader.fetch_s for loader in self.loaders if not loader.num_workers))

    @cached_property
    def making_s(self) -> float:
        """Seconds of making samples, over all processes."""
        return sum(loader.fetch_s for loader in self.loaders)

    @cached_property
    def loading_s(self) -> float:
        """Seconds in which the run stood still for loading; starting workers, which is told apart, is not in them."""
        return self.waited_s + sum(loader.fetch_s for loader in self.loaders if not loader.num_workers)

    @cached_property
    def waited_s(self) -> float:
        """Seconds of waiting for workers, without those of starting them."""
        return sum(max(0.0, loader.wait_s - loader.startup_s) for loader in self.loaders if loader.num_workers)

    def on_path_s(self, making_s: float) -> float:
        """What the run would save if so many seconds of making samples fell away.

        Without workers all of them. With workers the run waits for as long as making takes longer than the step beside it, so the
        first seconds to go save most: that is put to the scale of the waiting that was seen.
        """
        beside = [loader for loader in self.loaders if loader.num_workers]
        made_s = sum(loader.fetch_s for loader in beside)
        if not made_s:
            return min(making_s, self.making_s)
        workers = max(loader.num_workers for loader in beside)
        rest_s = max(0.0, self.span_s - self.waited_s)

        def waiting_s(left_s: float) -> float:
            return max(0.0, left_s / workers - rest_s)

        share = per(min(making_s, made_s), made_s)
        expected_s = waiting_s(made_s)
        return self.waited_s * (1 - waiting_s((1 - share) * made_s) / expected_s if expected_s else share)

    def with_strays_s(self, making_s: float, *own: CodeLine) -> float:
        """Seconds of making samples at its `own` lines, and of looks that strayed from there if that is nearly all of them.

        A thread that held the interpreter is often met on the next line that lets go; what was timed at other lines, and joining
        samples to batches, did not stray.
        """
        if making_s < _NEARLY_ALL * self.making_s:
            return making_s
        kinds = ("decode", "resize", "transform", "to_array", "npz", "csv", "open", "read", "raster_read", "raster_open")
        places = {(line.file, line.line) for line in own}
        left_s = self.making_s - sum(row.seconds for row in self.calls(*kinds) if (row.file, row.line) not in places)
        joining_s = sum(loader.collate_s for loader in self.loaders)
        return max(0.0, min(making_s, left_s)) + _STRAYED * max(0.0, left_s - making_s - joining_s)

    def calls(self, *kinds: str, phases: Collection[str] = MAKING) -> list[CallRow]:
        """Calls of these kinds, slowest first."""
        return self.recording.calls(*kinds, phases=phases)

    def cost_s(self, row: CallRow) -> float:
        """Seconds of the run that calls at one place cost."""
        return self.on_path_s(row.seconds) if row.phase in MAKING else row.seconds

    def around_s(self, *rows: CallRow) -> float:
        """What a function costs that makes many small calls: the calls, or all that was sampled there if they fill it."""
        first, calls_s = rows[0], sum(row.seconds for row in rows)
        near_s = self.sampled_s(first.phase, stages=_OWN, file=first.file, function=first.function)
        spent_s = max(calls_s, near_s) if calls_s >= 0.15 * near_s else calls_s
        if first.phase not in MAKING:
            return spent_s
        return self.on_path_s(0.98 * self.with_strays_s(spent_s, *map(CodeLine.of, rows)))

    def sampled(self, *phases: str, stages: Collection[str] = ()) -> list[tuple[StackRow, float]]:
        """What the stack sampler saw in the main process and its workers, by place, with seconds; most first."""
        found: dict[tuple[str, str, str, int], tuple[StackRow, float]] = {}
        for row, seconds in self.looks:
            if row.phase in phases and (not stages or row.stage in stages):
                key = (row.stage, row.phase, row.file, row.line)
                before_s = found[key][1] if key in found else 0.0
                found[key] = (row, before_s + seconds)
        return sorted(found.values(), key=lambda pair: -pair[1])

    def sampled_s(self, *phases: str, stages: Collection[str] = (), file: str = "", function: str = "") -> float:
        """Seconds that the sampler saw in these phases and stages, of one function where it is given."""
        return sum(
            seconds
            for row, seconds in self.sampled(*phases, stages=stages)
            if (not file or row.file == file) and (not function or row.function == function)
        )

    @cached_property
    def looks(self) -> list[tuple[StackRow, float]]:
        """Every look at the training with the seconds it stands for, of the run or, in workers, of making samples.

        Looks come later where the interpreter is busy and less often where they cost more, so each part is brought to the scale
        of what was timed: making samples, joining them to batches, the network's calls, backward and optimizer, and all the
        rest. Looks at torch's own loop over the samples of a batch are left out, since a thread that has just left the user's
        code is met there.
        """
        main, workers = self.recording.main, self.recording.workers
        own = [loader for loader in self.loaders if not loader.num_workers]
        others = [loader for loader in self.loaders if loader.num_workers]
        rows = [row for row in main.samples if row.phase not in (*MAKING, "setup", "after", "watcher")]
        left_s = self.rest_s - sum(row.seconds for row in self.calls("gc", phases=("step", "outside")))
        computing, beside = [row for row in rows if is_timed(row)], [row for row in rows if not is_timed(row)]
        computed_s = min(self.compute_s, left_s) if beside else left_s
        found = _scaled(computing, computed_s) + _scaled(beside, left_s - computed_s if computing else left_s)
        for processes, loaders in (((main,), own), (workers, others)):
            made = [row for process in processes for row in process.samples if row.phase in MAKING]
            joining_s = sum(loader.collate_s for loader in loaders)
            getting_s = sum(loader.fetch_s for loader in loaders) - joining_s
            got = [row for row in made if row.phase == "getitem"]
            users = [row for row in got if not row.library.startswith("torch.utils.data")]
            found += self._settled(_scaled(users or got, getting_s))
            found += _scaled([row for row in made if row.phase == "collate"], joining_s)
        return found

    def _settled(self, looks: list[tuple[StackRow, float]]) -> list[tuple[StackRow, float]]:
        """Looks at decoding that came late, while another line held the interpreter: what was timed says how long it took."""
        timed: dict[tuple[str, int], float] = {}
        for call in self.calls("open", "decode", "resize", "transform", "to_array", phases=("getitem",)):
            place = call.file, call.line
            timed[place] = timed.get(place, 0.0) + _DECODE_SLACK * call.seconds + _OPENING_S * call.count

        def is_late(row: StackRow) -> bool:
            return row.stage == "decode" and row.state == "python" and (row.file, row.line) in timed

        def is_python(row: StackRow) -> bool:
            return row.state == "python" and row.stage != "decode"

        seen: dict[tuple[str, int], float] = {}
        for row, seconds in looks:
            if is_late(row):
                seen[row.file, row.line] = seen.get((row.file, row.line), 0.0) + seconds
        kept = {place: min(1.0, per(timed[place], seconds)) for place, seconds in seen.items()}
        excess_s = sum(seconds * (1 - kept[place]) for place, seconds in seen.items())
        others_s = sum(seconds for row, seconds in looks if is_python(row))
        if not excess_s or not others_s:
            return looks
        raised = 1 + excess_s / others_s
        return [
            (row, seconds * (kept[row.file, row.line] if is_late(row) else raised if is_python(row) else 1.0))
            for row, seconds in looks
        ]

    def common_line(self, phase: str, share: float = 0.6) -> CodeLine | None:
        """The innermost line under which most of a phase ran: of an evaluation the call that starts it, or its own loop."""
        inside: Counter[tuple[str, int, str]] = Counter()
        depth: dict[tuple[str, int, str], int] = {}
        total = 0
        for row in self.recording.main.samples:
            if row.phase == phase and row.file:
                lines = [(row.file, row.line, row.function), *row.callers]
                total += row.count
                for place, line in enumerate(reversed(lines)):
                    inside[line] += row.count
                    depth[line] = max(depth.get(line, 0), place)
        common = [line for line, count in inside.items() if count >= share * total and not line[2].endswith(".forward")]
        return CodeLine(*max(common, key=lambda line: depth[line])) if common else None

    @cached_property
    def peeks(self) -> list[dict[str, Any]]:
        """Arrays that were seen at lines of making samples: `file`, `line`, `name`, `px`, `dtype` and in words `text`."""
        return [row for row in self.facts.get("peeks") or () if isinstance(row, dict)]

    @cached_property
    def made_batches(self) -> int:
        return sum(loader.fetches for loader in self.loaders)

    def total_s(self, column: str) -> float:
        """Seconds of one part of all steps, and of what came after the last; never more than the training took."""
        after = self.steps.after(column) if column in ("evaluate_s", "checkpoint_s") else 0.0
        found_s = self.steps.total(column) + after
        return min(found_s, self.span_s - self.compute_s) if column == "evaluate_s" else min(found_s, self.span_s)

    @cached_property
    def compute_s(self) -> float:
        """Forward, backward and optimizer of all steps."""
        return sum(self.total_s(name) for name in ("forward_s", "backward_s", "optimizer_s"))

    @cached_property
    def step_place(self) -> CodeLine:
        """The line of the user's code under which most of the forward and backward was sampled."""
        rows = [row for row, _ in self.sampled("step", stages=("backward", "forward", "optimizer")) if row.file]
        return CodeLine.of(rows[0]) if rows else CodeLine()

    @cached_property
    def busy_cores(self) -> float:
        """How many cores the training process kept busy while it was not waiting for workers."""
        in_workers_s = sum(loader.wait_s for loader in self.loaders if loader.num_workers)
        wall_s = self.steps.total("wall_s") - in_workers_s
        return (self.steps.total("user_s") + self.steps.total("system_s")) / wall_s if wall_s > 0 else 1.0

    def typical(self, column: str, part: slice) -> float:
        """The median of a column over some of the steps."""
        values = [value for value in self.steps.column(column)[part] if value is not None]
        return statistics.median(values) if values else 0.0


def is_timed(row: StackRow) -> bool:
    """Whether a look is inside what hooks time in every step: a network called from outside, its backward, the optimizer.

    Functions of torch.nn that the loop itself calls are beside it: a loss, a pooling, gradients that are clipped.
    """
    functions = (row.function, *(function for _, _, function in row.callers))
    called = row.library.startswith(("torch.nn.functional:", "torch.nn.utils."))
    return row.stage in ("forward", "backward", "optimizer") and (
        not called or any(function.endswith(".forward") for function in functions)
    )


def _scaled(rows: list[StackRow], seconds: float) -> list[tuple[StackRow, float]]:
    each_s = per(max(0.0, seconds), sum(row.count for row in rows))
    return [(row, row.count * each_s) for row in rows]


def made_at(loader: LoaderRecord) -> CodeLine:
    """The line that made the loader itself; where it is unknown, that of its samples."""
    return CodeLine(loader.made_file, loader.made_line, "DataLoader") if loader.made_file else loader_place(loader)


def loader_place(loader: LoaderRecord) -> CodeLine:
    """Where a loader's samples are made."""
    return CodeLine(loader.dataset_file, loader.dataset_line, f"{loader.dataset}.__getitem__")
