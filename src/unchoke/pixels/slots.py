"""Where decoded pictures are kept: numbered slots of one size, in memory or in mapped files.

A store is handed pixels with a stamp of their source and gives them back by slot. It never decodes and does not decide what is
worth keeping; `pixel_cache.py` does.

On disk a cache folder holds `cache.json` (the geometry), `pixels-000.bin` and so on (the slots, sparse), and `index.bin`, a log
of fixed-size records. Overwriting a slot appends "empty", writes the pixels, then appends "full" with their checksum: a kill at
any moment leaves the slot empty. The last record of a slot counts, a torn or damaged record counts as absent, and a slot's
checksum is compared the first time it is read, so that a crash of the whole machine is noticed too.
"""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, listing
from unchoke.core.errors import UsageError
from unchoke.core.input_file import parse_json, read_plain

Pixels = NDArray[np.uint8]
RECORD = np.dtype(
    [("key", "<u8"), ("size_bytes", "<i8"), ("mtime_ns", "<i8"), ("content", "<u8"), ("slot", "<u4"), ("pixels_crc", "<u4"),
     ("full", "<u4"), ("record_crc", "<u4")]
)  # fmt: skip
_CHECKED_BYTES = RECORD.itemsize - 4
SEGMENT_BYTES = 2**30
MAX_SEGMENTS = 16
SCHEMA = 1


@dataclass(frozen=True)
class Stamp:
    """What a slot's pixels were made from: a hash of the sample's id, its file's size and time, a hash of its content or 0."""

    key: int
    size_bytes: int
    mtime_ns: int
    content: int = 0

    def agrees(self, other: Stamp) -> bool:
        """Whether both stand for the same bytes: by content where both know it, else by size and time."""
        if self.key != other.key or self.size_bytes != other.size_bytes:
            return False
        if self.content and other.content:
            return self.content == other.content
        return self.mtime_ns == other.mtime_ns


class RamSlots:
    """Slots in ordinary memory; they take room as they are filled and end with the process."""

    def __init__(self, capacity_rows: int, height: int, width: int) -> None:
        self.capacity_rows = capacity_rows
        self._pixels: Pixels = np.empty((capacity_rows, height, width, 3), np.uint8)

    def kept(self) -> dict[int, tuple[int, Stamp]]:
        """The slots filled by an earlier process: key to slot and stamp."""
        return {}

    def read(self, slot: int, out: Pixels) -> bool:
        """Copy a full slot into `out`; False if its pixels turn out to be damaged."""
        out[...] = self._pixels[slot]
        return True

    def write(self, slot: int, _stamp: Stamp, pixels: Pixels) -> None:
        self._pixels[slot] = pixels

    def close(self) -> None:
        self._pixels = self._pixels[:0]


