"""Bands brought to mean 0 and deviation 1."""

from __future__ import annotations

import numpy as np
import pytest

from unchoke.masks.band_standard import LIMIT, BandStandard, measure_standard

RANDOM = np.random.default_rng(3)


def part(mean: float, *, size: int = 8) -> tuple[np.ndarray, np.ndarray]:
    bands = RANDOM.normal(mean, 5, (2, size, size)).astype(np.float32)
    return bands, RANDOM.random((size, size)) > 0.3


def test_it_is_the_mean_and_deviation_of_all_valid_pixels_together() -> None:
    parts = [part(10.0), part(1e5, size=5), part(-3.0, size=3)]
    measured = measure_standard(parts, num_bands=2)
    values = np.concatenate([bands[:, valid].astype(np.float64) for bands, valid in parts], axis=1)
    assert measured.mean == pytest.approx(values.mean(axis=1))
    assert measured.std == pytest.approx(values.std(axis=1))


def test_a_band_that_is_the_same_everywhere_is_not_divided_by_nothing() -> None:
    bands = np.full((1, 4, 4), 7.0, np.float32)
    assert measure_standard([(bands, np.ones((4, 4), bool))], num_bands=1) == BandStandard((7.0,), (1.0,))


def test_without_a_valid_pixel_nothing_is_changed() -> None:
    nothing = (np.ones((2, 3, 3), np.float32), np.zeros((3, 3), bool))
    assert measure_standard([nothing], num_bands=2) == BandStandard((0.0, 0.0), (1.0, 1.0))


def test_invalid_pixels_become_nought_and_outliers_are_kept_within_the_limit() -> None:
    bands = np.array([[[10.0, 12.0], [1e9, np.nan]]], np.float32)
    valid = np.array([[True, True], [True, False]])
    shown = BandStandard((10.0,), (2.0,)).apply(bands, valid)
    assert shown.dtype == np.float16
    assert shown.tolist() == [[[0.0, 1.0], [LIMIT, 0.0]]]


def test_it_survives_being_written_down() -> None:
    standard = BandStandard((0.1, 2.0), (3.0, 1 / 3))
    assert BandStandard.from_dict(standard.to_dict()) == standard
