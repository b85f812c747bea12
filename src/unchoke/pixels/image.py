"""Image files to RGB pixels: one function, one answer, whatever the format.

In: a path, a URL or the bytes of an image file. Out: a uint8 array, height × width × RGB, upright (EXIF orientation applied).
JPEG goes through libjpeg-turbo; what that declines (CMYK, recoverable damage) and every other format goes through Pillow. A file
that does not decode raises `DecodeError` with a reason; nothing is ever substituted for it. Resizing lives in `resize.py`.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import struct
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from unchoke.core.clock import during
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.input_file import open_plain
from unchoke.core.stores import StoreError, read_url
from unchoke.core.urls import is_url

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]
DecodeProblem = Literal["unreadable", "truncated", "empty", "bomb-sized", "missing", "changed", "unreachable", "raster"]

MAX_PIXELS = 250_000_000
"""Above this a picture is refused before it is decoded: 250 megapixels are 750 MB of RGB."""
MAX_FILE_BYTES = 3_000_000_000
"""A file above this is refused unread: no picture within the limit above takes that many bytes, packed or not."""
MAX_RATIO = 1000
"""A picture longer than this many times its width is refused: with its short side at a network's input it would be as large as
the limit above, whatever its file weighs."""

_OF_THE_FILE = {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG}
_ORIENTATION_TAG = 0x0112
_SUBFILE_TAG, _SMALLER_OR_MASK = 254, 1 | 4
_EXIF_SEARCH_BYTES = 65_536
PICTURE_FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")
"""What is decoded, by content, as Pillow calls it."""
_PLUGINS = ("PIL.WebPImagePlugin", "PIL.TiffImagePlugin", "PIL.Jpeg2KImagePlugin", "PIL.AvifImagePlugin")
_POSTSCRIPT = (b"%!PS", b"\xc5\xd0\xd3\xc6")
_MARK_BYTES = 16
_TIFF_MARKS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, OverflowError, struct.error)
_SAMPLE_KINDS = {2: "int", 3: "float", 5: "complex int", 6: "complex float"}
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}


class DecodeError(Exception):
    """A file that cannot become pixels: `problem` is a code, `detail` says what the decoder met."""

    def __init__(self, problem: DecodeProblem, detail: str) -> None:
        super().__init__(f"{problem}: {detail}")
        self.problem: DecodeProblem = problem
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        return (DecodeError, (self.problem, self.detail))


def may_pass(reason: str) -> bool:
    """Whether a `DecodeError`, as text, was about reaching the file and not about its content: worth another try."""
    return reason.startswith(("missing:", "changed:", "unreachable:"))


def read_bytes(path: str) -> bytes:
    """The file's content; a missing or empty file is a `DecodeError` like any other."""
    try:
        if is_url(path):
            with during("read"):
                data = read_url(path)  # how heavy a file is was looked at when it was first inspected
        else:
            with during("open"):
                file = open_plain(path)
            with file, during("read"):
                refuse_heavy(os.fstat(file.fileno()).st_size)
                data = file.read()
    except OSError as error:
        raise file_refused(error) from error
    if not data:
        raise DecodeError("empty", "the file has no bytes")
    return data


def refuse_heavy(size_bytes: int) -> None:
    """Raise for a file that no picture needs the bytes of."""
    if size_bytes > MAX_FILE_BYTES:
        raise DecodeError("bomb-sized", f"{size_bytes:,} bytes, the limit for a picture is {MAX_FILE_BYTES:,}")


def file_refused(error: OSError) -> DecodeError:
    """What the system's error says of the file; one that says something of the machine (too many open files) is raised again."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return DecodeError("missing", "the file is gone")
    if isinstance(error, StoreError):
        return DecodeError("unreachable", error.reason)
    if error.errno in _OF_THE_FILE:
        return DecodeError("unreadable", error.strerror or str(error))
    raise error


def read_planned(path: str, content: str) -> bytes:
    """The file's content, refused if its digest is not the planned one ("" for any)."""
    data = read_bytes(path)
    if content:
        with during("verify"):
            found = digest_bytes(data)
        if found != content:
            raise DecodeError("changed", "the file changed while the command ran; run it again")
    return data


