"""Shards are ordinary NPZ files, mapped by offset, and refuse what they should; the queue's records lead to every row."""

import os
import pickle
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest

from errors import refused
from unchoke.features.feature_store import (
    FeatureOverflow,
    FeatureStore,
    Placement,
    load_shard_ids,
    map_member,
    open_stored,
    save_rows,
    save_shard,
    to_half,
)
from unchoke.features.pyramid import PyramidSpec
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult

SPEC = PyramidSpec("net", "00", 3, 32, (4, 8), (2, 3))
PRINT = "abcdef0123456789"
PATTERN = "encoder_x/img_{first:06d}-{last:06d}.npz"
IDS = [f"s{number}" for number in range(10)]


def half(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def store_of(tmp_path: Path, *, shards: int, rows: int = 4, views: int = 0) -> tuple[FeatureStore, np.ndarray]:
    paths, blocks = [], []
    for number in range(shards):
        block = half(rows, 1 + views, 5, seed=number)
        arrays = {"global_pool": block[:, 0].copy(), **({"views": block[:, 1:].copy()} if views else {})}
        paths.append(tmp_path / f"{number}.npz")
        save_shard(paths[-1], arrays, [f"{number}/{row}" for row in range(rows)])
        blocks.append(block)
    shard_of = np.repeat(np.arange(shards, dtype=np.int32), rows)
    row_of = np.tile(np.arange(rows, dtype=np.int32), shards)
    return FeatureStore(Placement(tuple(paths), shard_of, row_of), dim=5, num_augmented=views), np.concatenate(blocks)


def test_shard_opens_with_numpy_and_maps_the_same(tmp_path: Path) -> None:
    pooled = half(7, 33)
    save_shard(tmp_path / "s.npz", {"global_pool": pooled}, [f"id {number}" for number in range(7)])
    with np.load(tmp_path / "s.npz") as plain:
        assert (plain["global_pool"] == pooled).all()
        assert list(plain["sample_id"]) == load_shard_ids(tmp_path / "s.npz")
    assert (map_member(tmp_path / "s.npz", "global_pool") == pooled).all()


def test_activations_of_any_shape_come_back_as_they_were(tmp_path: Path) -> None:
    rows, views = half(4, 2, 3, 5, 5), half(4, 3, 2, 3, 5, 5, seed=1)
    save_shard(tmp_path / "s.npz", {"activations": rows, "views": views}, ["a", "b", "c", "d"])
    placement = Placement((tmp_path / "s.npz",), np.zeros(3, np.int32), np.array([2, 0, 3], np.int32))
    store = FeatureStore(placement, row_shape=(2, 3, 5, 5), num_augmented=3)
    assert (store.row_shape, store.dim, store.num_samples) == ((2, 3, 5, 5), 150, 3)
    assert (store.rows(np.array([1, 0])) == rows[[0, 2]]).all()
    assert (store.rows(np.array([0, 1, 2]), np.array([3, 0, 1])) == np.stack([views[2, 2], rows[0], views[3, 0]])).all()
    assert (store.all_views(np.array([2])) == np.concatenate([rows[3:, None], views[3:]], axis=1)).all()


def test_large_rows_are_put_into_the_array_given(tmp_path: Path) -> None:
    rows, views = half(3, 1, 96, 100), half(3, 2, 1, 96, 100, seed=1)
    save_shard(tmp_path / "s.npz", {"activations": rows, "views": views}, ["a", "b", "c"])
    placement = Placement((tmp_path / "s.npz",), np.zeros(3, np.int32), np.arange(3, dtype=np.int32))
    store = FeatureStore(placement, row_shape=(1, 96, 100), num_augmented=2)
    out = np.empty((4, 1, 96, 100), np.float16)
    assert store.rows(np.array([2, 0, 1, 1]), np.array([0, 2, 1, 0]), out=out) is out
    assert (out == np.stack([rows[2], views[0, 1], views[1, 0], rows[1]])).all()


def test_rows_of_another_shape_than_promised_are_refused(tmp_path: Path) -> None:
    store, _ = store_of(tmp_path, shards=1)
    with refused("damaged-shard", "0.npz"):
        FeatureStore(store.placement, row_shape=(2, 5)).rows(np.array([0]))
    with refused("damaged-shard", "0.npz"):
        FeatureStore(store.placement, dim=4).rows(np.array([0]))


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first = save_shard(tmp_path / "a.npz", {"global_pool": half(3, 4)}, ["a", "ü", "c,d"])
    second = save_shard(tmp_path / "b.npz", {"global_pool": half(3, 4)}, ["a", "ü", "c,d"])
    assert first == second
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_rows_come_in_the_order_asked_for_with_repeats(tmp_path: Path) -> None:
    store, truth = store_of(tmp_path, shards=3)
    wanted = np.array([11, 0, 5, 5, 7, 1])
    assert (store.rows(wanted) == truth[wanted, 0]).all()
    assert store.rows(np.array([], np.int64)).shape == (0, 5)


def test_each_row_may_show_another_view(tmp_path: Path) -> None:
    store, truth = store_of(tmp_path, shards=2, views=2)
    wanted, views = np.array([6, 1, 3, 0]), np.array([0, 2, 1, 0])
    assert store.num_views == 3
    assert (store.rows(wanted, views) == truth[wanted, views]).all()
    assert (store.all_views(wanted) == truth[wanted]).all()


def test_more_shards_than_descriptors_can_be_open(tmp_path: Path) -> None:
    store, truth = store_of(tmp_path, shards=120, rows=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = max(int(name) for name in os.listdir("/dev/fd"))  # this process may hold some of other tests
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 60, hard))
    try:
        assert (store.rows(np.arange(120)) == truth[:, 0]).all()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_value_too_large_for_float16_is_refused() -> None:
    with pytest.raises(FeatureOverflow, match="7e\\+04"):
        to_half(np.array([[1.0, 70_000.0]], np.float32))
    with pytest.raises(FeatureOverflow):
        to_half(np.array([[np.nan]], np.float32))
    assert to_half(np.array([[65_504.0]], np.float32)).dtype == np.float16


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("a pickle in a shard was run",))


