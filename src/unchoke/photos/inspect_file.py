"""What `check` wants to know of a file: its content's hash, what it really is, and whether it decodes.

In: a path. Out: plain facts. The file is read once and decoded once, JPEGs at an eighth of their size (all their bytes are still
gone through, so truncation shows). Judging the facts is `index.preflight`'s business.
"""

from __future__ import annotations

import os
from pathlib import Path

from unchoke.core.clock import during
from unchoke.core.fingerprint import digest_bytes
from unchoke.photos.pixels.image import DecodeError, decode_image, is_jpeg, open_pillow, orientation, read_bytes
from unchoke.photos.preflight import FileFacts

_SUFFIXES = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif", ".jif"},
    "MPO": {".jpg", ".jpeg", ".mpo"},
    "PNG": {".png", ".apng"},
    "TIFF": {".tif", ".tiff"},
    "BMP": {".bmp", ".dib"},
    "GIF": {".gif"},
    "WEBP": {".webp"},
}
_COLOURS = {"Gray": "L", "GRAY": "L", "YCbCr": "RGB", "RGB": "RGB", "CMYK": "CMYK", "YCCK": "CMYK"}


def inspect_file(path: str) -> FileFacts:
    """Everything `check` needs of one file, in one read. Never raises for a bad file: that is what it is here to find."""
    size_bytes = mtime_ns = 0
    content, problem, detail = "", "", ""
    width = height = 0
    mode = kind = ""
    try:
        size_bytes, mtime_ns = _size_and_time(path)
        data = read_bytes(path)
        with during("verify"):
            content = digest_bytes(data)
        kind, mode, width, height = _header(data)
        decode_image(data, cover_px=1)
        if Path(path).suffix.lower() not in _SUFFIXES.get(kind, {Path(path).suffix.lower()}):
            problem, detail = "wrong-extension", f"the content is {kind}, the name ends in {Path(path).suffix or 'nothing'}"
    except DecodeError as error:
        problem, detail = error.problem, error.detail
    return FileFacts(
        path=path,
        size_bytes=size_bytes,
        mtime_ns=mtime_ns,
        content=content,
        width=width,
        height=height,
        mode=mode,
        format=kind,
        problem=problem,
        detail=detail,
    )


def read_size(path: str) -> tuple[int, int]:
    """Width and height of the upright picture, from its header; (0, 0) for a file that is no picture."""
    try:
        _, _, width, height = _header(read_bytes(path))
    except DecodeError:
        return 0, 0
    return width, height


def _size_and_time(path: str) -> tuple[int, int]:
    try:
        with during("stat"):
            stat = os.stat(path)
    except FileNotFoundError as error:
        raise DecodeError("missing", "the file is gone") from error
    return stat.st_size, stat.st_mtime_ns


def _header(data: bytes) -> tuple[str, str, int, int]:
    """Format, colour mode, and the width and height of the upright picture."""
    if is_jpeg(data):
        import simplejpeg

        try:
            height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        except ValueError:
            pass  # Pillow below says what is wrong with it
        else:
            swapped = orientation(data) >= 5
            return "JPEG", _COLOURS.get(colours, colours), *((height, width) if swapped else (width, height))
    with open_pillow(data) as image:
        return image.format or "", image.mode, image.width, image.height
