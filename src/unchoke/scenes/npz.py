"""NPZ files, by a faster deflate: arrays in, one file out that plain `np.load` reads.

NumPy's own writer compresses with zlib at 20 to 40 MB/s, which is most of the time of cutting a scene into tiles. The container
is written here, so that the bytes inside may come from isal, which does the same at memory speed and lets other threads run
meanwhile. The same content gives the same bytes: no clock, no random name. Reading is `np.load`'s business.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.errors import UsageError, missing_extra
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.units import format_bytes

Compress = Literal["isal", "zlib", "none"]

ISAL_LEVEL = 1
"""On Landsat bands as float32, levels 1, 2 and 3 give 1.21, 1.09 and 1.08 times the size of zlib's level 6. Tiling a scene with
level 1 took about a tenth less time than with level 3 (`docs/claims-history.md`)."""
_ISAL_BUFFER = 9
_ZLIB_LEVEL = 6
_RAW_DEFLATE = -15
_STORED, _DEFLATED = 0, 8
_VERSION = 20
_UNIX = 3
_UTF8_NAME = 0x800
_DATE_1980, _MIDNIGHT = 0x21, 0
_READABLE = 0o644 << 16
_WORTH_PACKING_BYTES = 4096
_MOST_BYTES = 2**32 - 2**20
"""Beyond 4 GB a zip needs 64-bit fields; the last megabyte is left to headers."""


class _Member(NamedTuple):
    name: bytes
    chunks: list[bytes | memoryview]
    crc: int
    packed_bytes: int
    size_bytes: int
    method: int


def write_npz(
    target: Path | IO[bytes], arrays: Mapping[str, NDArray[Any]], *, compress: Compress = "isal", durable: bool = True
) -> tuple[str, int]:
    """Write `arrays` under their names; return a digest of the file and its size.

    A path is created or replaced atomically, flushed to disk if `durable`; an open file is written to as it is. The digest is the
    SHA-256 of the archive's directory, which has the CRC-32 and the size of every array: hashing all bytes once more took 7 % of
    the time of tiling a scene, and whoever reads the file checks these sums anyway.
    """
    chunks = encode_npz(arrays, compress=compress)
    if isinstance(target, Path):
        atomic.write_with(target, lambda file: file.writelines(chunks), durable=durable)
    else:
        target.writelines(chunks)
    *_, directory, _ = chunks
    return digest_bytes(directory), sum(len(chunk) for chunk in chunks)


def encode_npz(arrays: Mapping[str, NDArray[Any]], *, compress: Compress = "isal") -> list[bytes | memoryview]:
    """The bytes of the file, in pieces; uncompressed ones are views of the arrays, which must not change meanwhile."""
    _refuse_too_large(arrays)
    members = [_encode_member(name, np.asarray(array), compress) for name, array in arrays.items()]
    chunks: list[bytes | memoryview] = []
    directory: list[bytes] = []
    offset = 0
    for member in members:
        header = b"PK\x03\x04" + _common_fields(member) + member.name
        directory.append(_directory_entry(member, offset))
        chunks += [header, *member.chunks]
        offset += len(header) + member.packed_bytes
    entries = b"".join(directory)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, len(members), len(members), len(entries), offset, 0)
    return [*chunks, entries, end]


def _encode_member(name: str, array: NDArray[Any], compress: Compress) -> _Member:
    (header, data), file_name = _npy(array), f"{name}.npy".encode()
    crc32 = _isal().crc32 if compress == "isal" else zlib.crc32
    crc = crc32(data, crc32(header))
    size_bytes = len(header) + data.nbytes
    if compress == "none" or data.nbytes < _WORTH_PACKING_BYTES:
        return _Member(file_name, [header, data], crc, size_bytes, size_bytes, _STORED)
    if compress == "isal":
        packer = _isal().compressobj(ISAL_LEVEL, _DEFLATED, _RAW_DEFLATE, _ISAL_BUFFER)
    else:
        packer = zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
    packed = [packer.compress(header), packer.compress(data), packer.flush()]
    return _Member(file_name, packed, crc, sum(map(len, packed)), size_bytes, _DEFLATED)


def _isal() -> ModuleType:
    try:
        from isal import isal_zlib
    except ImportError as error:
        raise missing_extra("isal", extra="geo", purpose="compressing tiles by isal") from error
    module: ModuleType = isal_zlib
    return module


def _npy(array: NDArray[Any]) -> tuple[bytes, memoryview]:
    """Header and values as `np.save` would write them."""
    if array.dtype.hasobject:
        raise TypeError("only plain values can be written, not Python objects")
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, np.lib.format.header_data_from_array_1_0(contiguous))
    return buffer.getvalue(), contiguous.reshape(-1).view(np.uint8).data if contiguous.size else memoryview(b"")


def _common_fields(member: _Member) -> bytes:
    """What a member's local header and its line in the directory say alike."""
    flags = 0 if member.name.isascii() else _UTF8_NAME
    stamp = (_VERSION, flags, member.method, _MIDNIGHT, _DATE_1980)
    return struct.pack("<5H3L2H", *stamp, member.crc, member.packed_bytes, member.size_bytes, len(member.name), 0)


def _directory_entry(member: _Member, offset: int) -> bytes:
    made_by = struct.pack("<2B", _VERSION, _UNIX)
    place = struct.pack("<3H2L", 0, 0, 0, _READABLE, offset)
    return b"PK\x01\x02" + made_by + _common_fields(member) + place + member.name


def _refuse_too_large(arrays: Mapping[str, NDArray[Any]]) -> None:
    total_bytes = sum(np.asarray(array).nbytes for array in arrays.values())
    if total_bytes > _MOST_BYTES:
        raise UsageError(
            f"arrays of {format_bytes(total_bytes)} do not fit in one NPZ file",
            code="tile-too-large",
            why="a zip of this kind ends at 4 GB",
            try_="use smaller tiles, for instance --tile-size 1024, or fewer bands",
        )