def test_a_pickle_hidden_in_a_shard_is_refused_not_run(tmp_path: Path) -> None:
    file = tmp_path / "trap.npz"
    trap = np.lib.format.MAGIC_PREFIX + bytes([1, 0])
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (64 - (len(header) + 11) % 64) + b"\n"
    member = trap + len(header).to_bytes(2, "little") + header + pickle.dumps(Trap())
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("global_pool.npy", member)
        archive.writestr("sample_id.npy", member)
    with refused("damaged-shard", "trap.npz"):
        load_shard_ids(file)
    with refused("damaged-shard", "trap.npz"):
        map_member(file, "global_pool")


def test_compressed_truncated_and_foreign_files_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "c.npz", global_pool=half(2, 2))
    (tmp_path / "t.npz").write_bytes((tmp_path / "c.npz").read_bytes()[:40])
    np.savez(tmp_path / "f.npz", global_pool=np.zeros((2, 2)))
    for name in ("c", "t", "f"):
        with refused("damaged-shard"):
            map_member(tmp_path / f"{name}.npz", "global_pool")


def pyramid_rows(num: int, num_views: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num, num_views, SPEC.row_length)).astype(np.float16)


def ids(num: int, prefix: str = "p") -> list[str]:
    return [f"{prefix}{number}" for number in range(num)]


@pytest.fixture
def pyramids(tmp_path: Path) -> tuple[FeatureStore, np.ndarray]:
    """Two shards of three patches in two views, asked for in an order of their own."""
    content = [pyramid_rows(3, 2, seed) for seed in (1, 2)]
    for number, part in enumerate(content):
        save_rows(tmp_path / f"{number}.npz", part, ids(3), levels=SPEC.levels)
    shard_of, row_of = np.array([1, 0, 0, 1], np.int32), np.array([2, 0, 1, 0], np.int32)
    placement = Placement((tmp_path / "0.npz", tmp_path / "1.npz"), shard_of, row_of)
    wanted = np.stack([content[shard][row] for shard, row in zip(shard_of, row_of, strict=True)])
    return FeatureStore(placement, levels=SPEC.levels, num_augmented=1), wanted


def test_shard_has_an_array_for_each_level_and_view(tmp_path: Path) -> None:
    content = pyramid_rows(2, 2)
    save_rows(tmp_path / "a.npz", content, ids(2), levels=SPEC.levels)
    with np.load(tmp_path / "a.npz") as shard:
        assert shard.files == ["stride_4", "stride_8", "view1_stride_4", "view1_stride_8", "sample_id"]
        assert shard["stride_8"].shape == (2, 3, 4, 4)
        assert np.array_equal(shard["stride_4"].reshape(2, -1), content[:, 0, :128])
        assert np.array_equal(shard["view1_stride_8"].reshape(2, -1), content[:, 1, 128:])
        assert shard["sample_id"].tolist() == ["p0", "p1"]


