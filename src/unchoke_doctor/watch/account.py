"""The account of a training loop: which second of the main thread belongs to which part of which step. Bookkeeping, no torch.

In come the moments that hooks see: a region begins or ends, a batch is asked for and handed over, a backward, a step of an
optimizer. Out come one row per step and a last one for what came after. Regions are exclusive: a second of backward in the
closure of an optimizer is not the optimizer's. Whether batches are trained on shows only later, by a backward or its absence:
until then their time stands under a mark, and becomes evaluation if none follows. The time of the forward pass is not kept
here: a hook on every module call would cost more than all others together, and the sampler's stacks show it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from unchoke_doctor.watch import usage

REGIONS = ("wait_s", "backward_s", "optimizer_s", "evaluate_s", "checkpoint_s")
COUNTS = ("samples", "batches", "backwards")
USED = ("minor_faults", "user_s", "system_s")
COLUMNS = ("end_s", "wall_s", *REGIONS, *COUNTS, *USED, "rss_bytes", "loss", "steps")
"""`steps`: how many optimizer steps a row sums up; more than one once there are very many."""

_NOTHING: dict[str, float] = {**dict.fromkeys(REGIONS, 0.0), **dict.fromkeys(COUNTS, 0)}
_RSS_EVERY_S = 0.05
_LATEST = {COLUMNS.index(name) for name in ("end_s", "rss_bytes", "loss")}
_MAX_ROWS = 4_000
_ASKS_WITHOUT_BACKWARD = 2  # loops that fetch one batch ahead ask twice before the first backward

Row = list[Any]


class Iteration:
    """One pass over a DataLoader. `trained` is None until it shows."""

    __slots__ = ("asked", "trained")

    def __init__(self) -> None:
        self.asked = 0
        self.trained: bool | None = None


class Account:
    """Where the time of one thread goes, from the first batch or step on."""

    def __init__(self, *, rss_bytes: Callable[[], int] = int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.thread = threading.main_thread().ident
        self.loss: float | None = None
        self.num_steps = 0
        self.num_asked = 0
        self.began_s: float | None = None
        self.on_step: Callable[[], None] | None = None
        self._rss_bytes = rss_bytes
        self._clock = clock
        self._clock_began_s = clock()
        self._stack: list[list[Any]] = []
        self._sums = _NOTHING.copy()
        self._rss = 0
        self._rss_at_s = -_RSS_EVERY_S
        self._last_end_s = self._clock_began_s
        self._used = usage.of_process()
        self._rows: list[Row] = []
        self._steps_per_row = 1
        self._taking_part: set[int] = set()
        self._mark: tuple[float, dict[str, float]] | None = None
        self._evaluating: Iteration | None = None
        self._undecided: list[Iteration] = []

    def enter(self, region: str) -> None:
        """From now on time belongs to `region`, until `leave`."""
        self._stack.append([region, self._clock(), 0.0])

    def leave(self) -> float:
        """End the region entered last; how long it took, all in all."""
        if not self._stack:
            return 0.0
        region, began_s, within_s = self._stack.pop()
        took_s: float = self._clock() - began_s
        if region in self._sums:
            self._sums[region] += took_s - within_s
        if self._stack:
            self._stack[-1][2] += took_s
        return took_s

    @property
    def region(self) -> str:
        """The innermost region, or nothing."""
        return self._stack[-1][0] if self._stack else ""

    def count(self, name: str, number: int = 1) -> None:
        self._sums[name] += number

    def ask(self, iteration: Iteration, *, gradients: bool) -> None:
        """A batch is asked for; waiting begins."""
        now_s = self._clock()
        self.begin(now_s)
        if self._evaluating is not None:
            self._settle(now_s)
        if iteration.trained is None and (iteration.asked >= _ASKS_WITHOUT_BACKWARD or not gradients):
            iteration.trained = False
            if iteration in self._undecided:
                self._settle(now_s)
        if not iteration.trained and self._mark is None:
            self._mark = (now_s, dict(self._sums))
        if iteration.trained is False:
            self._evaluating = iteration
        elif iteration.trained is None and iteration not in self._undecided:
            self._undecided.append(iteration)
        iteration.asked += 1
        self.num_asked += 1
        self.enter("wait_s")

    def end(self, iteration: Iteration) -> None:
        """The pass is over: without a backward it was evaluation."""
        if iteration.trained is None:
            iteration.trained = False
            self._evaluating = iteration
        if self._evaluating is iteration:
            self._settle(self._clock())

    def judge(self) -> None:
        """Evaluation begins, with whatever is asked for until `judged`."""
        self.begin()
        if self._mark is None:
            self._mark, self._evaluating = (self._clock(), dict(self._sums)), Iteration()

    def judged(self) -> None:
        if self._evaluating is not None:
            self._settle(self._clock())

    def _settle(self, now_s: float) -> None:
        """What stands under the mark was evaluation."""
        self._sums = self._as_evaluation(now_s)
        self._mark, self._evaluating = None, None
        self._undecided = []

    def _as_evaluation(self, now_s: float) -> dict[str, float]:
        """The sums, if what stands under the mark was evaluation; checkpoints written meanwhile stay what they are."""
        if self._mark is None:
            return self._sums
        since_s, sums = self._mark
        saved_s = self._sums["checkpoint_s"]
        evaluated_s = sums["evaluate_s"] + now_s - since_s - (saved_s - sums["checkpoint_s"])
        return {**sums, "evaluate_s": evaluated_s, "checkpoint_s": saved_s}

    def trained(self) -> None:
        """A backward: whatever was asked for lately is trained on."""
        for iteration in self._undecided:
            iteration.trained = True
        if self._evaluating is not None:
            self._evaluating.trained = True
        self._mark, self._evaluating, self._undecided = None, None, []

    def begin(self, now_s: float | None = None) -> None:
        """The first batch or step: what came before is preparation."""
        if self.began_s is None:
            self.began_s = self._last_end_s = self._clock() if now_s is None else now_s
            self._sums = _NOTHING.copy()
            self._used = usage.of_process()

    def step(self, optimizer: int) -> None:
        """An optimizer has stepped; a second one that steps on the same batch belongs to the same step."""
        now_s, used = self._clock(), usage.of_process()
        if now_s - self._rss_at_s > _RSS_EVERY_S:
            self._rss, self._rss_at_s = self._rss_bytes(), now_s
        row = self._row(now_s, used, self._sums)
        if self._rows and not self._sums["batches"] and optimizer not in self._taking_part:
            self._rows[-1] = _sum_rows(self._rows[-1], [*row[:-1], 0])
        else:
            self._taking_part = set()
            self.num_steps += 1
            self._append(row)
        self._taking_part.add(optimizer)
        self._sums = _NOTHING.copy()
        self._last_end_s, self._used, self.loss = now_s, used, None
        if self.on_step is not None:
            self.on_step()

    def _row(self, now_s: float, used: usage.Usage, sums: dict[str, float]) -> Row:
        before = self._used
        spent = (used.minor_faults - before.minor_faults, used.user_s - before.user_s, used.system_s - before.system_s)
        return [now_s - self._clock_began_s, now_s - self._last_end_s, *sums.values(), *spent, self._rss, self.loss, 1]

    def _append(self, row: Row) -> None:
        if self._rows and self._rows[-1][-1] < self._steps_per_row:
            self._rows[-1] = _sum_rows(self._rows[-1], row)
            return
        self._rows.append(row)
        if len(self._rows) >= _MAX_ROWS:
            self._rows = [_sum_rows(first, second) for first, second in zip(self._rows[::2], self._rows[1::2], strict=True)]
            self._steps_per_row *= 2

    def to_dict(self) -> dict[str, Any]:
        """The rows, and under `tail` what came after the last step."""
        if self.began_s is None:
            return {"columns": list(COLUMNS), "rows": [], "tail": None}
        now_s = self._clock()
        sums = self._sums if self._evaluating is None else self._as_evaluation(now_s)
        tail = [*self._row(now_s, usage.of_process(), sums)[:-1], 0]
        rows = [[round(value, 6) if isinstance(value, float) else value for value in row] for row in list(self._rows)]
        return {"columns": list(COLUMNS), "rows": rows, "tail": tail}


def _sum_rows(first: Row, second: Row) -> Row:
    """Two neighbours as one: times and counts add up; of the clock, the memory and the loss the later value counts."""
    pairs = enumerate(zip(first, second, strict=True))
    return [later if place in _LATEST else earlier + later for place, (earlier, later) in pairs]
