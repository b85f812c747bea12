"""Masks and bands of all patches as memory-mapped arrays, and what the masks say: the classes, their names, patches without any.

In: patches and a function that reads one. Out: plain `.npy` files under `patches/`, named after a digest of all they depend on,
and `PatchArrays` that maps them. A file appears whole or not at all: after a kill it is begun anew and has the same bytes. Rows
of a scene that could not be read are left empty and reported, and a later run does not take the file for complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, checksums
from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.events import Progress
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest, digest_file
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.masks.patches import Patch, pixels_key, read_mask
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource, choose_mask
from unchoke.scenes.open_scenes import broken_scene
from unchoke.scenes.scene_facts import IGNORE, SceneError, SceneFacts

NUM_VALUES = 256
OnRow = Callable[[int], None]
Positions = NDArray[np.int64]
_TELL_EVERY_S = 0.2


@dataclass(frozen=True, eq=False)
class MappedRows:
    """Rows of a `.npy` file by position. `rows[position]` is the row in the file: patches are left out without copying anything.

    Travels to other processes as a path; each maps the file for itself.
    """

    file: Path
    rows: Positions
    _maps: list[NDArray[Any]] = field(default_factory=list, repr=False)

    def take(self, positions: Positions, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The rows at `positions`, put into `out` where it is given, each copied once."""
        source, rows = self._map(), self.rows[positions]
        if out is None:
            out = np.empty((len(rows), *source.shape[1:]), source.dtype)
        for place, row in enumerate(rows.tolist()):
            out[place] = source[row]
        return out

    def keep(self, positions: Positions) -> MappedRows:
        """Only these rows, in this order."""
        return replace(self, rows=self.rows[positions])

    def _map(self) -> NDArray[Any]:
        if not self._maps:
            self._maps.append(np.load(self.file, mmap_mode="r", allow_pickle=False))
        return self._maps[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": []}


@dataclass(frozen=True, eq=False)
class PatchArrays:
    """What is kept of each patch, by position: its mask, how many pixels have each value, its bands, and the scores of trees."""

    mask_rows: MappedRows
    count_rows: MappedRows
    pixel_rows: MappedRows | None = None
    score_rows: MappedRows | None = None

    @property
    def num_patches(self) -> int:
        return len(self.mask_rows.rows)

    def masks(self, positions: Positions, *, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """(n, px, px) classes; 255 where none is known."""
        return self.mask_rows.take(positions, out=out)

    def pixels(self, positions: Positions, *, out: NDArray[np.float16] | None = None) -> NDArray[np.float16]:
        """(n, bands, px, px) standardised pixels, where they are kept."""
        if self.pixel_rows is None:
            raise ValueError("these patches keep no pixels")
        return self.pixel_rows.take(positions, out=out)

    def scores(self, positions: Positions, *, out: NDArray[np.float16] | None = None) -> NDArray[np.float16]:
        """(n, classes, px, px): what speaks for each class by the spectrum of a pixel alone, where it is kept."""
        if self.score_rows is None:
            raise ValueError("these patches keep no scores")
        return self.score_rows.take(positions, out=out)

    def counts(self, positions: Positions | None = None) -> NDArray[np.int64]:
        """(n, 256): how many pixels of each patch have each value; of all patches where no positions are given."""
        chosen = np.arange(self.num_patches) if positions is None else positions
        return self.count_rows.take(chosen).astype(np.int64)

    def keep(self, positions: Positions) -> PatchArrays:
        """Only these patches, in this order."""
        pixels = None if self.pixel_rows is None else self.pixel_rows.keep(positions)
        scores = None if self.score_rows is None else self.score_rows.keep(positions)
        return PatchArrays(self.mask_rows.keep(positions), self.count_rows.keep(positions), pixels, scores)


def build_masks(
    folder: Path,
    patches: Sequence[Patch],
    read: Callable[[Patch], NDArray[np.uint8]],
    *,
    key: str,
    patch_px: int,
    threads: int,
    on_row: OnRow | None = None,
) -> tuple[PatchArrays, dict[str, str]]:
    """`masks-<key>.npy` and the counts beside it, made unless they are there; also the scenes that could not be read."""
    name, counts_file = f"masks-{key[:8]}", folder / f"masks-{key[:8]}-counts.npy"
    counts = np.zeros((len(patches), NUM_VALUES), np.uint32)

    def note(number: int, mask: NDArray[Any]) -> None:
        counts[number] = np.bincount(mask.ravel(), minlength=NUM_VALUES)

    def finish() -> Path:
        atomic.write_with(counts_file, lambda file: np.save(file, counts, allow_pickle=False))
        return counts_file

    shape, blank = (patch_px, patch_px), np.uint8(IGNORE)
    file, failed = build_rows(folder, name, patches, read, key=key, shape=shape, blank=blank, threads=threads, on_row=on_row,
                          note=note, finish=finish)  # fmt: skip
    rows = np.arange(len(patches))
    return PatchArrays(MappedRows(file, rows), MappedRows(counts_file, rows)), failed


def build_pixels(
    folder: Path,
    patches: Sequence[Patch],
    read: Callable[[Patch], NDArray[np.float16]],
    *,
    key: str,
    shape: tuple[int, int, int],
    threads: int,
    on_row: OnRow | None = None,
) -> tuple[MappedRows, dict[str, str]]:
    """`pixels-<key>.npy` of (bands, px, px) patches, made unless it is there; also the scenes that could not be read."""
    name, blank = f"pixels-{key[:8]}", np.float16(0)
    file, failed = build_rows(folder, name, patches, read, key=key, shape=shape, blank=blank, threads=threads, on_row=on_row)
    return MappedRows(file, np.arange(len(patches))), failed


def holds(folder: Path, name: str, key: str) -> bool:
    """Whether the array is there and whole; `name` without its digest, such as `pixels`."""
    known = checksums.recall_json(folder / f"{name}-{key[:8]}.json", lambda _: None)
    if known.get("key") != key or known.get("failed"):
        return False
    sums = known.get("sha256") or {}
    file = folder / f"{name}-{key[:8]}.npy"
    whole = file.is_file() and file.stat().st_size == known.get("size_bytes")
    return whole and all((folder / one).is_file() and digest_file(folder / one) == sums[one] for one in sums)


def build_rows(
    folder: Path,
    name: str,
    patches: Sequence[Patch],
    read: Callable[[Patch], NDArray[Any]],
    *,
    key: str,
    shape: tuple[int, ...],
    blank: np.generic,
    threads: int,
    on_row: OnRow | None,
    note: Callable[[int, NDArray[Any]], None] | None = None,
    finish: Callable[[], Path] | None = None,
) -> tuple[Path, dict[str, str]]:
    """Write the array, then what belongs to it, then the word that it is whole; the scenes that could not be read, with why."""
    file = folder / f"{name}.npy"
    if holds(folder, name.rpartition("-")[0], key):
        return file, {}
    (folder / f"{name}.json").unlink(missing_ok=True)
    failed: dict[str, str] = {}

    def write(stream: IO[bytes]) -> None:
        dtype = np.lib.format.dtype_to_descr(blank.dtype)
        header = {"descr": dtype, "fortran_order": False, "shape": (len(patches), *shape)}
        np.lib.format.write_array_header_1_0(stream, header)  # as np.save begins a file
        for number, row in enumerate(_rows(patches, read, shape, blank, threads, failed)):
            stream.write(np.ascontiguousarray(row).data)
            if note is not None:
                note(number, row)
            if on_row is not None:
                on_row(number + 1)

    atomic.write_with(file, write)
    made = [file.name] if finish is None else [file.name, finish().name]
    about = {"key": key, "failed": failed, "size_bytes": file.stat().st_size}
    checksums.save_checked_json(folder / f"{name}.json", {**about, "sha256": {one: digest_file(folder / one) for one in made}})
    return file, failed


def _rows(
    patches: Sequence[Patch],
    read: Callable[[Patch], NDArray[Any]],
    shape: tuple[int, ...],
    blank: np.generic,
    threads: int,
    failed: dict[str, str],
) -> Iterator[NDArray[Any]]:
    """The rows in order; a scene that breaks is noted in `failed`, and blank rows stand for it."""

    def attempt(patch: Patch) -> NDArray[Any] | SceneError:
        try:
            return read(patch)
        except SceneError as error:
            return error

    results = map_ahead(attempt, patches, threads=threads, ahead=4 * max(1, threads))
    for patch, result in zip(patches, results, strict=True):
        if isinstance(result, SceneError):
            failed.setdefault(patch.scene_id, f"{result.what}: {result.why}")
            yield np.full(shape, blank)
        else:
            yield result.astype(blank.dtype, copy=False)


@dataclass(frozen=True)
class LabelledPatches:
    """Patches and what is kept of each, at the same positions."""

    patches: list[Patch]
    arrays: PatchArrays

    def chosen(self, wanted: Sequence[bool] | NDArray[np.bool_]) -> LabelledPatches:
        """Those for which `wanted` is true."""
        positions = np.flatnonzero(np.asarray(wanted, bool))
        return LabelledPatches([self.patches[position] for position in positions.tolist()], self.arrays.keep(positions))


def open_mask_source(settings: Settings, facts: Sequence[SceneFacts]) -> MaskSource:
    labelled = any(scene.label is not None for scene in facts)
    source = choose_mask(settings, band_names=facts[0].band_names, labelled=labelled)
    if source is None:
        raise UsageError(
            "there is nothing to learn masks from",
            code="no-masks",
            why="no label raster was found beside the scenes, and neither --mask nor --polygons was given",
            try_="--label FOLDER of rasters, --mask '(B3-B5)/(B3+B5) > 0', or --polygons FILE.geojson",
        )
    return source


def with_labels(session: Session, facts: list[SceneFacts]) -> list[SceneFacts]:
    """Where labels are rasters, only the scenes that have one can teach anything."""
    if session.settings.mask or session.settings.polygons:
        return facts
    kept = [scene for scene in facts if scene.label is not None]
    if len(kept) < len(facts):
        without = [scene.scene_id for scene in facts if scene.label is None]
        reason = f"{format_count(len(without), 'scene')} without a label raster: {list_some(without)}"
        session.chose(Choice("scenes", format_count(len(kept), "scene"), reason, {"unlabelled": without}))
    return kept


def keep_masks(
    session: Session,
    folder: Path,
    facts: Sequence[SceneFacts],
    patches: list[Patch],
    source: MaskSource,
    *,
    pool: HandlePool,
    patch_px: int,
) -> tuple[LabelledPatches, list[Finding]]:
    """The masks of all patches, and a finding for every scene that broke while they were read."""
    by_scene = {scene.scene_id: scene for scene in facts}
    scenes = {scene.scene_id: digest([scene.content, pixels_key(scene)]) for scene in facts}
    boxes = [[patch.patch_id, list(patch.box), scenes[patch.scene_id]] for patch in patches]
    key = digest(["masks, version 1", boxes, dict(source.describe())])

    def read(patch: Patch) -> NDArray[np.uint8]:
        return read_mask(by_scene[patch.scene_id], patch.box, pool=pool, source=source)

    with session.stage("masks", format_count(len(patches), "patch", "patches")):
        arrays, failed = build_masks(
            folder, patches, read, key=key, patch_px=patch_px, threads=session.policy.workers,
            on_row=teller(session, "masks", len(patches)),
        )  # fmt: skip
    lost = [broken_scene(by_scene[scene_id].scene, reason, stage="masks") for scene_id, reason in failed.items()]
    return LabelledPatches(patches, arrays), lost


def teller(session: Session, stage: str, total: int) -> Callable[[int], None]:
    """Says how far a stage is, a few times a second."""
    started = told = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told > _TELL_EVERY_S or done == total:
            rate = done / max(now - started, 1e-6)
            session.on_event(Progress(stage, done, total, "patches", rate, (total - done) / rate))
            told = now

    return tell


def name_classes(settings: Settings, kept: LabelledPatches) -> tuple[str, ...]:
    """The classes 0, 1, …: as named in the settings, or as many as the labels have."""
    counts = kept.arrays.counts()
    found = np.flatnonzero(counts[:, :IGNORE].any(axis=0)).tolist()
    if settings.classes:
        _refuse_unnamed(settings.classes, found, kept.patches, counts)
        return settings.classes
    if not found:
        raise DataError(
            "no pixel of any scene has a label",
            code="no-labelled-pixels",
            why="every pixel is outside the labels, not valid, or has the value to be ignored",
            try_="check that labels and scenes lie in the same place, and what --ignore says",
        )
    if (settings.mask or settings.polygons) and not settings.polygon_class:
        return ("background", "mask")
    if found == [0]:
        raise DataError(
            "every labelled pixel is of class 0",
            code="single-class",
            why="there is nothing to tell apart",
            try_="give labels with at least two values, or name the classes with --classes",
        )
    return tuple(f"class {number}" for number in range(found[-1] + 1))


def _refuse_unnamed(names: Sequence[str], found: Sequence[int], patches: Sequence[Patch], counts: NDArray[np.int64]) -> None:
    """Names must be two at least, 255 at most, each its own, and enough for the values that labels have."""
    if not 2 <= len(names) <= IGNORE or len(set(names)) < len(names):
        raise UsageError(
            f"--classes names {format_count(len(names), 'class', 'classes')}, {len(set(names))} of them different",
            code="bad-class-names",
            why=f"there must be 2 to {IGNORE} classes, each with a name of its own",
            try_="--classes clear,cloud",
        )
    if above := [value for value in found if value >= len(names)]:
        scene_id = patches[int(np.flatnonzero(counts[:, above[0]])[0])].scene_id
        raise DataError(
            f"the labels of scene {scene_id} hold the value {above[0]}",
            code="label-out-of-range",
            why=f"--classes names {len(names)}, so that values may be 0 to {len(names) - 1}",
            try_=f"name all classes, or leave that value out with --ignore {above[0]}",
        )


def labelled_only(session: Session, kept: LabelledPatches) -> LabelledPatches:
    """Only patches with at least one labelled, valid pixel."""
    labelled = kept.arrays.counts()[:, :IGNORE].sum(axis=1) > 0
    if not labelled.all():
        without = int((~labelled).sum())
        reason = f"{format_count(without, 'patch', 'patches')} of {len(kept.patches):,} have no labelled pixel and are not used"
        session.chose(Choice("patches", int(labelled.sum()), reason, {"unlabelled": without}))
    return kept.chosen(labelled)
