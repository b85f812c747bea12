"""Several processes that train one network together, or one that trains alone.

Each process takes its share of every global batch and sums gradients with the others after its own backward passes. Doing the
sum afterwards, instead of inside the backward pass, is what lets one process that ran out of memory repeat its share in smaller
parts while the others wait. With the loss divided by the size of the global batch, the sum is the gradient of one process.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from unchoke.machine.backend import collective_backend
from unchoke.machine.detect import interface_towards

T = TypeVar("T")
Number = TypeVar("Number", np.int64, np.float32)
_PATIENCE, _DAYS = datetime.timedelta(hours=2), datetime.timedelta(days=14)


@dataclass(frozen=True)
class Ranks:
    """This process among `world` of them. Alone, every exchange is free."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and tells of progress."""
        return self.rank == 0

    def share(self, batch: NDArray[Number]) -> NDArray[Number]:
        """This process's part of a global batch; parts differ by at most one sample and may be empty."""
        return np.array_split(batch, self.world)[self.rank]

    def sum_gradients(self, parameters: Iterable[nn.Parameter], also: torch.Tensor) -> torch.Tensor:
        """Add up the gradients of all processes, and the few numbers in `also`, in one exchange; return those numbers' sums."""
        if self.world == 1:
            return also
        followed = [parameter for parameter in parameters if parameter.requires_grad]
        for parameter in followed:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        grads = [parameter.grad for parameter in followed if parameter.grad is not None]
        flat = torch.cat([*(grad.reshape(-1) for grad in grads), also])
        dist.all_reduce(flat)
        *parts, summed = torch.split(flat, [*(grad.numel() for grad in grads), also.numel()])
        for grad, part in zip(grads, parts, strict=True):
            grad.copy_(part.view_as(grad))
        return summed.clone()  # not a view, which would keep a copy of all gradients alive

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give every process the mean of everyone's `tensors`; whole numbers (counters) stay as they are."""
        values = [value for value in tensors if value.is_floating_point()]
        if self.world == 1 or not values:
            return
        flat = torch.cat([value.reshape(-1) for value in values])
        dist.all_reduce(flat)
        for value, part in zip(values, torch.split(flat / self.world, [value.numel() for value in values]), strict=True):
            value.copy_(part.view_as(value))

    def gather(self, value: T, group: dist.ProcessGroup | None = None) -> list[T]:
        """Everyone's value, in the order of ranks; `group` is another line between the same processes."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value, group=group)
        return found

    def patient_line(self) -> dist.ProcessGroup | None:
        """A line for what may take days: the leader prepares everything alone while the others wait for it."""
        return None if self.world == 1 else dist.new_group(backend="gloo", timeout=_DAYS)


ALONE = Ranks()


@dataclass(frozen=True)
class Meeting:
    """Where processes on several machines find each other: a store that the first of them keeps at `address`."""

    rank: int
    world: int
    address: str
    store: Any

    @classmethod
    def at(cls, address: str, port: int, *, rank: int, world: int) -> Meeting:
        """With port 0 it is kept here, at any port that is free; else it is found where another process keeps it."""
        kept_here = port == 0
        store = dist.TCPStore(address, port, world, is_master=kept_here, wait_for_workers=False)  # type: ignore[attr-defined]
        return cls(rank, world, address, store)

    @property
    def port(self) -> int:
        return int(self.store.port)


@contextmanager
def joined(meeting: Meeting | None = None) -> Iterator[Ranks]:
    """The ranks this process is among: at `meeting`, or where a launcher such as torchrun put it, as its environment variables
    tell; alone without either.
    """
    world = int(os.environ.get("WORLD_SIZE", "1")) if meeting is None else meeting.world
    if world == 1:
        yield Ranks()
        return
    if meeting is None:
        if world > num_neighbours():
            _name_interface(os.environ.get("MASTER_ADDR", ""))
        dist.init_process_group(collective_backend(), timeout=_PATIENCE)
    else:
        _name_interface(meeting.address)
        where = {"store": meeting.store, "rank": meeting.rank, "world_size": world}
        dist.init_process_group(collective_backend(), timeout=_PATIENCE, **where)
    try:
        yield Ranks(dist.get_rank(), world)
    finally:
        dist.destroy_process_group()


def num_neighbours() -> int:
    """Processes on this machine that a launcher started, this one among them: they share its cores."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _name_interface(address: str) -> None:
    """Have gloo use the interface that leads to `address`: by itself it takes the one that this machine's name stands for, which
    on many systems is the loopback.
    """
    if address and (found := interface_towards(address)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", found)
