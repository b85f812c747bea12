"""Rectangles of pixels and how a picture is covered by them: whole numbers in, whole numbers out."""

from __future__ import annotations

from typing import Literal, NamedTuple

Edges = Literal["smaller", "padded"]


class Box(NamedTuple):
    """A rectangle of pixels; it may reach beyond its picture where it is to be padded."""

    top: int
    left: int
    height: int
    width: int

    @property
    def bottom(self) -> int:
        return self.top + self.height

    @property
    def right(self) -> int:
        return self.left + self.width

    def common(self, other: Box) -> Box | None:
        """The part both have; None where they do not meet."""
        top, left = max(self.top, other.top), max(self.left, other.left)
        height, width = min(self.bottom, other.bottom) - top, min(self.right, other.right) - left
        return Box(top, left, height, width) if height > 0 and width > 0 else None

    def slices_in(self, whole: Box) -> tuple[slice, slice]:
        """Rows and columns of this box in an array that covers `whole`."""
        top, left = self.top - whole.top, self.left - whole.left
        return slice(top, top + self.height), slice(left, left + self.width)

    def within(self, height: int, width: int) -> Box:
        """The part inside a picture of that size; a box wholly outside is a mistake of the caller."""
        inside = self.common(Box(0, 0, height, width))
        if inside is None:
            raise ValueError(f"{self} lies outside a picture of {width}×{height}")
        return inside


def plan_starts(length_px: int, size_px: int, overlap_px: int = 0) -> list[int]:
    """Where windows of `size_px` begin so that they cover `length_px`, each sharing `overlap_px` with the one before.

    The last one reaches the end, or beyond it; none begins inside what the one before it shares with nobody else.
    """
    if not 0 <= overlap_px < size_px:
        raise ValueError(f"windows of {size_px} px cannot share {overlap_px}")
    return list(range(0, max(1, length_px - overlap_px), size_px - overlap_px))


def plan_boxes(height: int, width: int, *, size_px: int, overlap_px: int = 0, edges: Edges = "smaller") -> list[Box]:
    """Windows that cover a picture, row by row. At the right and lower edge they are smaller, or reach beyond it to be padded."""
    boxes = [
        Box(top, left, size_px, size_px)
        for top in plan_starts(height, size_px, overlap_px)
        for left in plan_starts(width, size_px, overlap_px)
    ]
    return boxes if edges == "padded" else [box.within(height, width) for box in boxes]
