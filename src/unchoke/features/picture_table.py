"""Photos as columns: a sequence of them that makes each when it is asked for.

Ten million photos as objects take several gigabytes, as columns one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from unchoke.features.prepare_engine import Picture


@dataclass(frozen=True, eq=False)
class PictureTable(Sequence[Picture]):
    """One entry of each column for each photo."""

    ids: Sequence[str]
    paths: Sequence[str]
    contents: Sequence[str]
    decoded: NDArray[np.bool_]

    @classmethod
    def of(cls, pictures: Sequence[Picture]) -> PictureTable:
        """Any photos as a table."""
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
