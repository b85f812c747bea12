"""Where names stand in a long sequence, and paths by name.

Names that are sorted, as sample ids are, need no table: one takes a hundred bytes for each of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from unchoke.core.errors import DataError, list_some


class Places:
    """Places of `names`, each of which comes once; asking for them in their order is quickest."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.next = 0
        """The place after those that were found last."""
        self._sorted = all(left < right for left, right in pairwise(names))
        if not self._sorted and len(self._table) != len(names):
            twice = [name for place, name in enumerate(names) if self._table[name] != place]
            raise DataError(
                f"{len(twice)} items occur more than once: {list_some(twice[:100])}",
                code="duplicate-items",
                why="an item's id says which row of which artefact is its own",
                try_="give every item its own id",
            )

    @cached_property
    def _table(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def find(self, name: str) -> int | None:
        """Where `name` stands, or None."""
        if not self._sorted:
            return self._table.get(name)
        place = bisect_left(self.names, name)
        return place if place < len(self.names) and self.names[place] == name else None

    def find_all(self, names: Sequence[str]) -> Sequence[int | None]:
        """Where each of `names` stands."""
        begin = self.next
        places: Sequence[int | None] = range(begin, begin + len(names))
        if list(self.names[begin : begin + len(names)]) != list(names):
            places = [self.find(name) for name in names]
        self.next = 1 + max((place for place in places if place is not None), default=begin - 1)
        return places


@dataclass(frozen=True, eq=False)
class PathsById(Mapping[str, str]):
    """Where each photo lies."""

    ids: Sequence[str]
    paths: Sequence[str]

    @cached_property
    def _places(self) -> Places:
        return Places(self.ids)

    def __getitem__(self, sample_id: str) -> str:
        (place,) = self._places.find_all([sample_id])
        if place is None:
            raise KeyError(sample_id)
        return self.paths[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)
