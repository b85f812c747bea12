"""Features on disk: float16 NPZ shards, written whole, read by memory map, and the queue's records as an index into them.

A row is what one view of an item became. Of a photo: a vector (member `global_pool`), or the activations at a cut, tile by tile
(member `activations`); further views are in `views`. Of a patch: maps at several strides, an array for each level and view
(`stride_4`, …, `view1_stride_4`, …), flattened side by side in the row. A shard is an ordinary uncompressed `.npz` that `np.load`
opens.

Because its members are stored, not compressed, each array lies contiguous in the file: `FeatureStore` maps the file and finds the
array by its offset, so training reads rows without loading shards. Mapping goes through torch, which closes the descriptor again:
thousands of shards fit under a limit of 64 open files.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest_bytes
from unchoke.jobs.name_places import Places
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import DoneRecord

Half = NDArray[np.float16]
Levels = Mapping[str, tuple[int, ...]]
"""The arrays a row consists of, by name, where it is more than one: their shapes, in the order they have in the row."""
POOLED = "global_pool"
ACTIVATIONS = "activations"
VIEWS = "views"
_LOCAL_HEADER_BYTES = 30
_LARGE_ROW_BYTES = 16_384


class FeatureOverflow(ValueError):  # noqa: N818 (a fact about the numbers)
    """A feature too large for float16; storing infinity would poison training in silence."""


def to_half(features: NDArray[np.float32], *, of: str = "the encoder") -> Half:
    """float16, refused if any value overflows or was not finite to begin with."""
    with np.errstate(over="ignore"):
        half = features.astype(np.float16)
    unfit = features[~np.isfinite(half)]
    if unfit.size:
        raise FeatureOverflow(f"a feature of {float(unfit.flat[0]):.4g} of {of} does not fit float16 (largest is 65504)")
    return half


def save_shard(path: Path, arrays: Mapping[str, NDArray[np.float16]], sample_ids: Sequence[str]) -> tuple[str, int]:
    """Write a shard atomically; return its SHA-256 and size. The same content gives the same bytes."""
    buffer = io.BytesIO()
    ids = np.array(list(sample_ids), dtype=np.str_) if sample_ids else np.array([], dtype="<U1")
    members: dict[str, NDArray[np.float16] | NDArray[np.str_]] = {**arrays, "sample_id": ids}
    np.savez(buffer, allow_pickle=False, **members)
    data = buffer.getbuffer()
    atomic.write_with(path, lambda file: file.write(data))
    return digest_bytes(data), len(data)


def save_rows(
    path: Path, rows_nv: Half, sample_ids: Sequence[str], *, name: str = POOLED, levels: Levels | None = None
) -> tuple[str, int]:
    """Write a shard of (items, views, …): as the array `name` and further views, or as an array for each level and view."""
    arrays = {}
    if levels:
        for view in range(rows_nv.shape[1]):
            for (level, shape), part in zip(levels.items(), _level_slices(levels), strict=True):
                arrays[_level_name(level, view)] = np.ascontiguousarray(rows_nv[:, view, part]).reshape(len(rows_nv), *shape)
    else:
        arrays[name] = np.ascontiguousarray(rows_nv[:, 0])
        if rows_nv.shape[1] > 1:
            arrays[VIEWS] = np.ascontiguousarray(rows_nv[:, 1:])
    return save_shard(path, arrays, sample_ids)


def _level_name(level: str, view: int) -> str:
    """``stride_4``, or ``view2_stride_4`` for a further view."""
    return level if view == 0 else f"view{view}_{level}"


def _level_slices(levels: Levels) -> list[slice]:
    """Where each level lies in a row."""
    lengths = [math.prod(shape) for shape in levels.values()]
    ends = np.cumsum(lengths).tolist()
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def load_shard_ids(path: Path) -> list[str]:
    """The sample ids of a shard; a pickle hidden in it is refused, not run."""
    try:
        with np.load(path, allow_pickle=False) as shard:
            return [str(name) for name in shard["sample_id"]]
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise _not_a_shard(path, error) from error


def map_member(path: Path, name: str = "") -> Half:
    """The array `name` of an uncompressed shard, mapped, not read; without a name the first: the plain views, pooled or not."""
    try:
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                info = archive.getinfo(f"{name}.npy") if name else archive.infolist()[0]
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"member {name} is compressed")
            file.seek(info.header_offset)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(_LOCAL_HEADER_BYTES)[26:30])
            file.seek(name_bytes + extra_bytes, io.SEEK_CUR)
            version = np.lib.format.read_magic(file)
            read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read_header(file)
            if dtype != np.float16 or fortran:
                raise ValueError(f"member {name} is {dtype}, not a C-ordered float16 array")
            offset, num_bytes = file.tell(), 2 * math.prod(shape)
        if 0 in shape:
            return np.empty(shape, np.float16)
        whole = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8).numpy()
        if offset + num_bytes > len(whole):
            raise ValueError("the array runs past the end of the file")
    except (ValueError, KeyError, IndexError, OSError, struct.error, zipfile.BadZipFile) as error:
        raise _not_a_shard(path, error) from error
    return np.ndarray(shape, np.float16, buffer=whole, offset=offset)


def _not_a_shard(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path.name} is not a feature shard",
        code="damaged-shard",
        why=f"it could not be read as an uncompressed float16 NPZ: {error}",
        try_=f"delete {path} and run the same command again: its job is done anew",
    )


@dataclass(frozen=True)
class Placement:
    """Where each sample's row lies: an index into `shards`, and the row in it."""

    shards: tuple[Path, ...]
    shard_of: NDArray[np.int32]
    row_of: NDArray[np.int32]


