"""Pictures as columns: a sequence of them that makes each when it is asked for, what a plan asks of them, and where each lies.

In: a list of pictures, or columns. Out: a `PictureTable`. Ten million pictures as objects take several gigabytes, as columns one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from unchoke.features.prepare_engine import Picture
from unchoke.jobs.name_places import Places


@dataclass(frozen=True, eq=False)
class PictureTable(Sequence[Picture]):
    """One entry of each column for each picture."""

    ids: Sequence[str]
    paths: Sequence[str]
    contents: Sequence[str]
    decoded: NDArray[np.bool_]

    @classmethod
    def of(cls, pictures: Sequence[Picture]) -> PictureTable:
        """Any pictures as a table."""
        if isinstance(pictures, PictureTable):
            return pictures
        ids, paths = [picture.sample_id for picture in pictures], [picture.path for picture in pictures]
        contents = [picture.content for picture in pictures]
        return cls(ids, paths, contents, np.array([picture.decoded for picture in pictures], dtype=bool))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Picture: ...
    @overload
    def __getitem__(self, place: slice) -> list[Picture]: ...
    def __getitem__(self, place: int | slice) -> Picture | list[Picture]:
        if isinstance(place, int):
            return Picture(self.ids[place], self.paths[place], self.contents[place], bool(self.decoded[place]))
        rows = zip(self.ids[place], self.paths[place], self.contents[place], self.decoded[place].tolist(), strict=True)
        return [Picture(*row) for row in rows]

    def __iter__(self) -> Iterator[Picture]:
        return (Picture(*row) for row in zip(self.ids, self.paths, self.contents, map(bool, self.decoded), strict=True))

    @property
    def items(self) -> PictureItems:
        """What a plan of jobs asks of them."""
        return PictureItems(self.ids, self.contents)

    @property
    def path_of(self) -> PicturePaths:
        """Where each lies, by its id."""
        return PicturePaths(self.ids, self.paths)


@dataclass(frozen=True, eq=False)
class PictureItems(Sequence[tuple[str, str]]):
    """Pairs of id and content."""

    ids: Sequence[str]
    contents: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, place: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(place, int):
            return self.ids[place], self.contents[place]
        return list(zip(self.ids[place], self.contents[place], strict=True))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.ids, self.contents, strict=True)


@dataclass(frozen=True, eq=False)
class PicturePaths(Mapping[str, str]):
    """Paths by id."""

    ids: Sequence[str]
    paths: Sequence[str]

    @cached_property
    def _places(self) -> Places:
        return Places(self.ids)

    def __getitem__(self, sample_id: str) -> str:
        place = self._places.find(sample_id)
        if place is None:
            raise KeyError(sample_id)
        return self.paths[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)
