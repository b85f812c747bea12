"""What `tile` settles before it begins, each with its reason: workers, masks, how files are written, how large tiles are.

What was typed is never measured; the rest is measured briefly on the user's own scenes, in a folder that is removed, and kept
beside the tiles: a second run must not choose otherwise, or it would make every tile anew.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.boxes import Box
from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.machine import cgroup
from unchoke.machine.detect import machine_memory
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource, choose_mask
from unchoke.scenes.npz import Compress, write_npz
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import SceneScale, apply_scale
from unchoke.scenes.scene_facts import SceneError, SceneFacts
from unchoke.scenes.tiling.tiles import TileSpec, plan_strips, run_strip

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


_STRIP_ROOM_BYTES = 512 << 20
"""Memory for each worker: the arrays of a strip, its packed tiles, and what GDAL keeps."""
_SAMPLE_WINDOWS = 2
_TRIAL_PIXELS = 4_000_000
_TRIAL_S = 3.0
_ABOUT_TILES = (
    *("data", "images", "bands", "grid", "resampling", "normalise", "mask", "polygons", "label", "store", "overlap", "edges"),
    *("tile_size", "compress", "min_valid"),
)


@dataclass(frozen=True)
class Recipe:
    """What the tiles of every scene have in common."""

    tile_px: int
    overlap_px: int
    compress: Compress


def choose_workers(session: Session) -> int:
    """As typed, or one for each core that has memory for its strip. No device is looked at: pixels are only read and packed."""
    if session.settings.workers is not None:
        return max(1, session.settings.workers)
    cores, available_bytes = usable_cores(), machine_memory()[1]
    fitting = max(1, available_bytes // _STRIP_ROOM_BYTES)
    reason = f"one for each of {format_count(cores, 'usable core')}"
    if fitting < cores:
        reason = f"{format_bytes(available_bytes)} of memory are free, and each worker may take {format_bytes(_STRIP_ROOM_BYTES)}"
    evidence = {"cores": cores, "memory_available_bytes": available_bytes}
    session.chose(Choice("workers", min(cores, fitting), reason, evidence))
    return min(cores, fitting)


def usable_cores() -> int:
    """Cores this process may use: its affinity and its container's quota honoured."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    membership = Path("/proc/self/cgroup")
    quota = cgroup.read_limits(membership.read_text()).cpus if membership.exists() else None
    return max(1, min(cores, int(quota) if quota is not None else cores))


def choose_masks(session: Session, facts: Sequence[SceneFacts]) -> dict[str, MaskSource | None]:
    """Where each scene's mask comes from. Scenes with the same bands share one source."""
    by_bands: dict[tuple[tuple[str, ...], bool], MaskSource | None] = {}
    labelled = any(one.scene.label is not None for one in facts)
    masks: dict[str, MaskSource | None] = {}
    for one in facts:
        kind = (one.band_names, labelled)
        if kind not in by_bands:
            by_bands[kind] = choose_mask(session.settings, band_names=one.band_names, labelled=labelled)
        masks[one.scene_id] = by_bands[kind]
    return masks


def choose_recipe(
    session: Session, facts: Sequence[SceneFacts], scales: Mapping[str, SceneScale], *, pool: HandlePool, workers: int, root: Path
) -> Recipe:
    """Everything that shapes the files: as typed, as measured before in this workspace, or measured now."""
    settings = session.settings
    kept = _Kept(root / "measured.json", key=digest([str(getattr(settings, name)) for name in _ABOUT_TILES]))
    overlap_px = settings.overlap or 0
    compress = settings.compress
    if compress is None:
        choice = kept.choice("compress") or _measure_compress(session, facts, scales, pool=pool, workers=workers)
        kept.keep(choice)
        session.chose(choice)
        compress = cast("Compress", choice.value)
    tile_px = settings.tile_size
    if tile_px == "auto":
        choice = kept.choice("tile_size") or _measure_tile_px(
            session, facts, scales, pool=pool, compress=compress, overlap_px=overlap_px
        )
        kept.keep(choice)
        session.chose(choice)
        tile_px = int(choice.value)
    refuse_overlap(overlap_px, tile_px)
    return Recipe(tile_px, overlap_px, compress)


def refuse_overlap(overlap_px: int, tile_px: int) -> None:
    """Windows that share all they have would never get on."""
    if overlap_px >= tile_px:
        raise UsageError(
            f"tiles of {tile_px} px cannot share {overlap_px} px",
            why="an overlap must be smaller than the tile",
            try_=f"--overlap {tile_px // 8}, or a larger --tile-size",
        )


