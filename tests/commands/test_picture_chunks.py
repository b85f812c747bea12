"""Chunks of pictures: which go together depends on their order alone."""

from __future__ import annotations

from unchoke.training.open_models import cut_chunks


def test_chunks_are_slices_that_know_their_places() -> None:
    chunks = cut_chunks(list("abcde"), 2)
    assert [chunk.paths for chunk in chunks] == [("a", "b"), ("c", "d"), ("e",)]
    assert [chunk.first for chunk in chunks] == [0, 2, 4]
