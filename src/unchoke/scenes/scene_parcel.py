"""Which files of a scene another machine needs to read it: its rasters, the polygons of its mask, and what lies beside each.

In: an inspected scene and where its classes come from. Out: a `FileSet`. Nothing is opened.
"""

from __future__ import annotations

from pathlib import Path

from unchoke.core import listing
from unchoke.core.urls import is_url
from unchoke.jobs.cluster.sending import FileSet
from unchoke.scenes.mask_sources import MaskSource, PolygonMask
from unchoke.scenes.scene_facts import SceneFacts

_BESIDE = frozenset(
    {
        *(".aux", ".aux.xml", ".hdr", ".msk", ".ovr", ".prj", ".rrd", ".wld", ".xml"),
        *(".j2w", ".jgw", ".jpgw", ".pgw", ".pngw", ".tfw", ".tifw"),
        *(".cpg", ".dbf", ".qix", ".sbn", ".sbx", ".shx"),
    }
)
"""What GDAL looks for under the stem of a raster or a shapefile, besides names that begin with the file's own."""


def scene_files(facts: SceneFacts, mask: MaskSource | None = None) -> FileSet:
    """Everything that reading this scene and its mask may ask for, under the scene's id."""
    names = [band.path for band in facts.bands] + ([facts.label.path] if facts.label is not None else [])
    if isinstance(mask, PolygonMask):
        names.append(mask.path)
    names = [name for name in dict.fromkeys(names) if not is_url(name)]
    return FileSet.of(facts.scene_id, [*names, *(file for name in names for file in beside(name))])


def beside(name: str) -> list[str]:
    """The files that belong to the raster or shapefile `name`, without itself."""
    file = Path(name)
    return [str(file.with_name(other)) for other in listing.names(file.parent, prefix=f"{file.stem}.") if _belongs(other, file)]


def _belongs(other: str, file: Path) -> bool:
    rest = other[len(file.stem) :].lower()
    return other != file.name and (other.startswith(f"{file.name}.") or rest in _BESIDE)
