"""Decoded pictures, kept for training that needs pixels every epoch.

Sources (a sample's id and the size and time of its file) and a function that decodes one come in; uint8 pixels go out. A picture
whose file changed is decoded again. One that does not decode raises what its decoder raised: nothing stands in for it, and the
caller decides what to do. `plan_cache` says whether pictures are worth keeping, and where.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.clock import during
from unchoke.core.errors import MachineError
from unchoke.core.fingerprint import hash_int
from unchoke.core.units import format_bytes, format_count
from unchoke.pixels.image import DecodeError
from unchoke.pixels.slots import SEGMENT_BYTES, DiskSlots, Pixels, RamSlots, Slots, Stamp

Mode = Literal["ram", "disk", "none"]
_DISK_MARGIN_BYTES = 2**30
_LEAST_SHARE = 0.25  # of the pictures: below that a partial cache hardly helps
_NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class PictureFile:
    """One picture's file as last seen. `content` is a digest of its bytes, or "" where nobody computed one."""

    sample_id: str
    size_bytes: int
    mtime_ns: int
    content: str = ""

    def stamp(self) -> Stamp:
        return Stamp(hash_int(self.sample_id), self.size_bytes, self.mtime_ns, hash_int(self.content) if self.content else 0)


def plan_cache(
    num_images: int, height: int, width: int, *, ram_budget_bytes: int, disk_free_bytes: int, mode: Mode | None = None
) -> Choice:
    """Where to keep decoded pictures: "ram", "disk" or "none". How many fit stands in `evidence["capacity_rows"]`.

    `disk_free_bytes` should count what an earlier cache in the same place already holds (`slots.held_bytes`) as free.
    Left to itself: memory if all fit in the budget, else the disk if all fit with a margin, else as many on the disk as fit if
    that is a fair part, else none. A mode that was given and does not fit is refused.
    """
    row_bytes = height * width * 3
    fit = {
        "ram": ram_budget_bytes // row_bytes,
        "disk": max(0, disk_free_bytes - _DISK_MARGIN_BYTES) // row_bytes,
        "none": num_images,
    }
    size = f"{format_count(num_images, 'picture')} of {width}×{height} take {format_bytes(num_images * row_bytes)}"
    limits = f"memory budget {format_bytes(ram_budget_bytes)}, disk {format_bytes(disk_free_bytes)} free"
    if mode is not None and fit[mode] < num_images:
        raise MachineError(
            f"--cache {mode}: the decoded pictures do not fit",
            code="cache-does-not-fit",
            why=f"{size}; {limits}",
            try_="--cache none, or leave the option out",
        )
    place, rows = "none", 0
    reason = f"{size}, which do not fit ({limits}): decoded every time"
    if mode is not None:
        place, rows, reason = mode, num_images, f"given on the command line; {size}"
    elif fitting := [place for place in ("ram", "disk") if fit[place] >= num_images]:
        place, rows, reason = fitting[0], num_images, f"{size}, which fit ({limits})"
    elif fit["disk"] >= _LEAST_SHARE * num_images:
        place, rows = "disk", fit["disk"]
        reason = f"{size}; {fit['disk']:,} of them fit ({limits}), the rest is decoded every time"
    rows = 0 if place == "none" else rows
    return Choice("cache", place, reason, {"capacity_rows": rows, "bytes": rows * row_bytes})


