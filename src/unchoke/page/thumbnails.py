"""Pictures of photos for the page: small ones made when they are first shown and kept in the workspace, larger ones on the fly.

In: a photo's path. Out: JPEG bytes that we encoded; a file's own bytes never reach the browser. A small picture belongs to the
file as it was: another size or time makes another one. What cannot be decoded raises a `DecodeError`.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import read_plain, size_and_time
from unchoke.pixels.image import Pixels, decode_image, file_refused, read_bytes, read_image

SIDE_PX = 192
_LARGE_PX = 1280
_QUALITY = 82
_NICENESS = 10


class Thumbnails:
    """Small pictures in a folder. Half of the cores make some, and give way: the browser that draws them comes first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._making = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), "thumbnails", initializer=_give_way)

    def small(self, path: str) -> bytes:
        """The photo within a square of `SIDE_PX`, made now or read from the folder."""
        return self.kept([path], [SIDE_PX], lambda: encode(read_image(path, cover_px=SIDE_PX), side_px=SIDE_PX))

    def kept(self, paths: Sequence[str], about: Sequence[object], make: Callable[[], bytes]) -> bytes:
        """The picture that `make` makes of those files, made now or read from the folder; `about` tells two of them apart."""
        file = self._file(paths, about)
        try:
            return read_plain(file)
        except FileNotFoundError:
            pass
        data = self._making.submit(make).result()
        atomic.write_with(file, lambda opened: opened.write(data), durable=False)
        return data

    def large(self, path: str) -> bytes:
        """The photo as large as a screen needs it."""
        return self._making.submit(lambda: encode(decode_image(read_bytes(path)), side_px=_LARGE_PX)).result()

    def _file(self, paths: Sequence[str], about: Sequence[object]) -> Path:
        try:
            name = digest([*(part for path in paths for part in (path, *size_and_time(path))), *about])[:32]
        except OSError as error:
            raise file_refused(error) from error
        return self._folder / name[:2] / f"{name}.jpg"


def _give_way() -> None:
    """The thread that calls gets less of busy cores; where threads have no such setting of their own, nothing changes."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def encode(pixels_hwc: Pixels, *, side_px: int) -> bytes:
    """Pixels within a square of that side, proportions kept, as JPEG; those with an alpha channel, sharp, as PNG."""
    from PIL import Image

    picture, buffer, is_sharp = Image.fromarray(pixels_hwc), io.BytesIO(), pixels_hwc.shape[-1] == 4
    resampling = Image.Resampling.NEAREST if is_sharp else Image.Resampling.BILINEAR
    picture.thumbnail((side_px, side_px), resampling, reducing_gap=2.0)
    if is_sharp:
        picture.save(buffer, "PNG")
    else:
        picture.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()