class DiskSlots:
    """Slots in files below `folder`, read by memory map. One process at a time may fill them; its threads may share it.

    Slots that an earlier, larger cache filled stay usable: their room is taken already. A `reader` changes nothing: it sees what
    was filled when it was opened, beside the process that owns the cache.
    """

    def __init__(
        self,
        folder: Path,
        *,
        capacity_rows: int,
        height: int,
        width: int,
        recipe: str,
        segment_bytes: int = SEGMENT_BYTES,
        reader: bool = False,
    ) -> None:
        self.capacity_rows = 0 if reader else capacity_rows
        self._folder = folder
        self._reader = reader
        self._shape = (height, width, 3)
        self._row_bytes = height * width * 3
        self._lock = threading.Lock()
        self._owner = None if reader else _own(folder)
        self._rows_per_segment = self._settle_geometry(recipe, segment_bytes)
        self._maps: dict[int, Pixels] = {}
        self._records = self._load_index()
        self._checked = np.zeros(self.capacity_rows, np.bool_)
        self._index = (folder / "index.bin").open("rb" if reader else "r+b", buffering=0)

    def kept(self) -> dict[int, tuple[int, Stamp]]:
        full = self._records[self._records["full"] == 1]
        columns = (full[name].tolist() for name in ("slot", "key", "size_bytes", "mtime_ns", "content"))
        return {stamp[0]: (slot, Stamp(*stamp)) for slot, *stamp in zip(*columns, strict=True)}

    def read(self, slot: int, out: Pixels) -> bool:
        out[...] = self._segment(slot // self._rows_per_segment)[slot % self._rows_per_segment]
        if not self._checked[slot]:
            self._checked[slot] = zlib.crc32(np.ascontiguousarray(out).data) == self._records[slot]["pixels_crc"]
        return bool(self._checked[slot])

    def write(self, slot: int, stamp: Stamp, pixels: Pixels) -> None:
        data = np.ascontiguousarray(pixels)
        self._checked[slot] = False
        self._append(slot, stamp, crc=0, full=False)
        segment, row = divmod(slot, self._rows_per_segment)
        path = self._file_of(segment)
        with atomic.no_room_explained(path), path.open("r+b", buffering=0) as file:
            file.seek(row * self._row_bytes)
            _write_all(file, data.data.cast("B"))
        self._append(slot, stamp, crc=zlib.crc32(data.data), full=True)
        self._checked[slot] = True

    def close(self) -> None:
        self._maps.clear()
        self._index.close()
        if self._owner is not None:
            self._owner.release()

    def _settle_geometry(self, recipe: str, segment_bytes: int) -> int:
        """Rows per segment: of the cache that is there if it fits this one, else of a new, empty one."""
        wanted = {"schema": SCHEMA, "height": self._shape[0], "width": self._shape[1], "recipe": recipe}
        found = _read_json(self._folder / "cache.json")
        rows = found.pop("rows_per_segment", 0)
        if found == wanted and isinstance(rows, int) and (self._reader or 0 < self.capacity_rows <= rows * MAX_SEGMENTS):
            return rows
        if self._reader:
            raise UsageError(
                f"there is no pixel cache of this kind in {self._folder}",
                code="no-pixel-cache",
                why="a process that only reads expects another to have made it",
                try_="run the whole command again",
            )
        for name in [*listing.names(self._folder, prefix="pixels-", suffix=".bin"), "index.bin", "cache.json"]:
            (self._folder / name).unlink(missing_ok=True)
        rows = max(1, segment_bytes // self._row_bytes, -(-self.capacity_rows // MAX_SEGMENTS))
        atomic.write_json(self._folder / "cache.json", {**wanted, "rows_per_segment": rows})
        return rows

    def _load_index(self) -> NDArray[np.void]:
        """The records by slot, the last one of each; the log is rewritten without what no longer counts."""
        path = self._folder / "index.bin"
        data = path.read_bytes() if path.is_file() else b""
        newest_first = _sound_records(data)[::-1]
        newest_first = newest_first[newest_first["slot"] < self._rows_per_segment * MAX_SEGMENTS]
        slots, newest = np.unique(newest_first["slot"], return_index=True)
        self.capacity_rows = max(self.capacity_rows, int(slots[-1]) + 1 if len(slots) else 0)
        records = np.zeros(self.capacity_rows, RECORD)
        records[slots] = newest_first[newest]
        live = records[records["full"] == 1].tobytes()
        if not self._reader and (live != data or not path.exists()):
            atomic.write_bytes(path, live)
        self._index_bytes = len(live)
        return records

    def _append(self, slot: int, stamp: Stamp, *, crc: int, full: bool) -> None:
        record = np.zeros((), RECORD)
        record[()] = (stamp.key, stamp.size_bytes, stamp.mtime_ns, stamp.content, slot, crc, full, 0)
        record["record_crc"] = zlib.crc32(record.tobytes()[:_CHECKED_BYTES])
        with self._lock, atomic.no_room_explained(self._folder / "index.bin"):
            try:
                self._index.seek(self._index_bytes)
                _write_all(self._index, memoryview(record.tobytes()))
            except OSError:
                self._index.truncate(self._index_bytes)  # no torn record before the next one
                raise
            self._index_bytes += RECORD.itemsize
            self._records[slot] = record

    def _num_rows(self, segment: int) -> int:
        return min(self._rows_per_segment, self.capacity_rows - segment * self._rows_per_segment)

    def _file_of(self, segment: int) -> Path:
        """The segment's file at its full size; unwritten parts take no room where the file system knows holes."""
        path, num_bytes = self._folder / f"pixels-{segment:03d}.bin", self._num_rows(segment) * self._row_bytes
        if not self._reader:
            with self._lock, atomic.no_room_explained(path), path.open("ab") as file:
                if file.tell() < num_bytes:
                    file.truncate(num_bytes)
        return path

    def _segment(self, segment: int) -> Pixels:
        if segment not in self._maps:
            shape = self._num_rows(segment), *self._shape
            self._maps[segment] = np.memmap(self._file_of(segment), np.uint8, "r", shape=shape)
        return self._maps[segment]


Slots = RamSlots | DiskSlots


def _own(folder: Path) -> Any:
    """Hold the cache: two processes would give the same slot to different pictures."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(
            f"another process uses the pixel cache {folder}",
            code="pixel-cache-in-use",
            why="one process at a time may fill it",
            try_="wait for it, or run with --cache none",
        ) from None
    return lock


def _sound_records(data: bytes) -> NDArray[np.void]:
    """The records of a log whose checksum holds, oldest first; a torn end is left out."""
    log: NDArray[np.void] = np.frombuffer(data, RECORD, count=len(data) // RECORD.itemsize)
    starts = range(0, log.nbytes, RECORD.itemsize)
    found = np.fromiter((zlib.crc32(data[start : start + _CHECKED_BYTES]) for start in starts), np.uint32, len(log))
    sound: NDArray[np.void] = log[found == log["record_crc"]]
    return sound


def held_bytes(folder: Path) -> int:
    """The room a cache in `folder` takes on its disk now, holes left out where the system tells."""
    stats = [(folder / name).stat() for name in listing.names(folder, prefix="pixels-", suffix=".bin")]
    return sum(stat.st_blocks * 512 if hasattr(stat, "st_blocks") else stat.st_size for stat in stats)


def _read_json(path: Path) -> dict[str, Any]:
    """The object in the file, or an empty one where there is none worth the name."""
    try:
        value = parse_json(read_plain(path))
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_all(file: Any, data: memoryview) -> None:
    """An unbuffered write may take only part of what it is given."""
    while data:
        data = data[file.write(data) :]
