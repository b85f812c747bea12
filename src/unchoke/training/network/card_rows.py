"""Rows that lie on the card: read once, and from then on a batch is a few numbers.

In: a source whose rows are numbered, which of them a training will show, and what memory there is. Out: whether they are worth
their place on the card (a `Choice`), and a source that shows the same inputs from there. Rows are the bytes the other source
reads, so nothing that is computed changes. Where they do not fit, batches are read ahead as ever.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.clock import Loading, during
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import context_bytes, device_room_bytes, held_memory_bytes, send, synchronize
from unchoke.training.data import Positions, Problem
from unchoke.training.network.sources import Draws, NumberedSource

ON_CARD, IN_MEMORY = "card", "memory"
_SPARE_SHARE = 0.5
"""Of what the training leaves free: the rest is for what the plan did not foresee, and for recording a step."""
_PIECE_BYTES = 16 * 2**20


class CardRows:
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

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        draws = self.draws(positions, epoch)
        return self.shown(raw, None if draws is None else send(torch.from_numpy(draws), raw.device))

    def draws(self, positions: Positions, epoch: int | None) -> Draws | None:
        return self._source.draws(positions, epoch)

    def shown(self, raw: torch.Tensor, draws: torch.Tensor | None) -> torch.Tensor:
        return self._source.shown_whole(self.rows.index_select(0, raw), draws)


def rows_in_use(source: NumberedSource, problem: Problem, *, epochs: int) -> Positions:
    """The numbers of all rows that training and evaluation show, ascending: of several views only those whose turn comes."""
    train = problem.positions("train")
    judged = [source.row_numbers(problem.positions(split), None) for split in ("val", "test")]
    return np.unique(np.concatenate([*judged, *(source.row_numbers(train, epoch) for epoch in range(epochs))]))


def row_bytes(source: NumberedSource) -> int:
    return math.prod(source.row_shape) * source.row_dtype.itemsize


def choose_place(
    source: NumberedSource, num_rows: int, device: torch.device, *, limit_bytes: int | None, planned_bytes: int
) -> Choice:
    """On the card, where all rows fit into half of what the training leaves free there; else in the machine's memory."""
    room = device_room_bytes(device) if limit_bytes is None else limit_bytes
    taken = max(planned_bytes, (held_memory_bytes(device) or 0) + context_bytes(device))
    return judge_place(num_rows, num_rows * row_bytes(source), spare_bytes=max(0, room - taken))


def judge_place(num_rows: int, need_bytes: int, *, spare_bytes: int) -> Choice:
    size = f"{format_count(num_rows, 'row')} take {format_bytes(need_bytes)}"
    left = f"{format_bytes(spare_bytes)} that training leaves free on the card"
    evidence = {"bytes": need_bytes, "spare_bytes": spare_bytes, "share": _SPARE_SHARE}
    if need_bytes <= _SPARE_SHARE * spare_bytes:
        return Choice("inputs", ON_CARD, f"{size} of {left}: read once, then a batch is a few numbers", evidence)
    return Choice("inputs", IN_MEMORY, f"{size}, more than {_SPARE_SHARE:.0%} of the {left}: batches are read ahead", evidence)


def fill_card(
    source: NumberedSource, numbers: Positions, device: torch.device, *, workers: int, pin: bool, loading: Loading
) -> CardRows:
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
    return CardRows(source, numbers, rows)