def test_the_same_levels_give_the_same_bytes(tmp_path: Path) -> None:
    sums = [save_rows(tmp_path / name, pyramid_rows(2, 1), ids(2), levels=SPEC.levels) for name in ("a.npz", "b.npz")]
    assert sums[0] == sums[1]


def test_rows_of_several_levels_come_back_by_position(pyramids: tuple[FeatureStore, np.ndarray]) -> None:
    store, wanted = pyramids
    assert (store.num_samples, store.num_views, store.row_shape) == (4, 2, (SPEC.row_length,))
    positions = np.array([3, 0, 2, 2])
    assert np.array_equal(store.rows(positions), wanted[positions, 0])


def test_each_row_may_be_another_view(pyramids: tuple[FeatureStore, np.ndarray]) -> None:
    store, wanted = pyramids
    positions, views = np.array([0, 1, 2]), np.array([1, 0, 1])
    out = np.zeros((3, SPEC.row_length), np.float16)
    assert store.rows(positions, views, out=out) is out
    assert np.array_equal(out, wanted[positions, views])


def test_an_empty_shard_is_possible(tmp_path: Path) -> None:
    save_rows(tmp_path / "a.npz", pyramid_rows(0, 1), [], levels=SPEC.levels)
    with np.load(tmp_path / "a.npz") as shard:
        assert shard["stride_4"].shape == (0, 2, 8, 8)


def test_a_shard_of_another_pyramid_is_refused(tmp_path: Path) -> None:
    save_rows(tmp_path / "a.npz", pyramid_rows(1, 1), ids(1), levels=SPEC.levels)
    other = PyramidSpec("net", "00", 3, 32, (4, 8), (4, 3))
    placement = Placement((tmp_path / "a.npz",), np.zeros(1, np.int32), np.zeros(1, np.int32))
    with refused("damaged-shard", "a.npz") as caught:
        FeatureStore(placement, levels=other.levels).rows(np.array([0]))
    assert "(2, 8, 8)" in caught.value.why and "(4, 8, 8)" in caught.value.why


def value_of(sample_id: str) -> float:
    return float(sample_id[1:])


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    """Ten samples in jobs of four; s5 failed, and the last job was never done."""
    queue = JobQueue.load(tmp_path)
    state = queue.plan(IDS, ["c"] * len(IDS), fingerprint=PRINT, output_pattern=PATTERN, job_size=4)
    for job in state.pending[:2]:
        kept = [name for name in job.items if name != "s5"]
        rows = np.array([[value_of(name)] * 3 for name in kept], np.float16)
        sha256, size = save_shard(queue.artefact(job), {"global_pool": rows}, kept)
        failed = tuple((name, "truncated: ends early") for name in job.items if name == "s5")
        queue.finish(job, JobResult(len(job.items), failed, sha256, size, {}))
    return queue


def test_rows_are_found_in_the_order_asked_for(queue: JobQueue) -> None:
    wanted = ["s7", "s0", "s6", "s3"]
    stored = open_stored(queue, PRINT, wanted)
    assert stored.present.all()
    rows = FeatureStore(stored.placement, dim=3).rows(np.arange(4))
    assert rows[:, 0].tolist() == [value_of(name) for name in wanted]


def test_failed_and_lost_samples_are_told_apart(queue: JobQueue) -> None:
    stored = open_stored(queue, PRINT, IDS)
    assert stored.failed == {"s5": "truncated: ends early"}
    assert stored.lost() == ["s8", "s9"]
    assert stored.present.tolist() == [True] * 5 + [False] + [True] * 2 + [False] * 2
    store = FeatureStore(stored.placement, dim=3)
    assert store.num_samples == 7
    assert store.rows(np.arange(7))[:, 1].tolist() == [0, 1, 2, 3, 4, 6, 7]


def test_another_fingerprint_has_nothing(queue: JobQueue) -> None:
    stored = open_stored(queue, "0" * 16, IDS)
    assert not stored.present.any()
    assert stored.lost() == IDS


def test_a_shard_of_another_size_does_not_count(queue: JobQueue) -> None:
    job = queue.jobs(PRINT)[0]
    queue.artefact(job).write_bytes(queue.artefact(job).read_bytes()[:-1])
    assert open_stored(queue, PRINT, IDS).lost() == ["s0", "s1", "s2", "s3", "s8", "s9"]
