"""Masks and pixels of all patches as memory-mapped arrays: read from the scenes once, then by position.

In: patches and a function that reads one. Out: plain `.npy` files under `patches/`, named after a digest of all they depend on,
and `PatchArrays` that maps them. A file appears whole or not at all: after a kill it is begun anew and has the same bytes. Rows
of a scene that broke on the way are filled with nothing and reported, and the file is not taken for whole in a later run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.ahead import map_ahead
from unchoke.masks.patches import Patch
from unchoke.scenes.scene_facts import IGNORE, SceneError

NUM_VALUES = 256
OnRow = Callable[[int], None]
Positions = NDArray[np.int64]


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
    """What is kept of each patch, by position: its mask, how many pixels have each value, and for `--cut none` its pixels."""

    mask_rows: MappedRows
    count_rows: MappedRows
    pixel_rows: MappedRows | None = None

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

    def counts(self, positions: Positions | None = None) -> NDArray[np.int64]:
        """(n, 256): how many pixels of each patch have each value; of all patches where no positions are given."""
        chosen = np.arange(self.num_patches) if positions is None else positions
        return self.count_rows.take(chosen).astype(np.int64)

    def keep(self, positions: Positions) -> PatchArrays:
        """Only these patches, in this order."""
        pixels = None if self.pixel_rows is None else self.pixel_rows.keep(positions)
        return PatchArrays(self.mask_rows.keep(positions), self.count_rows.keep(positions), pixels)


@dataclass(frozen=True)
class Built:
    """A file with a row for each patch; `failed` maps the scenes whose rows hold nothing to the reason."""

    file: Path
    failed: dict[str, str]


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

    def finish() -> None:
        atomic.write_with(counts_file, lambda file: np.save(file, counts, allow_pickle=False))

    shape, blank = (patch_px, patch_px), np.uint8(IGNORE)
    built = _build(folder, name, patches, read, key=key, shape=shape, blank=blank, threads=threads, on_row=on_row,
                   note=note, finish=finish)  # fmt: skip
    rows = np.arange(len(patches))
    return PatchArrays(MappedRows(built.file, rows), MappedRows(counts_file, rows)), built.failed


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
    built = _build(folder, name, patches, read, key=key, shape=shape, blank=blank, threads=threads, on_row=on_row)
    return MappedRows(built.file, np.arange(len(patches))), built.failed


def holds(folder: Path, name: str, key: str) -> bool:
    """Whether the array is there and whole; `name` without its digest, such as `pixels`."""
    about, file = folder / f"{name}-{key[:8]}.json", folder / f"{name}-{key[:8]}.npy"
    try:
        known = json.loads(about.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return bool(known["key"] == key and not known["failed"] and file.is_file() and file.stat().st_size == known["size_bytes"])


def _build(
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
    finish: Callable[[], None] | None = None,
) -> Built:
    """Write the array, then what belongs to it, then the word that it is whole."""
    file = folder / f"{name}.npy"
    if holds(folder, name.rpartition("-")[0], key):
        return Built(file, {})
    (folder / f"{name}.json").unlink(missing_ok=True)
    failed: dict[str, str] = {}

    def write(stream: IO[bytes]) -> None:
        _write_header(stream, (len(patches), *shape), blank.dtype)
        for number, row in enumerate(_rows(patches, read, shape, blank, threads, failed)):
            stream.write(np.ascontiguousarray(row).data)
            if note is not None:
                note(number, row)
            if on_row is not None:
                on_row(number + 1)

    atomic.write_with(file, write)
    if finish is not None:
        finish()
    atomic.write_json(folder / f"{name}.json", {"key": key, "failed": failed, "size_bytes": file.stat().st_size})
    return Built(file, failed)


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


def _write_header(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """The beginning of a `.npy` file, as `np.save` would write it."""
    np.lib.format.write_array_header_1_0(
        stream, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