class FeatureStore:
    """Rows by position, in the order of the samples it was opened for. Implements what training calls a feature source.

    Rows are vectors of `dim` values, or have a `row_shape`: the first array of a shard holds the plain views, whatever its name.
    Or they consist of several `levels`, flattened side by side.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        dim: int = 0,
        row_shape: tuple[int, ...] | None = None,
        num_augmented: int = 0,
        levels: Levels | None = None,
    ) -> None:
        self.placement = placement
        self._levels = dict(levels or {})
        self._slices = _level_slices(self._levels)
        self._maps: dict[tuple[int, str], Half] = {}
        self.row_shape = (self._slices[-1].stop,) if self._slices else row_shape or (dim,)
        self.dim = math.prod(self.row_shape)
        self.num_views = 1 + num_augmented
        self.num_samples = len(placement.shard_of)

    def rows(self, positions: NDArray[np.int64], views: NDArray[np.int64] | int = 0, *, out: Half | None = None) -> Half:
        """(n, *row_shape): view 0 is the item as it is, 1… the augmented ones; one view for all, or one for each row.

        With `out` the rows are put there, each copied once.
        """
        chosen = np.broadcast_to(np.asarray(views, dtype=np.int64), positions.shape)
        if out is None:
            out = np.empty((len(positions), *self.row_shape), np.float16)
        targets = [out[:, part] for part in self._slices] or [out]
        for shard, view, where in self._groups(positions, chosen):
            rows = self.placement.row_of[positions[where]]
            for source, target in zip(self._arrays(shard, view), targets, strict=True):
                _copy_rows(source, rows, target, where)
        return out

    def all_views(self, positions: NDArray[np.int64]) -> Half:
        """(n, num_views, *row_shape): every cached view of each sample, the plain one first."""
        out = np.empty((len(positions), self.num_views, *self.row_shape), np.float16)
        for view in range(self.num_views):
            self.rows(positions, view, out=out[:, view])
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Another process maps the shards for itself."""
        return {**self.__dict__, "_maps": {}}

    def _groups(self, positions: NDArray[np.int64], views: NDArray[np.int64]) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        """The wanted rows grouped by the shard and the view they lie in."""
        num_views = max(self.num_views, 1 + int(views.max(initial=0)))
        keys = self.placement.shard_of[positions].astype(np.int64) * num_views + views
        order = np.argsort(keys, kind="stable")
        firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        for part in np.split(order, firsts[1:]):
            if len(part):
                yield *divmod(int(keys[part[0]]), num_views), part

    def _arrays(self, shard: int, view: int) -> list[Half]:
        """All rows of one view in one shard, an array for each level."""
        if self._levels:
            return [self._member(shard, _level_name(level, view), shape) for level, shape in self._levels.items()]
        if view == 0:
            return [self._member(shard, "", self.row_shape)]
        return [self._member(shard, VIEWS, (self.num_views - 1, *self.row_shape))[:, view - 1]]

    def _member(self, shard: int, name: str, shape: tuple[int, ...]) -> Half:
        """An array of a shard, mapped once; without a name the first one."""
        if (shard, name) not in self._maps:
            path = self.placement.shards[shard]
            rows = map_member(path, name)
            if rows.shape[1:] != shape:
                raise _not_a_shard(path, ValueError(f"its rows are {rows.shape[1:]}, not {shape}"))
            self._maps[shard, name] = rows
        return self._maps[shard, name]


def _copy_rows(source: Half, rows: NDArray[np.int32], out: Half, where: NDArray[np.int64]) -> None:
    """Put `rows` of `source` into `out` at `where`: large ones one by one, each copied once, small ones together."""
    if out[:1].nbytes < _LARGE_ROW_BYTES:
        out[where] = source[rows].reshape(len(rows), *out.shape[1:])
        return
    for place, row in zip(where.tolist(), rows.tolist(), strict=True):
        out[place] = source[row].reshape(out.shape[1:])


@dataclass(frozen=True)
class StoredSamples:
    """`present[i]`: whether sample i has a row; `placement` covers those that do; `failed` says why others were set aside."""

    sample_ids: Sequence[str]
    placement: Placement
    present: NDArray[np.bool_]
    failed: dict[str, str]

    def lost(self) -> list[str]:
        """Samples that are neither stored nor set aside with a reason."""
        missing = np.flatnonzero(~self.present).tolist()
        return [self.sample_ids[index] for index in missing if self.sample_ids[index] not in self.failed]


def open_stored(
    queue: JobQueue, fingerprint: str, sample_ids: Sequence[str], *, done: Mapping[str, DoneRecord] | None = None
) -> StoredSamples:
    """Find each sample's row: its job's shard, at its place among the job's items that did not fail."""
    if done is None:
        done = queue.state(fingerprint, verify=False).done
    places = Places(sample_ids)
    shard_of = np.full(len(sample_ids), -1, np.int32)
    row_of = np.zeros(len(sample_ids), np.int32)
    finished = [job for job in queue.jobs(fingerprint) if job.job_id in done]
    failed: dict[str, str] = {}
    for number, job in enumerate(finished):
        reasons = dict(done[job.job_id].failed_items)
        failed.update(reasons)
        for row, place in enumerate(places.find_all([item for item in job.items if item not in reasons])):
            if place is not None:
                shard_of[place], row_of[place] = number, row
    present = shard_of >= 0
    shards = tuple(queue.artefact(job) for job in finished)
    return StoredSamples(sample_ids, Placement(shards, shard_of[present], row_of[present]), present, failed)
