"""Where a name stands in a long sequence of names. In: names, in any order, each once. Out: a place, or None.

Names that are sorted, as ids of samples are, need no table: what is asked for mostly comes right after what was asked for before,
and else is found by halving. Names in another order are put into a dict, which takes a hundred bytes and more for each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice, pairwise

from unchoke.core.errors import DataError, list_some


class Places:
    """Places of `names` by name. A name that comes twice is refused, unless they are known to be `distinct`."""

    def __init__(self, names: Sequence[str], *, distinct: bool = False) -> None:
        self.names = names
        self.next = 0
        """The place after the one that was found last."""
        if not distinct:
            _ = self._table

    @cached_property
    def _table(self) -> dict[str, int] | None:
        return None if _ascend(self.names) else _table(self.names)

    def find(self, name: str) -> int | None:
        """Where `name` stands."""
        place = self.next
        if place >= len(self.names) or self.names[place] != name:
            found = self._search(name)
            if found is None:
                return None
            place = found
        self.next = place + 1
        return place

    def find_all(self, names: Sequence[str]) -> Sequence[int | None]:
        """Where each of `names` stands: at once where they follow one another here as they do there."""
        begin = self.next
        if list(self.names[begin : begin + len(names)]) == list(names):
            self.next = begin + len(names)
            return range(begin, self.next)
        return [self.find(name) for name in names]

    def _search(self, name: str) -> int | None:
        if self._table is not None:
            return self._table.get(name)
        place = bisect_left(self.names, name)
        return place if place < len(self.names) and self.names[place] == name else None


def _ascend(names: Iterable[str]) -> bool:
    return all(left < right for left, right in pairwise(names))


def _table(names: Sequence[str]) -> dict[str, int]:
    table = {name: place for place, name in enumerate(names)}
    if len(table) != len(names):
        twice = [name for place, name in enumerate(names) if table[name] != place]
        raise DataError(
            f"{len(twice)} items occur more than once: {list_some(list(islice(twice, 100)))}",
            code="duplicate-items",
            why="an item's id says which row of which artefact is its own",
            try_="give every item its own id",
        )
    return table
