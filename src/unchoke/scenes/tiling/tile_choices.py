"""What `tile` settles before it begins, each with its reason: workers, masks, how files are written, how large tiles are.

What was typed is never measured; the rest is measured briefly on the user's own scenes, in a folder that is removed, and kept
beside the tiles: a second run must not choose otherwise, or it would make every tile anew.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, checksums
from unchoke.core.boxes import Box
from unchoke.core.choices import Choice
from unchoke.core.errors import DamagedFile, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.machine.detect import machine_memory, usable_cores
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource, choose_mask
from unchoke.scenes.npz import Compress, write_npz
from unchoke.scenes.open_scenes import find_scenes, measure_scales, open_scenes, require_scenes
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import SceneScale, apply_scale, sampling_text
from unchoke.scenes.scene_facts import SceneError, SceneFacts
from unchoke.scenes.tiling.tiles import TileSpec, plan_strips, run_strip

DEFAULT_TILE_PX = 512
DEFAULT_NORMALISE = "max"
_TILE_SIZES_PX = (256, 512, 1024)
_CLEARLY = 2.0
"""Leaving files uncompressed must be so many times quicker to be worth it."""
_LARGEST_GROWTH = 1.3
"""And must not make them so many times larger than compressing does."""
_WORTH_CHANGING = 1.1
"""A setting other than the usual one has to be so much faster: less may be noise."""
_DISK_TRIAL_BYTES = 16_000_000
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
class TileRecipe:
    """What the tiles of every scene have in common."""

    tile_px: int
    overlap_px: int
    compress: Compress


@dataclass(frozen=True)
class WritingTrial:
    """What writing the sample one way took, with all workers at it, and how large it became."""

    compress: str
    seconds: float
    size_bytes: int


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


def tiles_folder(session: Session) -> Path:
    """Where tiles, their jobs and their manifest lie."""
    return session.workspace.root / "tiles"


def open_for_tiles(session: Session, *, pool: HandlePool, threads: int) -> tuple[list[SceneFacts], list[Finding]]:
    """The scenes that can be tiled, in the order of their ids, and what was found; which pixels their tiles have is told."""
    settings = session.settings
    with session.stage("scan", str(settings.data)):
        scanned = find_scenes(session)
    scanned.scenes.sort(key=lambda scene: scene.scene_id)
    with session.stage("inspect", format_count(len(scanned.scenes), "scene")):
        facts, findings = open_scenes(session, scanned, pool=pool, threads=threads, same_bands=False)
    resampled = list(dict.fromkeys(band.name for one in facts for band in one.bands if band.warped))
    sizes = sorted({f"{abs(one.grid.transform[0]):g}" for one in facts if one.grid.crs}, key=float)
    what = f"pixels of {list_some(sizes, limit=3)} units of the map" if sizes else "plain pixels without a place on the map"
    how = f"{', '.join(resampled)} resampled onto it ({settings.resampling})" if resampled else "no band is resampled"
    session.chose(Choice("grid", settings.grid, f"{what}; {how}", {"resampled": resampled, "pixel_sizes": sizes}))
    return facts, findings


def choose_scales(
    session: Session, facts: Sequence[SceneFacts], findings: Sequence[Finding], *, pool: HandlePool, threads: int, file: Path
) -> tuple[dict[str, SceneScale], list[SceneFacts], list[Finding]]:
    """What each scene's bands are divided by, with the scenes that are left and all that was found by now.

    `file` keeps the figures, so that a second run need not read the scenes again.
    """
    how = session.settings.normalise or DEFAULT_NORMALISE
    keys = {one.scene_id: _scale_key(one, how) for one in facts}
    kept = _load_scales(file)
    known = {scene_id: kept[key] for scene_id, key in keys.items() if key in kept}
    with session.stage("scale", how):
        scales, broken = measure_scales(facts, how, pool=pool, threads=threads, known=known)
    left, findings = [one for one in facts if one.scene_id in scales], [*findings, *broken]
    require_scenes(left, findings, session.settings.data or "")
    if not scales.keys() <= known.keys():
        kept |= {keys[scene_id]: scale for scene_id, scale in scales.items()}
        checksums.save_checked_json(file, {key: scale.to_dict() for key, scale in kept.items()})
    given = "as asked" if session.settings.normalise else "the default"
    numbers = _spell_scale(left[0].band_names, scales[left[0].scene_id])
    shown = f"; {left[0].scene_id}: {list_some(numbers, limit=6)}" if how != "none" else ""
    evidence = {one.scene_id: scales[one.scene_id].to_dict() for one in left[:8]}
    sampled = sampling_text(left, how)
    reason = f"{given}; constants of a scene are the same for all its tiles{shown}" + (f"; {sampled}" if sampled else "")
    session.chose(Choice("normalise", how, reason, evidence))
    return scales, left, findings


def _scale_key(facts: SceneFacts, how: str) -> str:
    bands = [[band.name, band.number, str(band.nodata), band.scale, band.offset] for band in facts.bands]
    return digest([facts.content, how, bands, asdict(facts.grid), facts.resampling])[:32]


def _load_scales(file: Path) -> dict[str, SceneScale]:
    """The figures of an earlier run; a file that cannot be read is no loss."""
    try:
        found = checksums.load_checked_json(file)
        return {key: SceneScale.from_dict(one) for key, one in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DamagedFile):
        return {}


def _spell_scale(names: Iterable[str], scale: SceneScale) -> list[str]:
    """``B2 / 10000``, or ``(B2 - 120) / 4000`` where something is taken off first."""
    parts = zip(names, scale.low, scale.divide, strict=True)
    return [f"({name} - {low:g}) / {divide:g}" if low else f"{name} / {divide:g}" for name, low, divide in parts]


def choose_masks(session: Session, facts: Sequence[SceneFacts]) -> dict[str, MaskSource | None]:
    """Where each scene's mask comes from. Scenes with the same bands share one source."""
    labelled = any(one.scene.label is not None for one in facts)
    by_bands = {
        bands: choose_mask(session.settings, band_names=bands, labelled=labelled)
        for bands in dict.fromkeys(one.band_names for one in facts)
    }
    return {one.scene_id: by_bands[one.band_names] for one in facts}


