"""Pixels to a network's input square, as timm's evaluation transform does it, on uint8.

In: RGB pixels of any size. Out: uint8, size × size × 3. The usual settings (resize the short side, crop the centre, bilinear or
bicubic) run in torch's own antialiased uint8 resize, which gives the same pixels as the Pillow-based transform and takes a
third of the time; unusual ones run timm's transform itself. Normalisation is the engine's business.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unchoke.pixels.image import DecodeError, Pixels

MAX_RESIZED_PIXELS = 100_000_000
"""Beyond this a long picture is refused rather than resized: it would take 650 MB on the way to a small square."""
_USUAL_RATIO = 16  # pictures up to 1:16 are resized however large the network's input is
_KEPT_WHOLE = 8


@dataclass(frozen=True)
class Preprocess:
    """How a picture becomes network input; part of the feature fingerprint."""

    size_px: int
    crop_share: float
    crop_mode: str
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def resize_px(self) -> int:
        """The short side before the centre crop."""
        return int(self.size_px / self.crop_share)

    @property
    def is_plain(self) -> bool:
        """Whether the fast path covers these settings."""
        return self.crop_mode == "center" and self.interpolation in ("bicubic", "bilinear")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Preprocess:
        return cls(**{**value, "mean": tuple(value["mean"]), "std": tuple(value["std"])})


def fit_to_input(image_hwc: Pixels, preprocess: Preprocess) -> Pixels:
    """`image_hwc` resized and cropped to the network's input."""
    if not preprocess.is_plain:
        return _fit_with_timm(image_hwc, preprocess)
    resized = resize_short_side(image_hwc, preprocess.resize_px, interpolation=preprocess.interpolation)
    cropped = crop_centre(resized, preprocess.size_px)
    return cropped if resized.size <= _KEPT_WHOLE * cropped.size else cropped.copy()  # a view would keep a long strip alive


def resize_short_side(image_hwc: Pixels, short_px: int, *, interpolation: str) -> Pixels:
    """Scale so that the shorter side is `short_px`; the other keeps the ratio, rounded down as torchvision does."""
    height, width = image_hwc.shape[:2]
    long_px = int(short_px * max(height, width) / min(height, width))
    if long_px * short_px > max(MAX_RESIZED_PIXELS, _USUAL_RATIO * short_px**2):
        raise DecodeError(
            "bomb-sized", f"{width}×{height} pixels would become {long_px * short_px:,} at a short side of {short_px}"
        )
    size = (short_px, long_px) if height <= width else (long_px, short_px)
    return resize(image_hwc, *size, interpolation=interpolation)


def resize(image_hwc: Pixels, height_px: int, width_px: int, *, interpolation: str) -> Pixels:
    """Antialiased resize of uint8 pixels, equal to Pillow's within rounding."""
    import torch
    from torch.nn.functional import interpolate

    if image_hwc.shape[:2] == (height_px, width_px):
        return image_hwc
    nchw = torch.from_numpy(image_hwc).permute(2, 0, 1)[None]
    resized = interpolate(nchw, size=(height_px, width_px), mode=interpolation, antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def crop_centre(image_hwc: Pixels, size_px: int) -> Pixels:
    """The central square; both sides must be at least `size_px`."""
    top, left = centre_offset(image_hwc.shape[0], size_px), centre_offset(image_hwc.shape[1], size_px)
    return image_hwc[top : top + size_px, left : left + size_px]


def centre_offset(length_px: int, size_px: int) -> int:
    """Where a centred window of `size_px` begins, rounded as timm's transform rounds it."""
    return round((length_px - size_px) / 2)


def _fit_with_timm(image_hwc: Pixels, preprocess: Preprocess) -> Pixels:
    from PIL import Image

    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    from timm.data import create_transform

    transform = create_transform(
        input_size=(3, preprocess.size_px, preprocess.size_px),
        interpolation=preprocess.interpolation,
        crop_pct=preprocess.crop_share,
        crop_mode=preprocess.crop_mode,
        use_prefetcher=True,
    )
    chw = np.asarray(transform(Image.fromarray(image_hwc)))
    return np.ascontiguousarray(chw.transpose(1, 2, 0))
