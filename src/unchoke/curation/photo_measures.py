"""What one photo shows, in numbers: light, contrast, sharpness, a small grey picture of it, when and where it was taken.

In: the bytes of a file. Out: `PhotoMeasures`. Nothing is judged here, since what is dark or blurred depends on the other photos.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.features.near_copies import make_look
from unchoke.pixels.image import Pixels, decode_image, open_pillow
from unchoke.pixels.resize import resize

VERSION = 2
"""Changes with any number that is worked out here."""
NUMBERS = ("light_low", "light_mid", "light_high", "contrast", "commonest_share", "entropy", "sharpness")
_SIDE_PX = 192
_GREY = np.array([0.299, 0.587, 0.114], np.float32)
_EXIF_MARK, _EXIF_SEARCH_BYTES = b"Exif\x00\x00", 65_536
_EXIF_IFD, _GPS_IFD, _MAKE, _MODEL, _TAKEN = 0x8769, 0x8825, 0x010F, 0x0110, 0x9003
NO_TIME = -1


@dataclass(frozen=True, eq=False)
class PhotoMeasures:
    """`numbers` in the order of `NUMBERS`; `look` is grey, stretched to a square; `taken_s` counts from 1970, `NO_TIME` if
    unknown.
    """

    numbers: NDArray[np.float32]
    look: NDArray[np.uint8]
    taken_s: int = NO_TIME
    place: tuple[float, float] = (np.nan, np.nan)
    camera: str = ""


def measure_photo(data: bytes) -> PhotoMeasures:
    """Decode small, and measure. Raises `DecodeError` as decoding does."""
    image_hwc = decode_image(data, cover_px=_SIDE_PX)
    taken_s, place, camera = read_exif(data)
    return PhotoMeasures(measure_pixels(to_grey(image_hwc)), make_look(image_hwc), taken_s, place, camera)


def to_grey(image_hwc: Pixels) -> NDArray[np.float32]:
    """Luminance from 0 to 255, no larger than what the measures are made for."""
    height, width = image_hwc.shape[:2]
    factor = min(height, width) / _SIDE_PX
    if factor > 1:
        image_hwc = resize(image_hwc, max(1, round(height / factor)), max(1, round(width / factor)), interpolation="bilinear")
    grey: NDArray[np.float32] = image_hwc.astype(np.float32) @ _GREY
    return grey


def measure_pixels(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """The numbers of one picture."""
    low, mid, high = np.percentile(grey, (5, 50, 99))
    counts = np.bincount(grey.round().astype(np.int64).clip(0, 255).ravel(), minlength=256) / grey.size
    seen = counts[counts > 0]
    around = np.convolve(counts, np.ones(5), "same").max()
    entropy = float(-(seen * np.log2(seen)).sum())
    return np.array([low, mid, high, grey.std(), around, entropy, _sharpness(grey)], np.float32)


def _sharpness(grey: NDArray[np.float32]) -> float:
    """How much a picture loses when it is blurred a little, against all that differs between neighbours."""
    if min(grey.shape) < 5:
        return 1.0
    steps = [np.diff(grey, axis=axis) for axis in (0, 1)]
    blurred = _blurred(grey)
    lost = [np.abs(step).mean() - np.abs(np.diff(blurred, axis=axis)).mean() for axis, step in enumerate(steps)]
    whole = sum(float(np.abs(step).mean()) for step in steps)
    return float(sum(lost) / whole) if whole > 1e-3 else 1.0


def _blurred(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    rows = np.lib.stride_tricks.sliding_window_view(np.pad(grey, ((2, 2), (0, 0)), "edge"), 5, axis=0).mean(axis=-1)
    found: NDArray[np.float32] = np.lib.stride_tricks.sliding_window_view(np.pad(rows, ((0, 0), (2, 2)), "edge"), 5, axis=1).mean(
        axis=-1
    )
    return found


def read_exif(data: bytes) -> tuple[int, tuple[float, float], str]:
    """When and where a photo was taken and by which camera, as far as its file says; a damaged entry counts as absent."""
    nowhere = (np.nan, np.nan)
    if _EXIF_MARK not in data[:_EXIF_SEARCH_BYTES]:
        return NO_TIME, nowhere, ""
    with open_pillow(data) as image, suppress(ValueError, TypeError, KeyError, ZeroDivisionError, OSError, SyntaxError):
        exif = image.getexif()
        camera = " ".join(str(exif.get(tag, "")).strip("\x00 ") for tag in (_MAKE, _MODEL)).strip()
        return _taken_s(exif.get_ifd(_EXIF_IFD).get(_TAKEN)), _place(exif.get_ifd(_GPS_IFD)), camera
    return NO_TIME, nowhere, ""


def _taken_s(text: Any) -> int:
    """Cameras know no zone: seconds are only compared with one another."""
    try:
        return int(datetime.strptime(str(text).strip("\x00 "), "%Y:%m:%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return NO_TIME


def _place(gps: dict[int, Any]) -> tuple[float, float]:
    """Latitude and longitude in degrees."""
    if not {1, 2, 3, 4} <= set(gps):
        return (np.nan, np.nan)
    found = [sum(float(part) / 60**power for power, part in enumerate(gps[tag])) for tag in (2, 4)]
    signs = [-1 if str(gps[tag]).upper() in ("S", "W") else 1 for tag in (1, 3)]
    return signs[0] * found[0], signs[1] * found[1]