class _Kept:
    """Measured choices of this workspace, for one set of settings; other settings start a new file."""

    def __init__(self, file: Path, *, key: str) -> None:
        self._file, self._key = file, key
        self._choices: dict[str, Any] = {}
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            self._choices = dict(found["choices"]) if found["key"] == key else {}
        except (OSError, ValueError, KeyError, TypeError):
            pass  # measured again: a lost file costs seconds

    def choice(self, name: str) -> Choice | None:
        """What was measured before, with its figures."""
        if name not in self._choices:
            return None
        found = Choice(**self._choices[name])
        return replace(found, reason=f"measured before in this workspace; {found.reason}")

    def keep(self, choice: Choice) -> None:
        if choice.name not in self._choices:
            self._choices[choice.name] = choice.to_dict()
            atomic.write_json(self._file, {"key": self._key, "choices": self._choices})


@contextmanager
def _trial_folder(session: Session) -> Iterator[Path]:
    """A folder on the disk of the workspace that is gone afterwards; one that a kill leaves is swept by the next command."""
    prefix, suffix = atomic.TEMPORARY_PREFIX, atomic.TEMPORARY_SUFFIX
    with tempfile.TemporaryDirectory(dir=session.workspace.root, prefix=prefix, suffix=suffix) as name:
        yield Path(name)


def _measure_compress(
    session: Session, facts: Sequence[SceneFacts], scales: Mapping[str, SceneScale], *, pool: HandlePool, workers: int
) -> Choice:
    size_px = session.settings.tile_size if session.settings.tile_size != "auto" else DEFAULT_TILE_PX
    with session.stage("try writing", format_count(_SAMPLE_WINDOWS, "window")), _trial_folder(session) as folder:
        sample = list(_sample(facts, scales, size_px=size_px, store=session.settings.store, pool=pool))
        if not sample:
            return Choice("compress", candidates()[0], "no window could be read to measure on")
        return choose_compress(measure_writing(sample, folder=folder, workers=workers))


def _sample(
    facts: Sequence[SceneFacts], scales: Mapping[str, SceneScale], *, size_px: int, store: str, pool: HandlePool
) -> Iterator[dict[str, NDArray[Any]]]:
    """A few windows as they would be written, from scenes spread over the list; what cannot be read is left to its job."""
    for number in range(_SAMPLE_WINDOWS):
        one = facts[number * len(facts) // _SAMPLE_WINDOWS]
        box = _window_along(one, share=(number + 0.5) / _SAMPLE_WINDOWS, size_px=size_px)
        try:
            bands, valid = read_box(one, box, pool=pool, dtype="raw" if store == "raw" else "float32")
        except SceneError:
            continue
        if store != "raw":
            apply_scale(cast("NDArray[np.float32]", bands), scales[one.scene_id], valid)
        yield {"bands": bands, "valid": valid}


def _window_along(facts: SceneFacts, *, share: float, size_px: int) -> Box:
    """A window somewhere on the diagonal: scenes have more of their nodata in the corners."""
    height, width = min(size_px, facts.grid.height), min(size_px, facts.grid.width)
    return Box(int(share * (facts.grid.height - height)), int(share * (facts.grid.width - width)), height, width)


def _measure_tile_px(
    session: Session,
    facts: Sequence[SceneFacts],
    scales: Mapping[str, SceneScale],
    *,
    pool: HandlePool,
    compress: Compress,
    overlap_px: int,
) -> Choice:
    """Tiles of several sizes from the first strips of the largest scene, made for real and thrown away."""
    largest = max(facts, key=lambda one: one.num_pixels)
    shortest_px = min(largest.grid.height, largest.grid.width)
    sizes_px = [size for size in tile_sizes_px(largest.bands[0].block, shortest_side_px=shortest_px) if size > overlap_px]
    if len(sizes_px) < 2:
        return Choice("tile_size", DEFAULT_TILE_PX, f"{largest.scene_id} is too small to compare sizes on")
    with session.stage("try sizes", ", ".join(map(str, sizes_px))), _trial_folder(session) as folder:
        spec = TileSpec(
            largest,
            scales[largest.scene_id],
            str(folder),
            overlap_px=overlap_px,
            compress=compress,
            store=session.settings.store,
        )

        def run(size_px: int) -> tuple[int, float]:
            return _run_some(replace(spec, size_px=size_px, folder=str(folder / str(size_px))), pool=pool)

        try:
            run(sizes_px[0])  # the first pass pays for bringing the file into memory
            return choose_tile_px(measure_tile_sizes(sizes_px, run))
        except SceneError as error:
            return Choice("tile_size", DEFAULT_TILE_PX, f"the usual size; it could not be measured: {error.what}")


def _run_some(spec: TileSpec, *, pool: HandlePool) -> tuple[int, float]:
    """Make the tiles of the first few strips: how many pixels, in how many seconds."""
    num_pixels, started_s = 0, time.perf_counter()
    for strip in plan_strips(spec.facts, spec):
        run_strip(strip, spec, pool=pool)
        num_pixels += strip.box.height * strip.box.width
        if num_pixels >= _TRIAL_PIXELS or time.perf_counter() - started_s > _TRIAL_S:
            break
    return num_pixels, time.perf_counter() - started_s
