from __future__ import annotations

import numpy as np
import pytest
import torch

from unchoke.core.mixing import hash_ids
from unchoke.training import sampling
from unchoke.training.data import ArraySource, Standardiser
from unchoke.training.sampling import Rows, Scaler, batches, epoch_order, epoch_views

IDS = [f"img/{number}.jpg" for number in range(500)]


def plain_scaler(dim: int) -> Scaler:
    return Scaler.on(torch.device("cpu"), Standardiser(np.zeros(dim, np.float32), np.ones(dim, np.float32)))


def test_the_order_is_of_the_ids_not_of_their_rows():
    shuffled = np.random.default_rng(0).permutation(500)
    ordered = [IDS[i] for i in epoch_order(hash_ids(IDS), seed=3, epoch=2)]
    again = [IDS[shuffled[i]] for i in epoch_order(hash_ids([IDS[i] for i in shuffled]), seed=3, epoch=2)]
    assert ordered == again


def test_every_epoch_and_seed_has_its_own_order():
    hashes = hash_ids(IDS)
    orders = {tuple(epoch_order(hashes, seed=seed, epoch=epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert all(sorted(order) == list(range(500)) for order in orders)


def test_views_are_drawn_evenly_and_change_between_epochs():
    hashes = hash_ids(IDS)
    drawn = np.stack([epoch_views(hashes, seed=0, epoch=epoch, num_views=4) for epoch in range(20)])
    shares = np.bincount(drawn.ravel(), minlength=4) / drawn.size
    assert np.abs(shares - 0.25).max() < 0.02
    assert (drawn[0] != drawn[1]).mean() > 0.6


def test_batches_keep_the_order_asked_for_across_chunks(monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK_VALUES", 7 * 3 * 2)
    feats = np.arange(100 * 2 * 3, dtype=np.float16).reshape(100, 2, 3)
    positions = np.random.default_rng(0).permutation(100)[:47]
    views = np.random.default_rng(1).integers(0, 2, size=47)
    stream = list(batches(ArraySource(feats), positions, views=views, batch_size=7, scaler=plain_scaler(3)))
    assert [len(batch.positions) for batch in stream] == [7] * 6 + [5]
    np.testing.assert_array_equal(np.concatenate([batch.positions for batch in stream]), positions)
    np.testing.assert_array_equal(torch.cat([batch.feats for batch in stream]).numpy(), feats[positions, views])


def test_all_views_come_together_when_asked():
    feats = np.random.default_rng(0).normal(size=(10, 4, 3)).astype(np.float16)
    (batch,) = batches(ArraySource(feats), np.array([8, 1]), views=None, batch_size=5, scaler=plain_scaler(3))
    np.testing.assert_array_equal(batch.feats.numpy(), feats[[8, 1]])


def test_the_scaler_leaves_the_source_untouched():
    feats = np.ones((6, 3), dtype=np.float16)
    scaler = Scaler.on(torch.device("cpu"), Standardiser(np.full(3, 5, np.float32), np.full(3, 2, np.float32)))
    (batch,) = batches(ArraySource(feats), np.arange(6), views=0, batch_size=6, scaler=scaler)
    assert batch.feats.unique().tolist() == [-2.0]
    assert feats.min() == 1


@pytest.mark.parametrize("views", ["one each", 1, None])
def test_held_rows_give_the_same_bytes(monkeypatch, views):
    monkeypatch.setattr(sampling, "CHUNK_VALUES", 50)
    monkeypatch.setattr(sampling, "CHUNK_ROWS", 7)
    rng = np.random.default_rng(0)
    source = ArraySource(rng.normal(size=(60, 3, 5)).astype(np.float16))
    positions = rng.permutation(60)[:41]
    scale = Standardiser(rng.normal(size=5).astype(np.float32), rng.uniform(1, 2, size=5).astype(np.float32))
    asked = rng.integers(0, 3, size=41) if views == "one each" else views
    read, held = (Rows(source, positions, Scaler.on(torch.device("cpu"), scale)) for _ in range(2))
    held.hold(1e9)
    order = rng.permutation(41)
    pairs = [list(rows.batches(order, views=asked, batch_size=8)) for rows in (read, held)]
    for (feats, where), (same, there) in zip(*pairs, strict=True):
        assert feats.numpy().tobytes() == same.contiguous().numpy().tobytes()
        assert where.tolist() == there.tolist()
    assert torch.cat([where for _, where in pairs[0]]).tolist() == np.sort(positions)[order].tolist()
    for number in range(read.num_chunks):
        assert torch.equal(read.chunk(number)[0], held.chunk(number)[0])


def test_many_rows_are_not_held():
    rows = Rows(ArraySource(np.ones((4, 3))), np.arange(4), plain_scaler(3))
    rows.hold(4 * 4 * 3 - 1)
    assert rows._held is None
