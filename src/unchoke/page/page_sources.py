"""What the page is told by rooms it does not know: findings of `curate`, what a model says, photos that are alike.

Plain values, and the one contract that `page/ui.py` keeps. The page asks; whoever answers may open files and load a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unchoke.data.corrections import Correction

IMAGE, PREDICTION = "image", "prediction"
"""Pictures of a scene: itself, and a mask over it."""


@dataclass(frozen=True)
class ReviewItem:
    """One finding as the queue shows it; `photos` are sample ids, the one it is about first."""

    id: str
    kind: str
    about: str
    """What its kind is, in words."""
    message: str
    photos: tuple[str, ...]
    suggested: tuple[Correction, ...] = ()
    settled: bool = False
    waits: bool = True
    """Whether it is one that a decision settles."""
    target: str = ""
    """The target whose value it is about, where photos have values."""


@dataclass(frozen=True)
class LikePhoto:
    """A photo that is like another one, and how much: 1 for the same."""

    sample_id: str
    cosine: float


@dataclass(frozen=True)
class PhotoAnswer:
    """What a model says of a photo: rows of what and how much, the training photos nearest to it, and what is to be said."""

    run: str
    rows: tuple[tuple[str, float, str], ...]
    """A class with its probability, or a target with its value; the number as text; the likeliest first."""
    is_shares: bool
    nearest: tuple[LikePhoto, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class LikePhotos:
    """The photos most like one, or why there are none."""

    photos: tuple[LikePhoto, ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class SceneMask:
    """A mask of a whole scene; `layers` has, for each picture there is of it (`image`, `prediction`), the files it is made of."""

    id: str
    run: str
    title: str
    note: str
    width: int
    height: int
    legend: tuple[tuple[str, str], ...]
    layers: Mapping[str, tuple[str, ...]]


class PageSources(Protocol):
    """What the page asks for. Errors are `UnchokeError`s, and are shown."""

    def findings(self, decided: Collection[str]) -> list[ReviewItem]:
        """What `curate` found last, the most pressing first, with those marked that somebody decided about."""
        ...

    def similar(self, sample_id: str) -> LikePhotos:
        """The photos most like one of the workspace."""
        ...

    def ask(self, data: bytes) -> PhotoAnswer:
        """What the newest model says of a picture, given as the bytes of its file."""
        ...

    def masks(self) -> list[SceneMask]:
        """The masks of whole scenes that were drawn, by run and scene."""
        ...

    def paint(self, mask: SceneMask, layer: str) -> NDArray[np.uint8]:
        """A picture of a mask or of its scene: RGB, or RGBA where parts of it are nothing."""
        ...
