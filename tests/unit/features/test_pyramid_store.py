"""Pyramids on disk: plain NPZ members, read as rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unchoke.core.errors import DataError
from unchoke.features.feature_store import Placement
from unchoke.features.pyramid import PyramidSpec
from unchoke.features.pyramid_store import PyramidStore, save_pyramids

SPEC = PyramidSpec("net", "00", 3, 32, (4, 8), (2, 3))


def rows(num: int, num_views: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num, num_views, SPEC.row_length)).astype(np.float16)


def ids(num: int, prefix: str = "p") -> list[str]:
    return [f"{prefix}{number}" for number in range(num)]


@pytest.fixture
def stored(tmp_path: Path) -> tuple[PyramidStore, np.ndarray]:
    """Two shards of three patches in two views, asked for in an order of their own."""
    content = [rows(3, 2, seed) for seed in (1, 2)]
    for number, part in enumerate(content):
        save_pyramids(tmp_path / f"{number}.npz", part, ids(3), spec=SPEC)
    shard_of, row_of = np.array([1, 0, 0, 1], np.int32), np.array([2, 0, 1, 0], np.int32)
    placement = Placement((tmp_path / "0.npz", tmp_path / "1.npz"), shard_of, row_of)
    wanted = np.stack([content[shard][row] for shard, row in zip(shard_of, row_of, strict=True)])
    return PyramidStore(placement, spec=SPEC, num_augmented=1), wanted


def test_a_shard_has_an_array_for_each_level_and_view_that_numpy_reads(tmp_path: Path) -> None:
    content = rows(2, 2)
    save_pyramids(tmp_path / "a.npz", content, ids(2), spec=SPEC)
    with np.load(tmp_path / "a.npz") as shard:
        assert shard.files == ["stride_4", "stride_8", "view1_stride_4", "view1_stride_8", "sample_id"]
        assert shard["stride_8"].shape == (2, 3, 4, 4)
        assert np.array_equal(shard["stride_4"].reshape(2, -1), content[:, 0, :128])
        assert np.array_equal(shard["view1_stride_8"].reshape(2, -1), content[:, 1, 128:])
        assert shard["sample_id"].tolist() == ["p0", "p1"]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    sums = [save_pyramids(tmp_path / name, rows(2, 1), ids(2), spec=SPEC) for name in ("a.npz", "b.npz")]
    assert sums[0] == sums[1]


def test_rows_come_back_by_position(stored: tuple[PyramidStore, np.ndarray]) -> None:
    store, wanted = stored
    assert (store.num_samples, store.num_views, store.row_shape) == (4, 2, (SPEC.row_length,))
    positions = np.array([3, 0, 2, 2])
    assert np.array_equal(store.rows(positions), wanted[positions, 0])


def test_each_row_may_be_another_view_and_is_put_where_asked(stored: tuple[PyramidStore, np.ndarray]) -> None:
    store, wanted = stored
    positions, views = np.array([0, 1, 2]), np.array([1, 0, 1])
    out = np.zeros((3, SPEC.row_length), np.float16)
    assert store.rows(positions, views, out=out) is out
    assert np.array_equal(out, wanted[positions, views])


def test_an_empty_shard_is_possible(tmp_path: Path) -> None:
    save_pyramids(tmp_path / "a.npz", rows(0, 1), [], spec=SPEC)
    with np.load(tmp_path / "a.npz") as shard:
        assert shard["stride_4"].shape == (0, 2, 8, 8)


def test_a_shard_of_another_pyramid_is_refused(tmp_path: Path) -> None:
    save_pyramids(tmp_path / "a.npz", rows(1, 1), ids(1), spec=SPEC)
    other = PyramidSpec("net", "00", 3, 32, (4, 8), (4, 3))
    placement = Placement((tmp_path / "a.npz",), np.zeros(1, np.int32), np.zeros(1, np.int32))
    with pytest.raises(DataError, match=r"a\.npz holds another pyramid"):
        PyramidStore(placement, spec=other).rows(np.array([0]))
