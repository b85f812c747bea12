"""Rows that lie on the GPU: read once, and from then on a batch is a few numbers.

In: a source whose rows are numbered, and a training that is about to begin. Out: a source that shows the same inputs from rows
on the GPU, where they fit into half of what the training leaves free there. Rows are the bytes that the other source reads, so
nothing that is computed changes. Where they do not fit, batches are read ahead as ever.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.clock import Clock, Loading, during
from unchoke.core.events import Chosen
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import context_bytes, device_room_bytes, held_memory_bytes, is_cpu, synchronize
from unchoke.machine.memory.oom import out_of_memory
from unchoke.training.data import Positions, Problem
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.sources import DrawnSource, Draws, InputSource, NumberedSource

_SPARE_SHARE = 0.5
"""Of what the training leaves free: the rest is for what the plan did not foresee, and for recording a CUDA graph."""
_PIECE_BYTES = 16 * 2**20


class GpuRows(DrawnSource):
    """The inputs of `source`, whose rows `numbers` (ascending) lie in `rows` on the device."""

    def __init__(self, source: NumberedSource, numbers: Positions, rows: torch.Tensor) -> None:
        self._source, self._numbers, self.rows = source, numbers, rows
        self.sample_shape = source.sample_shape
        self.sample_bytes = numbers.itemsize

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        """Where the rows lie: all that has to reach the device."""
        places = torch.from_numpy(self.places(positions, epoch))
        return places.pin_memory() if pin else places

    def places(self, positions: Positions, epoch: int | None) -> Positions:
        """Where the rows lie that the samples show."""
        return np.searchsorted(self._numbers, self._source.row_numbers(positions, epoch)).astype(np.int64, copy=False)

    def draws(self, positions: Positions, epoch: int | None) -> Draws | None:
        return self._source.draws(positions, epoch)

    def shown(self, raw: torch.Tensor, draws: torch.Tensor | None) -> torch.Tensor:
        return self._source.shown_whole(self.rows.index_select(0, raw), draws)


def place_rows(
    source: InputSource, problem: Problem, config: LoopConfig, where: LoopContext, clock: Clock, loading: Loading
) -> InputSource:
    """The source with its rows on the GPU, where they fit."""
    if not isinstance(source, NumberedSource):
        return source
    device, numbers = where.device, rows_in_use(source, problem, epochs=config.epochs)
    room = device_room_bytes(device) if where.limit_bytes is None else where.limit_bytes
    spare = max(0, room - max(where.planned_bytes, (held_memory_bytes(device) or 0) + context_bytes(device)))
    need = len(numbers) * row_bytes(source)
    size, left = f"{format_count(len(numbers), 'row')} take {format_bytes(need)}", f"{format_bytes(spare)} left free on the GPU"
    evidence = {"bytes": need, "spare_bytes": spare, "share": _SPARE_SHARE}
    if need > _SPARE_SHARE * spare:
        reason = f"{size}, more than {_SPARE_SHARE:.0%} of the {left}: batches are read ahead"
        where.on_event(Chosen(Choice("inputs", "memory", reason, evidence)))
        return source
    where.on_event(Chosen(Choice("inputs", "card", f"{size} of {left}: read once, then a batch is a few numbers", evidence)))
    try:
        with clock.stage("fill"):
            pin = where.pin and not is_cpu(device)
            return fill_gpu(source, numbers, device, workers=where.workers, pin=pin, loading=loading)
    except (RuntimeError, MemoryError) as error:  # others may have taken what was free
        found = out_of_memory(error)
        if found is None:
            raise
        where.on_event(Chosen(Choice("inputs", "memory", f"they did not fit on the GPU after all: {found.message}")))
        return source


def rows_in_use(source: NumberedSource, problem: Problem, *, epochs: int) -> Positions:
    """The numbers of all rows that training and evaluation show, ascending: of several views only those whose turn comes."""
    train = problem.positions("train")
    judged = [source.row_numbers(problem.positions(split), None) for split in ("val", "test")]
    return np.unique(np.concatenate([*judged, *(source.row_numbers(train, epoch) for epoch in range(epochs))]))


def row_bytes(source: NumberedSource) -> int:
    return math.prod(source.row_shape) * source.row_dtype.itemsize


def fill_gpu(
    source: NumberedSource, numbers: Positions, device: torch.device, *, workers: int, pin: bool, loading: Loading
) -> GpuRows:
    """Read the rows with `numbers` in large pieces, by `workers` threads, and copy each while the next are being read."""
    rows = torch.empty((len(numbers), *source.row_shape), dtype=source.row_dtype, device=device)
    size = max(1, _PIECE_BYTES // max(1, row_bytes(source)))

    def read(start: int) -> tuple[int, torch.Tensor]:
        wanted = numbers[start : start + size]
        with loading.here(), during("collate"):
            piece = torch.empty((len(wanted), *source.row_shape), dtype=source.row_dtype, pin_memory=pin)
            source.read_rows(wanted, piece)
        return start, piece

    for start, piece in map_ahead(read, range(0, len(numbers), size), threads=workers, ahead=workers + 1):
        rows[start : start + len(piece)].copy_(piece, non_blocking=pin)
    synchronize(device)
    return GpuRows(source, numbers, rows)