def read_image(path: str, *, cover_px: int | None = None) -> Pixels:
    """Decode the file at `path`; see `decode_image`."""
    return decode_image(read_bytes(path), cover_px=cover_px)


def decode_image(data: bytes, *, cover_px: int | None = None) -> Pixels:
    """Decode `data` to upright RGB.

    With `cover_px` a JPEG may come out smaller, by 2, 4 or 8 (cheap in the DCT domain), as long as its shorter side still
    covers that many pixels. Other factors are not used: they decode slower than the full picture.
    """
    with during("decode"):
        pixels = _decode_turbo(data, cover_px) if is_jpeg(data) else None
        return pixels if pixels is not None else _decode_pillow(data, cover_px)


def is_jpeg(data: bytes) -> bool:
    """Whether the content, not the name, is JPEG."""
    return data[:3] == b"\xff\xd8\xff"


def orientation(data: bytes) -> int:
    """The EXIF orientation (1 to 8) of a JPEG; 1 when it has none. Only files with an EXIF block are opened for it."""
    if b"Exif\x00\x00" not in data[:_EXIF_SEARCH_BYTES]:
        return 1
    with open_pillow(data) as image:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))


@cache
def picture_formats() -> tuple[str, ...]:
    """Pictures, and nothing else that Pillow would open: it hands PostScript to another program, whatever the file is called."""
    from PIL import Image

    logging.getLogger("PIL").addHandler(logging.NullHandler())  # what it says of a file is raised as well
    Image.preinit()
    if find_spec("pillow_heif") is not None:
        import_module("pillow_heif").register_heif_opener()
    for plugin in _PLUGINS:
        if find_spec(plugin) is not None:  # the last of them is newer than the oldest Pillow that will do
            import_module(plugin)
    return tuple(name for name in PICTURE_FORMATS if name in Image.OPEN)


def open_pillow(source: bytes | BinaryIO) -> Image:
    """Open with Pillow, header only, its complaints translated; sizes past `MAX_PIXELS` refused. The one place that does so."""
    from PIL import Image, UnidentifiedImageError

    file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large pictures at its own threshold; ours is below
            image = Image.open(file, formats=picture_formats())
    except Image.DecompressionBombError as error:
        raise DecodeError("bomb-sized", str(error)) from error
    except UnidentifiedImageError as error:
        file.seek(0)
        mark = file.read(_MARK_BYTES)
        if bands := _raster_bands(file) if mark[:4] in _TIFF_MARKS else "":
            raise DecodeError("raster", bands) from error
        raise DecodeError("unreadable", _unknown_format(mark)) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise DecodeError("unreadable", str(error)) from error
    refuse_bombs(image.width, image.height)
    return image


def num_pages(data: bytes) -> int:
    """How many pictures of full size a TIFF holds; smaller versions and masks of them are not counted."""
    with open_pillow(data) as image:
        pages = 0
        try:
            for number in range(getattr(image, "n_frames", 1)):
                image.seek(number)
                pages += not int(image.tag_v2.get(_SUBFILE_TAG, 0)) & _SMALLER_OR_MASK  # type: ignore[attr-defined]
        except _DAMAGED:  # unchoke: ignore[blank-on-error]  page one is read
            return max(pages, 1)
        return pages


