"""A file behind a URL that is read in pieces, as headers and windows need them.

In: a URL. Out: a file to `read` and `seek` in. Pieces are fetched in whole blocks, which all files of this process share, up to a
bound; several that are missing in a row are one request. A file that changed since it was opened is an `OSError`, not a mixture.
"""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from functools import cache

from unchoke.core.stores import StoreError, read_url, recent_stat

BLOCK_BYTES = 512 * 1024
_MOST_BLOCKS = 256

_Key = tuple[str, int, int]


def open_url(url: str) -> io.BufferedReader:
    """The file, buffered by blocks already: reads are handed through."""
    return io.BufferedReader(RangedFile(url), buffer_size=io.DEFAULT_BUFFER_SIZE)


class RangedFile(io.RawIOBase):
    """Bytes of one file, fetched when they are read."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.size_bytes, self.stamp = recent_stat(url)
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size_bytes}[whence]
        self._place = max(0, start + offset)
        return self._place

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = self._read_at(self._place, len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _read_at(self, start: int, num_bytes: int) -> bytes:
        end = min(start + num_bytes, self.size_bytes)
        if end <= start:
            return b""
        first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        whole = b"".join(self._blocks(first, last))
        return whole[start - first * BLOCK_BYTES : end - first * BLOCK_BYTES]

    def _blocks(self, first: int, last: int) -> list[bytes]:
        """Blocks `first` to `last`; those that are not kept are fetched together."""
        kept = _kept_blocks()
        found = {number: kept.find((self.url, self.stamp, number)) for number in range(first, last + 1)}
        missing = [number for number, block in found.items() if block is None]
        if missing:
            start, end = missing[0] * BLOCK_BYTES, min((missing[-1] + 1) * BLOCK_BYTES, self.size_bytes)
            data = read_url(self.url, start, end)
            if len(data) != end - start:
                raise StoreError("it changed while it was read, or its server does not hand out parts of files", self.url)
            for number in range(missing[0], missing[-1] + 1):
                block = data[(number - missing[0]) * BLOCK_BYTES :][:BLOCK_BYTES]
                kept.keep((self.url, self.stamp, number), block)
                found[number] = block
        return [block for block in found.values() if block is not None]


class _Blocks:
    """Blocks of files, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[_Key, bytes] = OrderedDict()

    def find(self, key: _Key) -> bytes | None:
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            return self._blocks.get(key)

    def keep(self, key: _Key, block: bytes) -> None:
        with self._lock:
            self._blocks[key] = block
            while len(self._blocks) > _MOST_BLOCKS:
                self._blocks.popitem(last=False)


@cache
def _block_lists() -> list[_Blocks]:
    """The blocks of this process; a forked child begins anew, since a thread of its parent may have held the lock."""
    kept = [_Blocks()]
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: kept.append(_Blocks()))
    return kept


def _kept_blocks() -> _Blocks:
    return _block_lists()[-1]
