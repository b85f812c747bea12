"""Masks, predictions and previews that lie among scenes, told from the scenes by their names alone.

In: paths of raster files that each could be a scene. Out: those that are products of another of them: named like it with a word
such as `_mask`, `_classes` or `_ndvi`, of the same name in a folder such as `masks`, or its picture in another format. A file of
such a name without a scene to belong to may be a scene itself, and stays one. No file is opened.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from unchoke.core.choices import Choice
from unchoke.core.errors import list_some
from unchoke.core.image_names import suffix_of
from unchoke.core.units import format_count
from unchoke.data.image_files import stem_of

_MASKS = "label|labels|mask|masks|gt|truth|ground_?truth|annotation|annotations|lbl|msk"
_MADE = (
    "class|classes|pred|preds|prediction|predictions|predicted|prob|probs|probability|probabilities|confidence|"
    "seg|segmentation|segmentations|overlay|overlays|ndvi|ndwi|mndwi|ndsi|evi"
)
_AFTER = re.compile(rf"[_.\- ](?:{_MASKS}|{_MADE})$", re.IGNORECASE)
_BEFORE = re.compile(rf"^(?:{_MASKS}|{_MADE})[_.\- ]", re.IGNORECASE)
_FOLDER = re.compile(rf"^(?:.*[_.\- ])?(?:{_MASKS}|{_MADE})$", re.IGNORECASE)
_IS_MASK = re.compile(rf"^(?:.*[_.\- ])?(?:{_MASKS})$", re.IGNORECASE)
_RASTERS = frozenset({".tif", ".tiff", ".jp2"})


def find_products(relatives: Sequence[str]) -> set[str]:
    """Those of the paths that are products of another of them."""
    in_folders = {relative for relative in relatives if any(_FOLDER.match(part) for part in PurePosixPath(relative).parts[:-1])}
    marked = {relative: base for relative in relatives if (base := _base(_stem(relative))) != _stem(relative)}
    scenes = {_stem(relative).lower() for relative in relatives if relative not in in_folders and relative not in marked}
    named = {relative for relative, base in marked.items() if base.lower() in scenes}
    placed = {one for one in in_folders if {_stem(one).lower(), _base(_stem(one)).lower()} & scenes}
    return named | placed | _pictures(relative for relative in relatives if relative not in named | placed)


def _stem(relative: str) -> str:
    return stem_of(PurePosixPath(relative).name)


def _base(stem: str) -> str:
    """The name without the words of a product: `a_mask` and `mask_a` belong to `a`."""
    return _BEFORE.sub("", _AFTER.sub("", stem))


def _pictures(relatives: Iterable[str]) -> set[str]:
    """PNG, JPEG and the like beside a raster of the same name: how a scene looks, not another one."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for relative in relatives:
        by_name[stem_of(relative).lower()].append(relative)
    groups = [group for group in by_name.values() if any(suffix_of(one) in _RASTERS for one in group)]
    return {one for group in groups for one in group if suffix_of(one) not in _RASTERS}


def told_products(products: Sequence[str], *, labelled: bool) -> list[Choice]:
    """What was left out and why; masks in a folder of their own come with the option that makes them labels."""
    if not products:
        return []
    folders = sorted({parts[0] for one in products if len(parts := PurePosixPath(one).parts) > 1 and _IS_MASK.match(parts[0])})
    hint = f"; --label {folders[0]} makes labels of those in it" if folders and not labelled else ""
    value = f"{format_count(len(products), 'file')}: {list_some(list(products))}"
    return [Choice("products", value, f"masks and other products of scenes, by their names{hint}", {"count": len(products)})]