def choose_recipe(
    session: Session, facts: Sequence[SceneFacts], scales: Mapping[str, SceneScale], *, pool: HandlePool, workers: int, root: Path
) -> TileRecipe:
    """Everything that shapes the files: as typed, as measured before in this workspace, or measured now."""
    settings, before = session.settings, _EarlierChoices.of(session, root)
    overlap_px, tile_px, compress = settings.overlap or 0, settings.tile_size, settings.compress
    if compress is None:
        compress = before.settle(session, "compress", lambda: _measure_compress(session, facts, scales, pool, workers))
    if tile_px == "auto":
        largest = max(facts, key=lambda one: one.num_pixels)
        scale = scales[largest.scene_id]
        spec = TileSpec(largest, scale, "", overlap_px=overlap_px, compress=compress, store=settings.store)
        tile_px = before.settle(session, "tile_size", lambda: _measure_tile_px(session, spec, pool))
    refuse_overlap(overlap_px, tile_px)
    return TileRecipe(tile_px, overlap_px, compress)


def rehearse_tile_px(session: Session, facts: Sequence[SceneFacts], count: Callable[[int], int], *, root: Path) -> int:
    """The side of tiles that a rehearsal counts for; where it is still to be measured, what each size would give is told."""
    asked, overlap_px = session.settings.tile_size, session.settings.overlap or 0
    if asked != "auto":
        return asked
    if (before := _EarlierChoices.of(session, root).known("tile_size")) is not None:
        session.chose(before)
        return int(before.value)
    largest = max(facts, key=lambda one: one.num_pixels)
    sizes_px = _sizes_to_try(largest, overlap_px) or [DEFAULT_TILE_PX]
    counted_px = DEFAULT_TILE_PX if DEFAULT_TILE_PX in sizes_px or len(sizes_px) < 2 else sizes_px[-1]
    counts = {size: count(size) for size in sorted({*sizes_px, counted_px}) if size > overlap_px}
    told = ", ".join(f"{format_count(num, 'tile')} of {size} px" for size, num in counts.items())
    reason = f"measured when tiles are made, on these scenes: {told}; what follows is counted for {counted_px} px"
    session.chose(Choice("tile_size", "auto", reason, {"tiles": {str(size): num for size, num in counts.items()}}))
    return counted_px


def _sizes_to_try(facts: SceneFacts, overlap_px: int) -> list[int]:
    """The sizes that `auto` compares on a scene; fewer than two leave nothing to compare."""
    shortest_px = min(facts.grid.height, facts.grid.width)
    return [size for size in tile_sizes_px(facts.bands[0].block, shortest_side_px=shortest_px) if size > overlap_px]


def tile_specs(
    session: Session,
    facts: Sequence[SceneFacts],
    scales: Mapping[str, SceneScale],
    masks: Mapping[str, MaskSource | None],
    recipe: TileRecipe,
) -> list[TileSpec]:
    """How the tiles of each scene are made; which folder they go to is left open."""
    settings = session.settings
    return [
        TileSpec(
            facts=one,
            scale=scales[one.scene_id],
            folder="",
            size_px=recipe.tile_px,
            overlap_px=recipe.overlap_px,
            edges=settings.edges,
            mask=masks[one.scene_id],
            compress=recipe.compress,
            store=settings.store,
            min_valid=settings.min_valid,
        )
        for one in facts
    ]


def refuse_overlap(overlap_px: int, tile_px: int) -> None:
    """Windows that share all they have would never get on."""
    if overlap_px >= tile_px:
        raise UsageError(
            f"tiles of {tile_px} px cannot share {overlap_px} px",
            code="bad-overlap",
            why="an overlap must be smaller than the tile",
            try_=f"--overlap {tile_px // 8}, or a larger --tile-size",
        )


