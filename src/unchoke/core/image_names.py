"""Which files are pictures, by their names alone: those that can be read, and those in formats that cannot be decoded here."""

from __future__ import annotations

import os
from importlib.util import find_spec

HEIC_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
"""What phones write; read where the extra `heic` is installed."""
IMAGE_SUFFIXES = (HEIC_SUFFIXES if find_spec("pillow_heif") else frozenset()) | frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".bmp", ".dib", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
     ".pnm", ".jp2", ".avif"}
)  # fmt: skip
FOREIGN_IMAGE_SUFFIXES = (HEIC_SUFFIXES - IMAGE_SUFFIXES) | frozenset(
    {".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw", ".svg", ".psd", ".jxl", ".dcm"}
)  # fmt: skip
PICTURE_SUFFIXES = IMAGE_SUFFIXES | FOREIGN_IMAGE_SUFFIXES


def suffix_of(name: str) -> str:
    """The lower-case extension with its dot."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 (a name, not a path; and called for every file)
