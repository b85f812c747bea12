"""What the pages show, as plain values: findings of `curate`, what a model says, photos that are alike, masks of scenes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
