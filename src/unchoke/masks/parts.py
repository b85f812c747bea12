"""Finished bands of a mask, one small file each, so that a mask that was interrupted goes on where it stopped.

In: the values of a band as `stitch` finishes it. Out: its classes (and probabilities) as bytes, now or after a restart. Each file
is written atomically and carries a digest of everything it was made from: a part of other weights, another scene or another plan
counts as missing, and so does one that was damaged. Nothing is known here of where patches come from or what is made of parts.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.boxes import Box
from unchoke.scenes.npz import write_npz

Bytes = NDArray[np.uint8]

NO_CLASS = 255
"""Where nothing could be said, in classes and in probabilities alike."""
PROBABILITY_STEPS = 254
"""A stored probability is a whole number of steps: 0 is 0, 254 is 1."""
_ROWS = 64


@dataclass(frozen=True, eq=False)
class Part:
    """A band of a mask: classes (h, w) and, where they are kept, probabilities (C, h, w); `NO_CLASS` where there is nothing."""

    classes: Bytes
    probabilities: Bytes | None = None


def to_part(values_chw: NDArray[np.float32], *, probabilities: bool) -> Part:
    """The likeliest class of each pixel (of equals the first), and how likely each class is; not-a-number becomes `NO_CLASS`.

    A few rows at a time, because what is worked out on the way takes more than what comes out.
    """
    num_classes, height, width = values_chw.shape
    classes = np.empty((height, width), np.uint8)
    steps = np.empty((num_classes, height, width), np.uint8) if probabilities else None
    for top in range(0, height, _ROWS):
        values = values_chw[:, top : top + _ROWS]
        nothing = np.isnan(values).any(axis=0)
        known = np.where(nothing, 0, values)
        classes[top : top + _ROWS] = np.where(nothing, NO_CLASS, known.argmax(axis=0))
        if steps is not None:
            rounded = np.rint(np.clip(known, 0, 1) * PROBABILITY_STEPS)
            steps[:, top : top + _ROWS] = np.where(nothing, NO_CLASS, rounded)
    return Part(classes, steps)


class PartStore:
    """The parts of one mask, in a folder of their own. `made_from` is the digest of everything they depend on."""

    def __init__(self, folder: Path, *, made_from: str, probabilities: bool) -> None:
        self.folder = folder
        self._made_from = made_from
        self._probabilities = probabilities
        folder.mkdir(parents=True, exist_ok=True)
        atomic.sweep_temporaries(folder)

    def file(self, band: Box) -> Path:
        return self.folder / f"part_r{band.top:06d}_c{band.left:06d}.npz"

    def done(self, band: Box) -> bool:
        """Whether the part is there, sound, and made from the same things. It is read for that."""
        return self._read(band) is not None

    def save(self, band: Box, part: Part) -> None:
        """Keep a part for good, in the place of any other of this band."""
        arrays = {"made_from": np.array(self._made_from), "classes": part.classes}
        if part.probabilities is not None:
            arrays["probabilities"] = part.probabilities
        write_npz(self.file(band), arrays, compress="isal")

    def load(self, band: Box) -> Part:
        part = self._read(band)
        if part is None:
            raise FileNotFoundError(self.file(band))
        return part

    def remove(self) -> None:
        """Everything in the folder, and the folder: for a mask that is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, band: Box) -> Part | None:
        try:
            with np.load(self.file(band)) as arrays:
                if str(arrays["made_from"]) != self._made_from:
                    return None
                part = Part(arrays["classes"], arrays["probabilities"] if self._probabilities else None)
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):  # missing, or not what was written
            return None
        return part if part.classes.shape == (band.height, band.width) else None
