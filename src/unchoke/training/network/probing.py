"""Measuring steps in processes of their own, told as it goes: what planning a run and `unchoke budget` share.

In: a trial (`training/network/memory_trial.py`) and how much memory there may be. Out: a callable that measures batch sizes (what
`machine/memory/search.py` asks for), and limits with their reasons. What is chosen from the measurements is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.events import OnEvent, Progress
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import device_room_bytes, is_cpu, limit_memory, torch_device
from unchoke.machine.memory.probe import Probed, probe
from unchoke.machine.memory.search import Way
from unchoke.training.network.memory_trial import TARGET, AnyTrial

if TYPE_CHECKING:
    import torch

STAGE = "memory"
LOOK = "unchoke.machine.memory.gauge:look_at_device"
_TIMEOUT_S = 900.0
_USUAL_PROBES = 5
_FREE_SHARE = 0.8
_WORDS: dict[Way, str] = {"train": "training", "train_ckpt": "with checkpointing", "evaluation": "evaluation"}


@dataclass(frozen=True)
class Limit:
    """How much may be taken. `given` ones are kept to: enforced where the device can, watched where it cannot."""

    num_bytes: int
    given: bool
    choice: Choice


def given_limit(device: torch.device, limit_bytes: int) -> Limit:
    """A limit that was asked for; refused where there is not that much."""
    return Limit(limit_bytes, True, limit_memory(device, limit_bytes))


def free_limit(device: torch.device, room_bytes: int | None = None) -> Limit:
    """What is there for the taking: a card's memory that others leave, or most of what the machine has free."""
    room = device_room_bytes(device) if room_bytes is None else room_bytes
    if is_cpu(device):
        num_bytes = int(room * _FREE_SHARE)
        reason = f"{_FREE_SHARE:.0%} of the {format_bytes(room)} that are free now; --memory sets another limit"
    else:
        num_bytes, reason = room, f"what {device} has and nobody else holds; --memory sets a lower limit"
    return Limit(num_bytes, False, Choice("memory", format_bytes(num_bytes), reason, {"limit_bytes": num_bytes}))


def limit_elsewhere(device: torch.device, asked: int | None) -> Limit:
    """The limit for processes that try things, found out without taking any of the device here."""
    if is_cpu(device):
        return free_limit(device) if asked is None else given_limit(device, asked)
    (found,) = probe(LOOK, (str(device), asked), [1], timeout_s=_TIMEOUT_S)
    if found.measured is None:
        why = f"a process that only looks at it failed: {found.fact}"
        raise MachineError(f"{device} has no room at all", why=why, try_="close what uses it, or --device cpu")
    if asked is None:
        return free_limit(device, found.measured.peak_bytes)
    reason = "enforced by the allocator in every process that tries a size"
    return Limit(asked, True, Choice("memory", format_bytes(asked), reason, {"limit_bytes": asked}))


class Prober:
    """`prober(way, batches)`: each size once, from small to large up to the first that does not fit. Answers are remembered."""

    def __init__(self, trial: AnyTrial, *, limit: Limit, on_event: OnEvent, usual: int = _USUAL_PROBES) -> None:
        on_cpu = is_cpu(torch_device(trial.device))
        self._trial = replace(trial, limit_bytes=limit.num_bytes if limit.given and not on_cpu else None)
        self._process_bytes = limit.num_bytes if on_cpu else None
        self._on_event = on_event
        self._usual = usual
        self._found: dict[tuple[Way, int], Probed] = {}

    def __call__(self, way: Way, batches: Sequence[int]) -> list[Probed]:
        found: list[Probed] = []
        for batch in sorted(set(batches)):
            found.append(self._found.get((way, batch)) or self._measure(way, batch))
            if not found[-1].fits:
                break
        return found

    def _measure(self, way: Way, batch: int) -> Probed:
        self._tell(f"{format_count(batch, 'sample')} at once, {_WORDS[way]}")
        loop = replace(self._trial.loop, grad_ckpt=way == "train_ckpt")
        asked = replace(self._trial, loop=loop, evaluation=way == "evaluation")
        (one,) = probe(TARGET, asked, [batch], timeout_s=_TIMEOUT_S, limit_bytes=self._process_bytes)
        self._found[way, batch] = one
        return one

    def _tell(self, trying: str) -> None:
        done = len(self._found)
        self._on_event(Progress(STAGE, done, max(self._usual, done + 1), "probes", extra={"trying": trying}))

    def finish(self) -> None:
        """Say that no more will be measured."""
        done = len(self._found)
        if done:
            self._on_event(Progress(STAGE, done, done, "probes"))
