"""JPEGs that are opened only to be shrunk are decoded smaller at once: at a half, a quarter or an eighth of their size.

In: Pillow's `open`, `resize`, `thumbnail` and the functions that look at pixels. Each line that opens pictures is watched first:
if all of them are shrunk as a whole before anything else happens to their size, later ones are drafted to twice the size they
are shrunk to. Out: nearly the same pixels; a line that crops, or looks at full-size pixels, is left alone.
"""

from __future__ import annotations

import sys
from typing import Any

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.hooks import Function
from unchoke.chokes.watch.remedies.remedy import Remedy
from unchoke.chokes.watch.stacks import user_place

_LEARNT_FROM = 4
_GAP = 2.0
_OPENED = "_unchoke_opened"

Size = tuple[int, int]


class _OpeningLine:
    """A line that opens pictures: how much they were shrunk, as far as it has been seen."""

    def __init__(self) -> None:
        self.sizes: list[tuple[Size, Size]] = []
        self.is_left_alone = False

    def draft_size(self, full: Size) -> Size | None:
        """What a picture of this size has to cover; None as long as too little is known."""
        if self.is_left_alone or len(self.sizes) < _LEARNT_FROM:
            return None
        targets = {to for _, to in self.sizes}
        if len(targets) == 1:
            width, height = targets.pop()
            return round(_GAP * width), round(_GAP * height)
        share = max(max(to[0] / of[0], to[1] / of[1]) for of, to in self.sizes)
        return round(_GAP * share * full[0]), round(_GAP * share * full[1])


class _Origin:
    """Sticks to a picture, and to pictures of the same size made from it."""

    __slots__ = ("drafted", "full", "line")

    def __init__(self, line: _OpeningLine, full: Size, *, drafted: bool) -> None:
        self.line = line
        self.full = full
        self.drafted = drafted


def draft_jpeg(remedy: Remedy) -> None:
    """Draft what is shrunk anyway."""
    hooks.when_imported("PIL.Image", lambda: _draft(remedy))


def _draft(remedy: Remedy) -> None:
    module = sys.modules["PIL.Image"]
    lines: dict[tuple[str, int], _OpeningLine] = {}
    remedy.put(module, "open", lambda original: _drafting(remedy, lines, original))
    remedy.put(module.Image, "_new", _passing_on)
    remedy.put(module.Image, "resize", _learning)
    remedy.put(module.Image, "thumbnail", _learning)
    for name in ("crop", "tobytes", "getpixel"):
        remedy.put(module.Image, name, _leaving_alone)


def _drafting(remedy: Remedy, lines: dict[tuple[str, int], _OpeningLine], original: Function) -> Function:
    def open_(*args: Any, **options: Any) -> Any:
        picture = original(*args, **options)
        if picture.format != "JPEG":
            return picture
        file, number, _ = user_place(2)
        line = lines.setdefault((file, number), _OpeningLine())
        full = picture.size
        size = line.draft_size(full)
        drafted = size is not None and picture.draft(None, size) is not None and picture.size != full
        if drafted:
            remedy.did()
        setattr(picture, _OPENED, _Origin(line, full, drafted=drafted))
        return picture

    return open_


def _passing_on(original: Function) -> Function:
    def new(self: Any, im: Any) -> Any:
        made = original(self, im)
        opened = vars(self).get(_OPENED)
        if opened is not None and made.size == self.size:
            setattr(made, _OPENED, opened)
        return made

    return new


def _learning(original: Function) -> Function:
    def shrink(self: Any, size: Any, *args: Any, **options: Any) -> Any:
        opened = vars(self).pop(_OPENED, None)
        if opened is not None:
            has_box = options.get("box") is not None or len(args) > 1
            if has_box or size[0] > self.size[0] or size[1] > self.size[1]:  # a part of it, or more than there is
                opened.line.is_left_alone = True
            elif not opened.drafted:
                opened.line.sizes.append((opened.full, tuple(size)))
        return original(self, size, *args, **options)

    return shrink


def _leaving_alone(original: Function) -> Function:
    def look(self: Any, *args: Any, **options: Any) -> Any:
        opened = vars(self).pop(_OPENED, None)
        if opened is not None:
            opened.line.is_left_alone = True
        return original(self, *args, **options)

    return look
