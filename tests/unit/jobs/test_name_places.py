"""Places of names: the same answers for names in any order, and names that come twice are refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from errors import refused
from unchoke.jobs.name_places import Places

NAMES = st.lists(st.text(max_size=3), max_size=30, unique=True)


@given(NAMES, st.lists(st.text(max_size=3), max_size=30), st.booleans())
def test_every_name_is_found_where_it_stands(names: list[str], asked: list[str], ordered: bool) -> None:
    names = sorted(names) if ordered else names
    places = Places(names)
    wanted = [names.index(name) if name in names else None for name in asked]
    assert [places.find(name) for name in asked] == wanted
    assert list(places.find_all(asked)) == wanted
    assert list(Places(names).find_all(names)) == list(range(len(names)))


def test_a_name_that_comes_twice_is_refused() -> None:
    with refused("duplicate-items"):
        Places(["a", "b", "a"])
