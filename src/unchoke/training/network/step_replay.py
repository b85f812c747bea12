"""What a training could have done: its step on one batch that lies on the device, and one reader alone, when all is over.

In: a training that has ended, as a few functions that run a part of it again. Out: a `Ceiling`, or None after one too short to be
worth it. The result is taken already: what the repeated steps do to weights, moments, statistics and random state is put back or
thrown away. On a device a step is also run on a larger batch, where memory allows: what that takes hardly longer for, was spent
on handing over work and not on computing. A training's memory is measured before, so that none of this counts in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from unchoke.core.ceilings import CORES, DEVICE, Ceiling, PartRate
from unchoke.core.clock import during
from unchoke.core.errors import DataError
from unchoke.core.timeline import Timeline
from unchoke.machine.backend import device_room_bytes, is_cpu, one_thread, peak_reserved_bytes, synchronize
from unchoke.machine.detect import usable_cores
from unchoke.machine.measure_rate import READ_ALONE, LoneReader, allowed_s, measure_rate
from unchoke.training.data import Positions

_LARGER = 4
_STEPS_S = 0.5
"""What steps may take together, where a hundredth of the training is less."""
_LONGEST_FIRST_S = 2.0


@dataclass(frozen=True, eq=False)
class StepReplay:
    """`num_items` were trained in batches of `batch`, with `workers` threads that read `positions`.

    `step(n)` readies a step over n samples, `read` reads some as a reader does, `put_back` undoes what steps did.
    """

    num_items: int
    batch: int
    workers: int
    device: torch.device
    timeline: Timeline
    step: Callable[[int], Callable[[], int]] = field(repr=False)
    read: Callable[[Positions], object] = field(repr=False)
    positions: Positions = field(repr=False)
    put_back: Callable[[], None] = field(repr=False)
    recorded: bool = False
    """Whether steps were repeated from a recording: nothing to speak of was then spent on handing them over."""

    def measure(self, *, limit_bytes: int | None = None) -> Ceiling | None:
        """The rate of each part alone; a larger batch only where `limit_bytes`, or the device, has room for it."""
        wall_s = self.timeline.wall_s
        limit_s = allowed_s(wall_s)
        steps_s = wall_s - self.timeline.seconds("evaluate", "checkpoint", "profiler") - self.timeline.first_s
        steps_limit_s = max(_STEPS_S, limit_s) if limit_s else 0.0
        if 2 * steps_s * min(1.0, self.batch / self.num_items) >= steps_limit_s:  # one to warm up and one to measure
            return None
        starts = range(0, max(1, len(self.positions) - self.batch + 1), self.batch)
        reader = LoneReader(
            self._read_batch, [self.positions[start : start + self.batch] for start in starts[:READ_ALONE]], count=int
        )
        with one_thread():
            reading_per_s = measure_rate(reader, limit_s=limit_s)
        with torch.random.fork_rng(devices=[]):  # steps set torch's random state
            try:
                step_per_s = self._rate(self.batch, steps_limit_s)
                larger_per_s = self._rate(_LARGER * self.batch, limit_s) if self._has_room(limit_bytes) else 0.0
            finally:
                self.put_back()
        place = CORES if is_cpu(self.device) else DEVICE
        parts = [PartRate("step", max(step_per_s, larger_per_s), place=place)]
        if self.timeline.loading:  # rows that lie on the device are not read
            parts.append(PartRate("reading", reading_per_s, max(1, min(self.workers, usable_cores()))))
        larger = {"larger_batch": _LARGER * self.batch, "larger_per_s": larger_per_s} if larger_per_s else {}
        facts = {
            "batch": self.batch,
            "step_per_s": step_per_s,
            "readers": self.workers,
            "first_s": self.timeline.first_s,
            **larger,
        }
        return Ceiling.of(self.num_items, wall_s, parts, alone_s=reader.seconds(), facts=facts)

    def _rate(self, num: int, limit_s: float) -> float:
        return measure_rate(self.step(num), limit_s=limit_s, synchronize=partial(synchronize, self.device))

    def _has_room(self, limit_bytes: int | None) -> bool:
        """Whether a larger batch certainly fits: all the training took, as many times over, and as many samples. And whether it
        tells anything for little: a device builds kernels for another size, which takes about as long as the first step did.
        """
        if is_cpu(self.device) or self.recorded or len(self.positions) < _LARGER * self.batch:
            return False
        if self.timeline.first_s > _LONGEST_FIRST_S:
            return False
        room_bytes = min(device_room_bytes(self.device), limit_bytes or sys.maxsize)
        return _LARGER * (peak_reserved_bytes(self.device) or 0) <= room_bytes

    def _read_batch(self, batch: Positions) -> int:
        """As a thread of `feeding.py` reads it."""
        try:
            with during("collate"):
                self.read(batch)
        except DataError:  # a file that is gone by now: it was there for the training
            return 0
        return len(batch)
