"""Short measurements on the user's own scenes: how to write tiles, how large they should be, threads or processes.

Measured figures come in or are taken here, choices with their evidence go out. Nothing that is measured stays: trial files lie in
a folder that the caller removes. Which scenes to measure on is the caller's business.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.units import format_bytes, format_seconds
from unchoke.scenes.npz import Compress, write_npz

DEFAULT_TILE_PX = 512
_TILE_SIZES_PX = (256, 512, 1024)
_CLEARLY = 2.0
"""Leaving files uncompressed must be so many times quicker to be worth it."""
_LARGEST_GROWTH = 1.3
"""And must not make them so many times larger than compressing does."""
_WORTH_CHANGING = 1.1
"""A setting other than the usual one has to be so much faster: less is the machine's mood."""
_DISK_TRIAL_BYTES = 16_000_000


@dataclass(frozen=True)
class Written:
    """What writing the sample one way took, with all workers at it, and how large it became."""

    compress: str
    seconds: float
    size_bytes: int


def candidates() -> tuple[Compress, ...]:
    """The ways there are to write tiles here; isal is an optional package."""
    return ("isal", "none") if find_spec("isal") else ("zlib", "none")


def measure_writing(tiles: Sequence[Mapping[str, NDArray[Any]]], *, folder: Path, workers: int) -> list[Written]:
    """Each way of writing `tiles`: compressing counts once for all workers, the disk of `folder` is shared by them."""
    disk_bytes_per_s = measure_disk(folder)
    measured = []
    for compress in candidates():
        size_bytes, started_s = 0, time.perf_counter()
        for arrays in tiles:
            size_bytes += write_npz(io.BytesIO(), arrays, compress=compress)[1]
        computing_s = time.perf_counter() - started_s
        measured.append(Written(compress, computing_s / workers + size_bytes / disk_bytes_per_s, size_bytes))
    return measured


def measure_disk(folder: Path, *, num_bytes: int = _DISK_TRIAL_BYTES) -> float:
    """Bytes per second that really reach the disk of `folder`; what is written is gone afterwards."""
    noise = np.frombuffer(np.random.default_rng(0).bytes(1_000_000), np.uint8)  # some disks compress zeros away
    started_s = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(max(1, num_bytes // noise.nbytes)):
            file.write(noise.data)
        file.flush()
        os.fsync(file.fileno())
    return num_bytes / (time.perf_counter() - started_s)


def choose_compress(measured: Sequence[Written]) -> Choice:
    """Compressed by the quickest way there is, unless plain files are clearly quicker and little larger."""
    packed, plain = measured[0], measured[-1]
    growth, gain = plain.size_bytes / max(1, packed.size_bytes), packed.seconds / max(1e-9, plain.seconds)
    evidence = {one.compress: {"seconds": round(one.seconds, 4), "size_bytes": one.size_bytes} for one in measured}
    figures = (
        f"{packed.compress} {format_seconds(packed.seconds)} and {format_bytes(packed.size_bytes)}, "
        f"none {format_seconds(plain.seconds)} and {format_bytes(plain.size_bytes)} for the same few tiles on this disk"
    )
    if gain >= _CLEARLY and growth <= _LARGEST_GROWTH:
        return Choice("compress", "none", f"clearly quicker, for {growth:.2f} times the size: {figures}", evidence)
    why = "much smaller files" if growth > _LARGEST_GROWTH else "plain files are not clearly quicker"
    without = "" if packed.compress == "isal" else "; isal (in the extra geo) would be several times quicker"
    return Choice("compress", packed.compress, f"{why}: {figures}{without}", evidence)


def tile_sizes_px(block: tuple[int, int], *, shortest_side_px: int) -> list[int]:
    """Sizes worth trying: the usual ones, and the multiple of the files' own blocks nearest to the default, where they fit."""
    sizes = set(_TILE_SIZES_PX)
    side_px = max(block)
    if 16 <= side_px <= _TILE_SIZES_PX[-1]:
        sizes.add(side_px * max(1, round(DEFAULT_TILE_PX / side_px)))
    fitting = sorted(size for size in sizes if size <= shortest_side_px)
    return fitting or [DEFAULT_TILE_PX]


def measure_tile_sizes(sizes_px: Sequence[int], run: Callable[[int], tuple[int, float]]) -> dict[int, float]:
    """Pixels per second for each size; `run` makes some tiles of that size and says how many pixels it took how long over."""
    rates: dict[int, float] = {}
    for size_px in sizes_px:
        num_pixels, seconds = run(size_px)
        rates[size_px] = num_pixels / max(1e-9, seconds)
    return rates


def choose_tile_px(rates: Mapping[int, float]) -> Choice:
    """The default size unless another is clearly faster."""
    best_px = max(rates, key=lambda size_px: (rates[size_px], size_px))
    table = ", ".join(f"{size_px} px {rate / 1e6:.1f} Mpixel/s" for size_px, rate in sorted(rates.items()))
    evidence = {"pixels_per_s": {str(size_px): round(rate) for size_px, rate in sorted(rates.items())}}
    usual = rates.get(DEFAULT_TILE_PX)
    if usual is not None and rates[best_px] < _WORTH_CHANGING * usual:
        return Choice("tile_size", DEFAULT_TILE_PX, f"the usual size, and none is clearly faster: {table}", evidence)
    return Choice("tile_size", best_px, f"measured fastest: {table}", evidence)


def choose_parallel(rates: Mapping[str, float]) -> Choice:
    """Threads unless processes are clearly faster; `rates` are values per second while all workers are busy."""
    table = ", ".join(f"{name} {rate / 1e6:.1f} M values/s" for name, rate in rates.items())
    evidence = {"values_per_s": {name: round(rate) for name, rate in rates.items()}}
    if rates["threads"] > 0 and rates["processes"] >= _WORTH_CHANGING * rates["threads"]:  # 0: nothing could be read there
        return Choice("parallel", "processes", f"measured faster on the first strips: {table}", evidence)
    return Choice("parallel", "threads", f"processes were not clearly faster on the first strips: {table}", evidence)