class PixelCache:
    """Pictures by position in `sources`, from their slot where it is valid, else from `read`. Threads may share it.

    With `keep` False nothing is added to the slots.
    """

    def __init__(
        self,
        slots: Slots,
        sources: Sequence[PictureFile],
        *,
        height: int,
        width: int,
        read: Callable[[int], Pixels],
        keep: bool = True,
    ) -> None:
        self.hits = self.misses = self.damaged = 0
        self._slots = slots
        self._shape = (height, width, 3)
        self._read = read
        self._keeps = keep
        self._stamps = [source.stamp() for source in sources]
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._slot_of = np.full(len(sources), _NO_SLOT, np.int64)
        self._valid = np.zeros(len(sources), np.bool_)
        kept = slots.kept()
        for position, stamp in enumerate(self._stamps):
            if stamp.key in kept:
                self._slot_of[position], earlier = kept.pop(stamp.key)
                self._valid[position] = stamp.agrees(earlier)
        taken = self._slot_of[self._slot_of != _NO_SLOT]
        self._free: list[int] = np.setdiff1d(np.arange(slots.capacity_rows), taken)[::-1].tolist()

    def __enter__(self) -> PixelCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def capacity_rows(self) -> int:
        """How many pictures can be kept; the others are decoded every time."""
        return self._slots.capacity_rows

    @property
    def num_valid(self) -> int:
        """How many pictures are kept now."""
        return int(self._valid.sum())

    def missing(self) -> NDArray[np.int64]:
        """The positions of the pictures that are not kept now."""
        return np.flatnonzero(~self._valid)

    def rows(self, positions: Sequence[int]) -> Pixels:
        """The pictures at `positions`, n × height × width × RGB."""
        out: Pixels = np.empty((len(positions), *self._shape), np.uint8)
        for place, position in enumerate(positions):
            self.read_into(position, out[place])
        return out

    def row(self, position: int) -> Pixels:
        """One picture, height × width × RGB."""
        out: Pixels = np.empty(self._shape, np.uint8)
        self.read_into(position, out)
        return out

    def why_not(self, position: int) -> str:
        """Keep one picture; "" where it can be shown, else the reason."""
        try:
            self.row(position)
        except DecodeError as error:
            return str(error)
        return ""

    def read_into(self, position: int, out: Pixels) -> None:
        """Put one picture into `out`."""
        if self._valid[position]:
            with during("read"):
                sound = self._slots.read(int(self._slot_of[position]), out)
            if sound:
                self.hits += 1
                return
            self.damaged += 1
            self._valid[position] = False
        self.misses += 1
        pixels = self._read(position)
        if pixels.shape != self._shape or pixels.dtype != np.uint8:
            raise ValueError(f"read({position}) gave {pixels.dtype} {pixels.shape}, expected uint8 {self._shape}")
        if self._keeps:
            self.keep(position, pixels)
        out[...] = pixels

    def close(self) -> None:
        """Let go of the files; what is stored stays."""
        self._slots.close()

    def keep(self, position: int, pixels: Pixels) -> None:
        """Store the picture if there is a slot for it and no other thread is storing it."""
        with self._lock:
            if self._valid[position] or position in self._busy:
                return
            if self._slot_of[position] == _NO_SLOT:
                if not self._free:
                    return
                self._slot_of[position] = self._free.pop()
            self._busy.add(position)
        try:
            with during("write"):
                self._slots.write(int(self._slot_of[position]), self._stamps[position], pixels)
            self._valid[position] = True
        finally:
            with self._lock:
                self._busy.discard(position)


def open_cache(
    plan: Choice,
    sources: Sequence[PictureFile],
    *,
    folder: Path,
    height: int,
    width: int,
    read: Callable[[int], Pixels],
    recipe: str = "",
    segment_bytes: int = SEGMENT_BYTES,
    reader: bool = False,
) -> PixelCache:
    """The cache a plan describes. `recipe` names how `read` makes its pixels: pictures made another way are not served.

    A `reader` opens a cache on the disk beside the process that fills it, and adds nothing to it.
    """
    capacity_rows = min(int(plan.evidence["capacity_rows"]), len(sources))
    if plan.value == "disk" and capacity_rows > 0:
        geometry: dict[str, Any] = {"capacity_rows": capacity_rows, "height": height, "width": width, "recipe": recipe}
        slots: Slots = DiskSlots(folder, **geometry, segment_bytes=segment_bytes, reader=reader)
    else:
        slots, reader = RamSlots(capacity_rows if plan.value == "ram" else 0, height, width), False
    return PixelCache(slots, sources, height=height, width=width, read=read, keep=not reader)
