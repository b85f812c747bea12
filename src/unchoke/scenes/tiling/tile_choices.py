"""What `tile` settles before it begins, each with its reason: workers, how files are written, how large tiles are.

What is measured is kept beside the tiles: a second run must not choose otherwise, or it would make every tile anew. What was
typed is never measured.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.boxes import Box
from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes, format_count
from unchoke.machine import cgroup
from unchoke.machine.detect import machine_memory
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource, choose_mask
from unchoke.scenes.npz import Compress
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import SceneScale, apply_scale
from unchoke.scenes.scene_facts import SceneError, SceneFacts
from unchoke.scenes.tiling import tile_trial as trial
from unchoke.scenes.tiling.strips import TileSpec, plan_strips
from unchoke.scenes.tiling.tiles import run_strip

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
    size_px = session.settings.tile_size if session.settings.tile_size != "auto" else trial.DEFAULT_TILE_PX
    with session.stage("try writing", format_count(_SAMPLE_WINDOWS, "window")), _trial_folder(session) as folder:
        sample = list(_sample(facts, scales, size_px=size_px, store=session.settings.store, pool=pool))
        if not sample:
            return Choice("compress", trial.candidates()[0], "no window could be read to measure on")
        return trial.choose_compress(trial.measure_writing(sample, folder=folder, workers=workers))


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
    sizes_px = [size for size in trial.tile_sizes_px(largest.bands[0].block, shortest_side_px=shortest_px) if size > overlap_px]
    if len(sizes_px) < 2:
        return Choice("tile_size", trial.DEFAULT_TILE_PX, f"{largest.scene_id} is too small to compare sizes on")
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
            return trial.choose_tile_px(trial.measure_tile_sizes(sizes_px, run))
        except SceneError as error:
            return Choice("tile_size", trial.DEFAULT_TILE_PX, f"the usual size; it could not be measured: {error.what}")


def _run_some(spec: TileSpec, *, pool: HandlePool) -> tuple[int, float]:
    """Make the tiles of the first few strips: how many pixels, in how many seconds."""
    num_pixels, started_s = 0, time.perf_counter()
    for strip in plan_strips(spec.facts, spec):
        run_strip(strip, spec, pool=pool)
        num_pixels += strip.box.height * strip.box.width
        if num_pixels >= _TRIAL_PIXELS or time.perf_counter() - started_s > _TRIAL_S:
            break
    return num_pixels, time.perf_counter() - started_s
