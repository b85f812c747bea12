"""Which files are pictures, by their names alone: those that can be read, and those in formats that cannot be decoded here."""

from __future__ import annotations

import os

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".bmp", ".dib", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
     ".pnm", ".jp2", ".avif"}
)  # fmt: skip
FOREIGN_IMAGE_SUFFIXES = frozenset(
    {".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw", ".svg", ".psd", ".jxl", ".dcm"}
)  # fmt: skip
PICTURE_SUFFIXES = IMAGE_SUFFIXES | FOREIGN_IMAGE_SUFFIXES


def suffix_of(name: str) -> str:
    """The lower-case extension with its dot."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 (a name, not a path; and called for every file)