class _EarlierChoices:
    """Measured choices of this workspace, for one set of settings; other settings start a new file."""

    def __init__(self, file: Path, *, key: str) -> None:
        self._file, self._key = file, key
        self._choices: dict[str, Any] = {}
        try:
            found = checksums.load_checked_json(file)
            self._choices = dict(found["choices"]) if found["key"] == key else {}
        except (OSError, ValueError, KeyError, TypeError, DamagedFile):
            pass  # measured again: a lost file costs seconds

    @classmethod
    def of(cls, session: Session, root: Path) -> _EarlierChoices:
        """Those of the settings in force, for tiles in `root`."""
        return cls(root / "measured.json", key=digest([str(getattr(session.settings, name)) for name in _ABOUT_TILES]))

    def known(self, name: str) -> Choice | None:
        """What was measured before, with its figures."""
        if name not in self._choices:
            return None
        before = Choice(**self._choices[name])
        return replace(before, reason=f"measured before in this workspace; {before.reason}")

    def settle(self, session: Session, name: str, measure: Callable[[], Choice]) -> Any:
        """What was measured before, with its figures, or is measured now and kept; it is told."""
        choice = self.known(name)
        if choice is None:
            choice = measure()
            self._choices[name] = choice.to_dict()
            checksums.save_checked_json(self._file, {"key": self._key, "choices": self._choices})
        session.chose(choice)
        return choice.value


@contextmanager
def scratch_folder(session: Session) -> Iterator[Path]:
    """A folder on the disk of the workspace that is gone afterwards; one that a kill leaves is swept by the next command."""
    prefix, suffix = atomic.TEMPORARY_PREFIX, atomic.TEMPORARY_SUFFIX
    with tempfile.TemporaryDirectory(dir=session.workspace.root, prefix=prefix, suffix=suffix) as name:
        yield Path(name)


def _measure_compress(
    session: Session, facts: Sequence[SceneFacts], scales: Mapping[str, SceneScale], pool: HandlePool, workers: int
) -> Choice:
    size_px = session.settings.tile_size if session.settings.tile_size != "auto" else DEFAULT_TILE_PX
    with session.stage("try writing", format_count(_SAMPLE_WINDOWS, "window")), scratch_folder(session) as folder:
        sample = list(_sample(facts, scales, size_px=size_px, store=session.settings.store, pool=pool))
        if not sample:
            return Choice("compress", candidates()[0], "no window could be read to measure on")
        return choose_compress(measure_writing(sample, folder=folder, workers=workers))


def _sample(
    facts: Sequence[SceneFacts], scales: Mapping[str, SceneScale], *, size_px: int, store: str, pool: HandlePool
) -> Iterator[dict[str, NDArray[Any]]]:
    """A few windows as they would be written, from scenes spread over the list; what cannot be read is left to its job.

    They lie on the diagonal of a scene, because there is more nodata in its corners.
    """
    for number in range(_SAMPLE_WINDOWS):
        one, share = facts[number * len(facts) // _SAMPLE_WINDOWS], (number + 0.5) / _SAMPLE_WINDOWS
        height, width = min(size_px, one.grid.height), min(size_px, one.grid.width)
        box = Box(int(share * (one.grid.height - height)), int(share * (one.grid.width - width)), height, width)
        try:
            bands, valid = read_box(one, box, pool=pool, dtype="raw" if store == "raw" else "float32")
        except SceneError:
            continue
        if store != "raw":
            apply_scale(cast("NDArray[np.float32]", bands), scales[one.scene_id], valid)
        yield {"bands": bands, "valid": valid}


def _measure_tile_px(session: Session, spec: TileSpec, pool: HandlePool) -> Choice:
    """Tiles of several sizes from the first strips of the largest scene, made for real and thrown away."""
    sizes_px = _sizes_to_try(spec.facts, spec.overlap_px)
    if len(sizes_px) < 2:
        return Choice("tile_size", DEFAULT_TILE_PX, f"{spec.facts.scene_id} is too small to compare sizes on")
    with session.stage("try sizes", ", ".join(map(str, sizes_px))), scratch_folder(session) as folder:

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


def candidates() -> tuple[Compress, ...]:
    """The ways there are to write tiles here; isal is an optional package."""
    return ("isal", "none") if find_spec("isal") else ("zlib", "none")


def measure_writing(tiles: Sequence[Mapping[str, NDArray[Any]]], *, folder: Path, workers: int) -> list[WritingTrial]:
    """Each way of writing `tiles`: compressing counts once for all workers, the disk of `folder` is shared by them."""
    disk_bytes_per_s = measure_disk(folder)
    measured = []
    for compress in candidates():
        size_bytes, started_s = 0, time.perf_counter()
        for arrays in tiles:
            size_bytes += write_npz(io.BytesIO(), arrays, compress=compress)[1]
        computing_s = time.perf_counter() - started_s
        measured.append(WritingTrial(compress, computing_s / workers + size_bytes / disk_bytes_per_s, size_bytes))
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


def choose_compress(measured: Sequence[WritingTrial]) -> Choice:
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
