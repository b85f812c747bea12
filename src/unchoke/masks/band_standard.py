"""Bands brought to mean 0 and standard deviation 1: measured on some patches, applied to all.

In: scaled bands (after the scene's own scale) with their valid pixels. Out: two numbers for each band, and float16 patches that
every network can start from. Which patches are looked at is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT = 8.0
"""Standardised values are kept within this many standard deviations: float16 holds them, and a hot pixel blinds no filter."""


@dataclass(frozen=True)
class BandStandard:
    """Mean and standard deviation of each band, in the order of the bands."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, bands_chw: NDArray[np.float32], valid_hw: NDArray[np.bool_]) -> NDArray[np.float16]:
        """The standardised bands; `bands_chw` is worked on in place. Pixels that are not valid become 0, every band's mean."""
        bands_chw -= np.array(self.mean, np.float32)[:, None, None]
        bands_chw /= np.array(self.std, np.float32)[:, None, None]
        np.clip(bands_chw, -LIMIT, LIMIT, out=bands_chw)
        bands_chw[:, ~valid_hw] = 0
        return bands_chw.astype(np.float16)

    def to_dict(self) -> dict[str, Any]:
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> BandStandard:
        return cls(tuple(map(float, value["mean"])), tuple(map(float, value["std"])))


def measure_standard(parts: Iterable[tuple[NDArray[np.float32], NDArray[np.bool_]]], *, num_bands: int) -> BandStandard:
    """Mean and deviation over the valid pixels of all `parts`, pairs of bands (B, h, w) and valid (h, w).

    A band that is the same everywhere keeps a deviation of 1, as do all where no pixel is valid.
    """
    count, mean, squares = 0, np.zeros(num_bands), np.zeros(num_bands)
    for bands, valid in parts:
        values = bands[:, valid].astype(np.float64)
        if values.shape[1]:
            count, mean, squares = _merged(count, mean, squares, values)
    std = np.sqrt(squares / max(count, 1))
    std[std <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return BandStandard(tuple(mean.tolist()), tuple(std.tolist()))


def _merged(
    count: int, mean: NDArray[np.float64], squares: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Count, mean and sum of squared distances with `values` (B, n) added: exact where plain sums of squares would cancel."""
    added = values.shape[1]
    total = count + added
    its_mean = values.mean(axis=1)
    its_squares = ((values - its_mean[:, None]) ** 2).sum(axis=1)
    shift = its_mean - mean
    return total, mean + shift * (added / total), squares + its_squares + shift**2 * (count * added / total)
