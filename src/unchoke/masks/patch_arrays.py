"""Masks, bands and scores of all patches as memory-mapped arrays.

In: patches and a function that reads one. Out: plain `.npy` files under `patches/`, named after a digest of all they depend on,
and `PatchArrays` that maps them. A file appears whole or not at all: after a kill it is begun anew and has the same bytes. Rows
of a scene that could not be read are left empty and reported, and a later run does not take the file for complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, checksums
from unchoke.core.ahead import map_ahead
from unchoke.core.fingerprint import digest_file
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
        if not self._maps:
            self._maps.append(np.load(self.file, mmap_mode="r", allow_pickle=False))
        source, rows = self._maps[0], self.rows[positions]
        if out is None:
            out = np.empty((len(rows), *source.shape[1:]), source.dtype)
        for place, row in enumerate(rows.tolist()):
            out[place] = source[row]
        return out

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

    def masks(self, positions: Positions) -> NDArray[np.uint8]:
        """(n, px, px) classes; 255 where none is known."""
        return self.mask_rows.take(positions)

    def pixels(self, positions: Positions, *, out: NDArray[np.float16] | None = None) -> NDArray[np.float16]:
        """(n, bands, px, px) standardised pixels, where they are kept."""
        assert self.pixel_rows is not None, "these patches keep no pixels"
        return self.pixel_rows.take(positions, out=out)

    def scores(self, positions: Positions, *, out: NDArray[np.float16] | None = None) -> NDArray[np.float16]:
        """(n, classes, px, px): what speaks for each class by the spectrum of a pixel alone, where it is kept."""
        assert self.score_rows is not None, "these patches keep no scores"
        return self.score_rows.take(positions, out=out)

    def counts(self, positions: Positions | None = None) -> NDArray[np.int64]:
        """(n, 256): how many pixels of each patch have each value; of all patches where no positions are given."""
        return self.count_rows.take(np.arange(self.num_patches) if positions is None else positions).astype(np.int64)

    def keep(self, positions: Positions) -> PatchArrays:
        """Only these patches, in this order."""
        kept = {name: rows and replace(rows, rows=rows.rows[positions]) for name, rows in vars(self).items()}
        return replace(self, **kept)


def build_masks(
    folder: Path,
    patches: Sequence[Patch],
    read: Callable[[Patch], NDArray[np.uint8]],
    *,
    key: str,
    patch_px: int,
    threads: int,
    on_row: OnRow = lambda _: None,
) -> tuple[PatchArrays, dict[str, str]]:
    """`masks-<key>.npy` and the counts beside it, made unless they are there; also the scenes that could not be read."""
    counts_file = folder / f"masks-{key[:8]}-counts.npy"

    def count(file: Path) -> Path:
        masks = np.load(file, mmap_mode="r", allow_pickle=False)
        counts = np.array([np.bincount(one.ravel(), minlength=NUM_VALUES) for one in masks], np.uint32).reshape(-1, NUM_VALUES)
        atomic.write_with(counts_file, lambda target: np.save(target, counts, allow_pickle=False))
        return counts_file

    shape, blank = (patch_px, patch_px), np.uint8(IGNORE)
    rows, failed = build_rows(
        folder, "masks", patches, read, key=key, shape=shape, blank=blank, threads=threads, on_row=on_row, beside=count
    )
    return PatchArrays(rows, MappedRows(counts_file, rows.rows)), failed


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
    on_row: OnRow = lambda _: None,
    beside: Callable[[Path], Path] | None = None,
) -> tuple[MappedRows, dict[str, str]]:
    """`<name>-<key>.npy` with a row for each patch, unless it is there; also the scenes that could not be read, with the reason.

    Written in this order: the array, what `beside` makes of it, the JSON that says that both are whole.
    """
    file, about_file = folder / f"{name}-{key[:8]}.npy", folder / f"{name}-{key[:8]}.json"
    mapped = MappedRows(file, np.arange(len(patches)))
    if holds(folder, name, key):
        return mapped, {}
    about_file.unlink(missing_ok=True)
    failed: dict[str, str] = {}

    def attempt(patch: Patch) -> NDArray[Any] | SceneError:
        try:
            return read(patch)
        except SceneError as error:
            return error

    def write(stream: IO[bytes]) -> None:
        dtype = np.lib.format.dtype_to_descr(blank.dtype)
        header = {"descr": dtype, "fortran_order": False, "shape": (len(patches), *shape)}
        np.lib.format.write_array_header_1_0(stream, header)  # as np.save begins a file
        results = map_ahead(attempt, patches, threads=threads, ahead=4 * max(1, threads))
        for number, (patch, row) in enumerate(zip(patches, results, strict=True), start=1):
            if isinstance(row, SceneError):
                failed.setdefault(patch.scene_id, f"{row.what}: {row.why}")
                row = np.full(shape, blank)
            stream.write(np.ascontiguousarray(row, blank.dtype).data)
            on_row(number)

    atomic.write_with(file, write)
    made = [file] if beside is None else [file, beside(file)]
    about = {"key": key, "failed": failed, "size_bytes": file.stat().st_size}
    checksums.save_checked_json(about_file, {**about, "sha256": {one.name: digest_file(one) for one in made}})
    return mapped, failed
