"""`map_ahead` is `map`, whatever the numbers of items, threads and look-ahead."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.core.ahead import map_ahead


@given(items=st.lists(st.integers(), max_size=40), threads=st.integers(0, 4), ahead=st.integers(1, 10))
@settings(max_examples=60, deadline=None)
def test_it_equals_plain_map(items: list[int], threads: int, ahead: int) -> None:
    assert list(map_ahead(str, items, threads=threads, ahead=ahead)) == list(map(str, items))


@given(num_items=st.integers(0, 40), threads=st.integers(1, 4), ahead=st.integers(1, 10))
@settings(max_examples=60, deadline=None)
def test_never_more_than_ahead_items_are_taken(num_items: int, threads: int, ahead: int) -> None:
    taken = handed_out = most = 0

    def source() -> Iterator[int]:
        nonlocal taken, most
        for number in range(num_items):
            taken += 1
            most = max(most, taken - handed_out)
            yield number

    for _ in map_ahead(str, source(), threads=threads, ahead=ahead):
        handed_out += 1
    assert handed_out == num_items
    assert most <= ahead
