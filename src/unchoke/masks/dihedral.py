"""The eight ways a square picture can be turned and mirrored, for arrays and tensors alike, on the last two axes."""

from __future__ import annotations

from typing import Any, TypeVar

from unchoke.core.errors import UsageError

NUM_TURNS = 8
T = TypeVar("T", bound=Any)


def turn(picture: T, way: int) -> T:
    """`way` 0 is the picture itself; bit 1 mirrors left and right, bit 2 top and bottom, bit 4 then swaps rows and columns."""
    turned: Any = picture
    if way & 1:
        turned = _flipped(turned, -1)
    if way & 2:
        turned = _flipped(turned, -2)
    if way & 4:
        turned = turned.swapaxes(-1, -2)
    return turned  # type: ignore[no-any-return]


def _flipped(picture: Any, axis: int) -> Any:
    if hasattr(picture, "flip"):
        return picture.flip(axis)
    return picture[..., ::-1] if axis == -1 else picture[..., ::-1, :]


def refuse_more_views(num_views: int) -> None:
    """Refuse more further views than a patch has."""
    if num_views >= NUM_TURNS:
        raise UsageError(
            f"--views {num_views} is more than a patch has",
            why=f"a patch can be turned and mirrored in {NUM_TURNS} ways, itself among them",
            try_=f"--views {NUM_TURNS - 1}",
        )
