"""One update of stacked heads, recorded once and repeated by one call: on a card dozens of small calls cost more than the work.

In: a function that updates the heads from tensors that stay where they are, and for each batch what goes into them. Out: the same
updates. What was recorded is repeated once on the state it began with and compared before it is used; where the two differ, the
heads are updated call by call, as everywhere else. What a head is, it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

_TOLERANCE = 1e-5
"""How far a repeated update may lie from the one it was recorded from, as a share of the largest value."""


@dataclass(frozen=True, eq=False)
class UpdateInputs:
    """What differs from batch to batch. Where a setting is off for all heads there is no tensor for it."""

    feats: torch.Tensor
    positions: torch.Tensor
    count: torch.Tensor
    rates: torch.Tensor
    mix: torch.Tensor | None = None
    dropout: torch.Tensor | None = None

    def tensors(self) -> list[torch.Tensor]:
        found = (self.feats, self.positions, self.count, self.rates, self.mix, self.dropout)
        return [tensor for tensor in found if tensor is not None]

    def clone(self) -> UpdateInputs:
        def copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.clone()

        return UpdateInputs(
            self.feats.clone(), self.positions.clone(), self.count.clone(), self.rates.clone(), copy(self.mix), copy(self.dropout)
        )

    def fits(self, other: UpdateInputs) -> bool:
        return [tensor.shape for tensor in self.tensors()] == [tensor.shape for tensor in other.tensors()]


Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs a function once, records what it hands to the device, and returns what repeats that."""


class RecordedUpdate:
    """Repeats `update` on batches of one size; `state` are the tensors it changes."""

    def __init__(self, update: Callable[[UpdateInputs], None], state: Sequence[torch.Tensor], record: Record) -> None:
        self._update, self._state, self._record = update, state, record
        self._inputs: UpdateInputs | None = None
        self._repeat: Callable[[], None] | None = None
        self.agrees = True
        """False once a repetition differed: from then on nothing is recorded any more."""

    def __call__(self, inputs: UpdateInputs) -> None:
        """Update the heads, by what was recorded where the batch has its size."""
        if self._inputs is None and self.agrees:
            self._begin(inputs)
        elif self._repeat is not None and self._inputs is not None and self._inputs.fits(inputs):
            for kept, given in zip(self._inputs.tensors(), inputs.tensors(), strict=True):
                kept.copy_(given)
            self._repeat()
        else:
            self._update(inputs)

    def _begin(self, inputs: UpdateInputs) -> None:
        """Record this update; it happens once, whatever comes of the recording."""
        self._inputs = kept = inputs.clone()
        before = [tensor.detach().clone() for tensor in self._state]
        repeat = self._record(lambda: self._update(kept))
        after = [tensor.detach().clone() for tensor in self._state]
        self._put(before)
        repeat()
        self.agrees = all(_close(ours, theirs) for ours, theirs in zip(self._state, after, strict=True))
        self._put(after)
        self._repeat = repeat if self.agrees else None

    @torch.no_grad()
    def _put(self, values: Sequence[torch.Tensor]) -> None:
        for tensor, value in zip(self._state, values, strict=True):
            tensor.copy_(value)


@torch.no_grad()
def _close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    largest = float(theirs.abs().max()) if theirs.numel() else 0.0
    return bool(torch.allclose(ours, theirs, rtol=0.0, atol=_TOLERANCE * max(largest, 1e-12)))
