"""How much memory may be taken: a limit that was asked for, or what there is.

In: a device, perhaps a size. Out: a `MemoryLimit` with its reason. `limit_elsewhere` asks a process of its own, so that this one
takes nothing of a card; `MachineError` where there is no room at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.units import format_bytes
from unchoke.machine.backend import device_room_bytes, is_cpu, limit_memory
from unchoke.machine.memory.probe import probe

if TYPE_CHECKING:
    import torch

LOOK = "unchoke.machine.memory.gauge:look_at_device"
_TIMEOUT_S = 900.0
_FREE_SHARE = 0.8


@dataclass(frozen=True)
class MemoryLimit:
    """How much may be taken. `given` ones are kept to: enforced where the device can, watched where it cannot."""

    num_bytes: int
    given: bool
    choice: Choice

    def enforced_bytes(self, device: torch.device) -> int | None:
        """What the device's allocator is told to keep to; a CPU has none to tell."""
        return self.num_bytes if self.given and not is_cpu(device) else None


def given_limit(device: torch.device, limit_bytes: int) -> MemoryLimit:
    """A limit that was asked for; refused where there is not that much."""
    return MemoryLimit(limit_bytes, True, limit_memory(device, limit_bytes))


def free_limit(device: torch.device, room_bytes: int | None = None) -> MemoryLimit:
    """What is there for the taking: a card's memory that others leave, or most of what the machine has free."""
    room = device_room_bytes(device) if room_bytes is None else room_bytes
    if is_cpu(device):
        num_bytes = int(room * _FREE_SHARE)
        reason = f"{_FREE_SHARE:.0%} of the {format_bytes(room)} that are free now; --memory sets another limit"
    else:
        num_bytes, reason = room, f"what {device} has and nobody else holds; --memory sets a lower limit"
    return MemoryLimit(num_bytes, False, Choice("memory", format_bytes(num_bytes), reason, {"limit_bytes": num_bytes}))


def limit_elsewhere(device: torch.device, asked: int | None) -> MemoryLimit:
    """The limit for processes that try things, found out without taking any of the device here."""
    if is_cpu(device):
        return free_limit(device) if asked is None else given_limit(device, asked)
    (found,) = probe(LOOK, (str(device), asked), [1], timeout_s=_TIMEOUT_S)
    if found.measured is None:
        why = f"a process that only looks at it failed: {found.fact}"
        raise MachineError(
            f"{device} has no room at all", code="no-device-memory", why=why, try_="close what uses it, or --device cpu"
        )
    if asked is None:
        return free_limit(device, found.measured.peak_bytes)
    reason = "enforced by the allocator in every process that tries a size"
    return MemoryLimit(asked, True, Choice("memory", format_bytes(asked), reason, {"limit_bytes": asked}))
