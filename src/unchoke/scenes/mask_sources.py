"""Where the classes of pixels come from: a label raster, a formula over the bands, polygons, or nowhere.

A mask source is a small picklable value; windows come in, classes go out as uint8 with 255 for every pixel that has none.
Reading label rasters is the business of `decode`, formulas of `expression`, vector files of `polygons`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.core.errors import UsageError
from unchoke.core.settings import Settings
from unchoke.scenes import polygons
from unchoke.scenes.expression import Expression, parse_expression
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.raster import read_label
from unchoke.scenes.scene_facts import IGNORE, SceneFacts

Classes = NDArray[np.uint8]
Physical = NDArray[np.float32]
Valid = NDArray[np.bool_]


class MaskSource(Protocol):
    """A picklable value that tells the class of every pixel."""

    @property
    def reads_file(self) -> bool:
        """Whether it reads a raster, so that one call for many windows is better than one for each."""
        ...

    def mask(self, facts: SceneFacts, box: Box, bands_physical: Physical, valid: Valid, pool: HandlePool) -> Classes:
        """Classes (h, w) of a window; 255 where it is unlabelled, invalid, or outside the scene."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the mask depends on besides the scene, as plain values for digests and records."""
        ...


@dataclass(frozen=True)
class LabelMask:
    """The scene's own label raster; pixels of the value `ignore` count as unlabelled."""

    ignore: int | None = None
    reads_file: bool = True

    def mask(self, facts: SceneFacts, box: Box, bands_physical: Physical, valid: Valid, pool: HandlePool) -> Classes:
        """See `MaskSource`. The bands play no part. A scene without a label raster is unlabelled."""
        if facts.label is None:
            return np.full(valid.shape, IGNORE, np.uint8)
        return _hide_invalid(read_label(facts, box, pool=pool, ignore=self.ignore), valid)

    def describe(self) -> dict[str, Any]:
        return {"kind": "label", "ignore": self.ignore}


@dataclass(frozen=True)
class ExpressionMask:
    """Class 1 where a formula over the bands holds, 0 elsewhere."""

    text: str
    band_names: tuple[str, ...]
    reads_file: bool = False

    def mask(self, facts: SceneFacts, box: Box, bands_physical: Physical, valid: Valid, pool: HandlePool) -> Classes:
        """See `MaskSource`. No file is read."""
        planes = dict(zip(self.band_names, bands_physical, strict=True))
        return _hide_invalid(_parsed(self.text, self.band_names).evaluate(planes).astype(np.uint8), valid)

    def describe(self) -> dict[str, Any]:
        return {"kind": "expression", "text": self.text, "bands": list(self.band_names)}


@dataclass(frozen=True)
class PolygonMask:
    """The class of the polygon that covers a pixel's centre, 0 where none does; of several, the last in the file.

    `content` is the digest of the file when it was chosen: a file that changed since is refused.
    """

    path: str
    class_field: str | None
    content: str
    reads_file: bool = False

    def mask(self, facts: SceneFacts, box: Box, bands_physical: Physical, valid: Valid, pool: HandlePool) -> Classes:
        """See `MaskSource`. The bands play no part; the file is read once per process and coordinate system."""
        shapes = polygons.load_polygons(self.path, class_field=self.class_field, content=self.content, grid=facts.grid)
        return _hide_invalid(polygons.burn(shapes, box), valid)

    def describe(self) -> dict[str, Any]:
        return {"kind": "polygons", "class_field": self.class_field, "content": self.content}


def choose_mask(settings: Settings, *, band_names: Sequence[str], labelled: bool) -> MaskSource | None:
    """The one source the settings ask for; None if there is none. `labelled`: the scan found label rasters.

    A formula is checked against `band_names`, a vector file is opened once to see that its class field is there.
    """
    asked = {"--label": settings.label, "--mask": settings.mask, "--polygons": settings.polygons}
    given = [f"{option} {value}" for option, value in asked.items() if value]
    if len(given) > 1:
        raise UsageError(
            f"the mask was asked for in {len(given)} ways: {', '.join(given)}",
            why="a pixel has one class, so it comes from one place",
            try_=f"keep only {given[0]}",
        )
    if settings.mask:
        parse_expression(settings.mask, band_names)
        return ExpressionMask(settings.mask, tuple(band_names))
    if settings.polygons:
        path = Path(settings.polygons)
        polygons.check_polygons(path, class_field=settings.polygon_class)
        return PolygonMask(str(path), settings.polygon_class, polygons.digest_polygons(path))
    return LabelMask(settings.ignore) if labelled else None


@lru_cache(maxsize=8)
def _parsed(text: str, band_names: tuple[str, ...]) -> Expression:
    return parse_expression(text, band_names)


def _hide_invalid(classes: Classes, valid: Valid) -> Classes:
    if not valid.all():
        classes[~valid] = IGNORE
    return classes
