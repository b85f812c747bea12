"""Pictures of photos for the page: small ones made when they are first shown and kept in the workspace, larger ones on the fly.

In: a photo's path. Out: JPEG bytes that we encoded; a file's own bytes never reach the browser. A small picture belongs to the
file as it was: another size or time makes another one. What cannot be decoded raises a `DecodeError`.
"""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import read_plain, size_and_time
from unchoke.photos.pixels.image import Pixels, decode_image, file_refused, read_bytes, read_image

SIDE_PX = 192
_LARGE_PX = 1280
_QUALITY = 82


class Thumbnails:
    """Small pictures in a folder. Half of the cores make some at a time: the browser that draws them needs the others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._making = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))

    def small(self, path: str) -> bytes:
        """The photo within a square of `SIDE_PX`, made now or read from the folder."""
        file = self._file(path)
        try:
            return read_plain(file)
        except FileNotFoundError:
            pass
        with self._making:
            data = encode(read_image(path, cover_px=SIDE_PX), side_px=SIDE_PX)
        atomic.write_with(file, lambda opened: opened.write(data), durable=False)
        return data

    def large(self, path: str) -> bytes:
        """The photo as large as a screen needs it."""
        with self._making:
            return encode(decode_image(read_bytes(path)), side_px=_LARGE_PX)

    def _file(self, path: str) -> Path:
        try:
            name = digest([path, *size_and_time(path), SIDE_PX])[:32]
        except OSError as error:
            raise file_refused(error) from error
        return self._folder / name[:2] / f"{name}.jpg"


def encode(pixels_hwc: Pixels, *, side_px: int) -> bytes:
    """Pixels within a square of that side, proportions kept, as JPEG."""
    from PIL import Image

    picture = Image.fromarray(pixels_hwc)
    picture.thumbnail((side_px, side_px), Image.Resampling.BILINEAR, reducing_gap=2.0)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()
