"""Whether a network that is not trained is shown the same inputs again: then its outputs could have been computed once.

In: the modules to look at (none of their parameters is in an optimizer) and each input they are called with. Out: for each, how
many samples it saw and how many of them it had seen before, counted from the first one that came again, so that a first epoch
does not count. A sample is known by a few of its values. Evaluation is left out, and so are tensors on a device: reading them
would wait.
"""

from __future__ import annotations

from typing import Any

_MAX_KNOWN = 4_096
_ENOUGH = 8_192
_ENOUGH_REPEATED = 1_024
_VALUES = 64


class Repeats:
    """What one module has seen."""

    def __init__(self) -> None:
        self.seen = 0
        self.repeated = 0
        self._since = 0
        self._known: set[int] = set()

    def add(self, inputs: Any) -> None:
        """The inputs of one call: a tensor whose first dimension counts samples."""
        for sample in _fingerprints(inputs):
            again = sample in self._known
            self.seen += 1
            self.repeated += again
            self._since += again or self.repeated > 0
            if not again and len(self._known) < _MAX_KNOWN:
                self._known.add(sample)

    @property
    def is_done(self) -> bool:
        return self.seen >= _ENOUGH or self.repeated >= _ENOUGH_REPEATED

    def to_dict(self) -> dict[str, Any]:
        """The share is None where nothing was seen; where no sample came again it is 0."""
        share = self.repeated / max(1, self._since) if self.seen else None
        return {"inputs_seen": self.seen, "inputs_repeated": self.repeated, "repeated_inputs_share": share}


def _fingerprints(inputs: Any) -> list[int]:
    """One number for each sample, from values spread over it."""
    if inputs.dim() < 2 or not inputs.is_cpu or not inputs.numel():
        return []
    flat = _flat(inputs.detach())
    stride = max(1, flat.shape[1] // _VALUES)
    values = flat[:, ::stride][:, :_VALUES].float().contiguous()
    return [hash(row.tobytes()) for row in _as_array(values)]


def _as_array(tensor: Any) -> Any:
    """By the method itself: what the watcher reads is not the script's reading."""
    import torch

    return torch._C.TensorBase.numpy(tensor)


def _flat(inputs: Any) -> Any:
    """The samples as rows, without copying where the layout allows it."""
    if inputs.dim() == 4 and not inputs.is_contiguous():
        by_channel = inputs.permute(0, 2, 3, 1)
        inputs = by_channel if by_channel.is_contiguous() else inputs[:, :1]
    return inputs.reshape(inputs.shape[0], -1)
