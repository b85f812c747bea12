"""Finished bands on disk: read back as they were; of something else, damaged or absent, they count as missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unchoke.core.boxes import Box
from unchoke.masks.parts import NO_CLASS, Part, PartStore, to_part

BAND = Box(512, 4096, 6, 9)


def make_part(seed: int = 0) -> Part:
    values = np.random.default_rng(seed).random((3, BAND.height, BAND.width), np.float32)
    return to_part(values, probabilities=True)


def open_store(folder: Path, *, made_from: str = "abc", probabilities: bool = True) -> PartStore:
    return PartStore(folder / "scene", made_from=made_from, probabilities=probabilities)


def test_the_likeliest_class_wins_and_of_equals_the_first() -> None:
    values = np.array([[[0.2, 0.4, 0.1]], [[0.5, 0.4, 0.1]], [[0.3, 0.2, 0.8]]], np.float32)
    part = to_part(values, probabilities=True)
    assert part.classes.tolist() == [[1, 0, 2]]
    assert part.probabilities is not None
    assert part.probabilities[:, 0, 0].tolist() == [51, 127, 76]


def test_what_is_not_a_number_has_no_class_and_no_probability() -> None:
    values = np.full((2, 100, 3), 0.5, np.float32)
    values[:, 70, 1] = np.nan
    values[1, 90, 2] = np.nan
    part = to_part(values, probabilities=True)
    assert part.probabilities is not None
    assert np.argwhere(part.classes == NO_CLASS).tolist() == [[70, 1], [90, 2]]
    assert (part.probabilities[:, part.classes == NO_CLASS] == NO_CLASS).all()
    assert (part.probabilities[:, part.classes != NO_CLASS] == 127).all()


def test_rounding_never_leaves_the_scale() -> None:
    part = to_part(np.array([[[1.0000002, -1e-7]], [[0.0, 1.0]]], np.float32), probabilities=True)
    assert part.probabilities is not None
    assert part.probabilities.tolist() == [[[254, 0]], [[0, 254]]]


def test_a_part_is_read_back_after_a_restart(tmp_path: Path) -> None:
    part = make_part()
    assert not open_store(tmp_path).done(BAND)
    open_store(tmp_path).save(BAND, part)
    again = open_store(tmp_path)
    assert again.done(BAND)
    found = again.load(BAND)
    np.testing.assert_array_equal(found.classes, part.classes)
    np.testing.assert_array_equal(found.probabilities, part.probabilities)


def test_a_part_made_from_something_else_counts_as_missing(tmp_path: Path) -> None:
    open_store(tmp_path).save(BAND, make_part())
    assert not open_store(tmp_path, made_from="other weights").done(BAND)
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path, made_from="other weights").load(BAND)


def test_a_part_of_another_size_counts_as_missing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    assert not store.done(BAND._replace(width=10))


@pytest.mark.parametrize("keep_share", [0.0, 0.3, 0.9])
def test_a_cut_off_part_counts_as_missing(tmp_path: Path, keep_share: float) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    data = store.file(BAND).read_bytes()
    store.file(BAND).write_bytes(data[: int(len(data) * keep_share)])
    assert not store.done(BAND)


def test_a_part_with_a_flipped_byte_counts_as_missing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    data = bytearray(store.file(BAND).read_bytes())
    place = data.index(b"classes.npy") + 60
    data[place] ^= 255
    store.file(BAND).write_bytes(bytes(data))
    assert not store.done(BAND)


def test_parts_without_probabilities_do_not_serve_where_they_are_wanted(tmp_path: Path) -> None:
    values = np.zeros((3, BAND.height, BAND.width), np.float32)
    open_store(tmp_path, probabilities=False).save(BAND, to_part(values, probabilities=False))
    assert open_store(tmp_path, probabilities=False).load(BAND).probabilities is None
    assert not open_store(tmp_path).done(BAND)


def test_removed_means_that_the_folder_is_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(BAND, make_part())
    store.remove()
    assert list(tmp_path.iterdir()) == []