def _raster_bands(file: BinaryIO) -> str:
    """``13 bands of uint16``: what a TIFF holds that no photo does; "" for one like a photo, or damaged."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    file.seek(0)
    header = file.read(8)
    try:
        tags = ImageFileDirectory_v2(header + file.read(8) if 43 in header[2:4] else header)
        file.seek(tags.next)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tags.load(file)
        bands, bits, kind = int(tags.get(277, 1)), int(tags[258][0]), int(tags.get(339, (1,))[0])
    except _DAMAGED:  # unchoke: ignore[blank-on-error]  damaged
        return ""
    stored = f"{_SAMPLE_KINDS.get(kind, 'uint')}{bits}"
    return "" if bands in (1, 3) and stored == "uint8" else f"{bands} {'band' if bands == 1 else 'bands'} of {stored}"


def _unknown_format(data: bytes) -> str:
    if data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS:
        known = "HEIF" in picture_formats()
        return (
            "a damaged HEIC picture" if known else "a HEIC picture: pip install 'unchoke[heic]' reads it, or convert it to JPEG"
        )
    if data.startswith(_POSTSCRIPT):
        return "PostScript, which is a program and no picture, and is not run: convert it to PNG"
    return "not an image in a known format"


def refuse_bombs(width: int, height: int, *, most: int = MAX_PIXELS) -> None:
    """Raise for a picture whose pixels would not reasonably fit in memory."""
    if width * height > most:
        raise DecodeError("bomb-sized", f"{width}×{height} pixels, the limit is {most:,}")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise DecodeError(
            "bomb-sized", f"{width}×{height} pixels, which no network's input can be made of; at most 1:{MAX_RATIO}"
        )


def _decode_turbo(data: bytes, cover_px: int | None) -> Pixels | None:
    """libjpeg-turbo's pixels, or None where Pillow should decide (CMYK, damage that might be recoverable)."""
    import simplejpeg

    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    refuse_bombs(width, height)
    if colorspace not in ("YCbCr", "RGB", "Gray", "GRAY"):
        return None
    factor = shrink_factor(min(height, width), cover_px)
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=-(-height // factor), min_width=-(-width // factor))
    except ValueError:
        return None
    return _turn_upright(pixels, orientation(data))


def jpeg_shape(data: bytes) -> tuple[int, int] | None:
    """Rows and columns of a JPEG that libjpeg-turbo decodes to the end without complaint, in colours every decoder agrees on.

    It is decoded as small as can be: all its bytes are read, few pixels are made. None for anything else.
    """
    if not is_jpeg(data):
        return None
    import simplejpeg

    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        refuse_bombs(width, height)
        if colorspace not in ("YCbCr", "Gray", "GRAY"):
            return None
        simplejpeg.decode_jpeg(data, "RGB", min_height=-(-height // 8), min_width=-(-width // 8))
    except ValueError:  # unchoke: ignore[blank-on-error]  the decoder that takes it instead says what is wrong
        return None
    return height, width


def decode_stored(data: bytes) -> Pixels:
    """The whole JPEG as it is stored, not turned upright."""
    import simplejpeg

    pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB")
    return pixels


def shrink_factor(short_side_px: int, cover_px: int | None) -> int:
    """By how much a JPEG of that short side is decoded smaller: 1, 2, 4 or 8."""
    if cover_px is None:
        return 1
    return next((factor for factor in (8, 4, 2) if short_side_px // factor >= cover_px), 1)


def _decode_pillow(data: bytes, cover_px: int | None) -> Pixels:
    from PIL import ImageOps

    with open_pillow(data) as image:
        if image.format in ("JPEG", "MPO"):
            factor = shrink_factor(min(image.size), cover_px)
            image.draft(None, (image.width // factor, image.height // factor))
        try:
            ImageOps.exif_transpose(image, in_place=True)
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            problem: DecodeProblem = "truncated" if "truncated" in str(error) else "unreadable"
            raise DecodeError(problem, str(error)) from error
        return np.array(to_rgb(image))  # a copy: Pillow's own memory is read-only


def to_rgb(image: Image) -> Pixels:
    """8-bit RGB of any Pillow mode. Deep grey is scaled, not clipped; transparency is dropped, as `convert("RGB")` does."""
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65_535:
            raise DecodeError("unreadable", f"grey values from {deep.min()} to {deep.max()} do not fit 16 bits")
        return np.repeat((deep >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if image.mode == "F":
        if image.format == "TIFF":
            raise DecodeError("raster", "1 band of floating-point numbers")
        raise DecodeError("unreadable", "floating-point pixels have no agreed range; store them as 8 or 16 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _turn_upright(pixels: Pixels, code: int) -> Pixels:
    """Undo an EXIF orientation. The table is EXIF's: 2 mirrored, 3 half-turn, 4 flipped, 5–8 with axes swapped."""
    turns: dict[int, Any] = {
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: a.transpose(1, 0, 2)[:, ::-1],
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: a.transpose(1, 0, 2)[::-1],
    }
    return np.ascontiguousarray(turns[code](pixels)) if code in turns else pixels
