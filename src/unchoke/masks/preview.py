"""Masks of whole scenes, small enough to look at: which were drawn, and each of them and its scene as pixels.

In: the folder that `segment predict` draws into. Out: `DrawnMask` values, and uint8 pictures of at most `SIDE_PX`: files are
read at that size, from their overviews where they have some. Nothing is written, and no store is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unchoke.core import listing
from unchoke.core.checksums import load_checked_json
from unchoke.core.errors import DamagedFile
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.urls import is_url
from unchoke.masks.paint import as_hex, choose_rgb, class_colours, paint_bands

SIDE_PX = 1600
_CLASSES = "_classes"


@dataclass(frozen=True)
class DrawnMask:
    """A mask as its record tells of it; `problem` says why it cannot be shown."""

    run: str
    scene: str
    file: Path
    width: int = 0
    height: int = 0
    class_names: tuple[str, ...] = ()
    shares: Mapping[str, float] | None = None
    bands: tuple[tuple[str, str, int], ...] = ()
    """Name, file and number of each band that it was drawn from; none where the scene is not on this machine."""
    problem: str = ""

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Each class with its colour."""
        colours = class_colours(len(self.class_names))
        return tuple((name, as_hex(colour)) for name, colour in zip(self.class_names, colours, strict=True))

    @property
    def shown_bands(self) -> tuple[tuple[str, str, int], ...]:
        """The three bands, or the one, that a picture of the scene is made of."""
        chosen = choose_rgb([name for name, _, _ in self.bands])
        return tuple(self.bands[place] for place in chosen) if chosen else self.bands[:1]


def list_masks(folder: Path) -> list[DrawnMask]:
    """Every mask below a folder that has a record, by run and scene; what cannot be read is among them, with the reason."""
    found = [Path(one.path) for one in listing.walk(folder) if one.relative.endswith(".json")] if folder.is_dir() else []
    return [_of_record(file) for file in sorted(found)]


def _of_record(file: Path) -> DrawnMask:
    run = file.parent.name
    try:
        record = load_checked_json(file)
        name = next(name for name in record["files"] if Path(name).stem == f"{file.stem}{_CLASSES}")
        bands = [(str(one["name"]), str(one["path"]), int(one["number"])) for one in record.get("bands", ())]
        return DrawnMask(
            run=str(record["run"] or run),
            scene=str(record["scene"]),
            file=file.with_name(Path(name).name),
            width=int(record["width"]),
            height=int(record["height"]),
            class_names=tuple(map(str, record.get("classes", ()))),
            shares={str(name): float(share) for name, share in record["shares"].items()},
            bands=tuple(bands) if all(_is_here(path) for _, path, _ in bands) else (),
        )
    except (DamagedFile, OSError, ValueError, TypeError, KeyError, AttributeError, StopIteration) as error:
        return DrawnMask(
            run, file.stem, file, problem=f"its record cannot be read ({error or 'it names no mask'}): draw it again"
        )


def _is_here(path: str) -> bool:
    return not is_url(path) and suffix_of(path) in IMAGE_SUFFIXES and Path(path).is_file()


def picture_of_mask(mask: DrawnMask) -> NDArray[np.uint8]:
    """(h, w, 4): each pixel in its class's colour, and nothing where there is no class."""
    from rasterio.enums import Resampling

    from unchoke.scenes.handles import HandlePool

    with HandlePool().open(str(mask.file)) as file:
        shape = _small(file.height, file.width)
        classes = file.read(1, out_shape=shape, resampling=Resampling.mode)
    colours = np.zeros((256, 4), np.uint8)
    num = len(mask.class_names) or 255
    colours[:num, :3] = class_colours(num)
    colours[:num, 3] = 255
    painted: NDArray[np.uint8] = colours[classes]
    return painted


def picture_of_scene(mask: DrawnMask) -> NDArray[np.uint8]:
    """(h, w, 3): the scene on the mask's own grid, its bands stretched for the eye; hatched where it has no values."""
    from unchoke.pixels.image import read_image

    if mask.file.suffix == ".png":  # of a photo, which lies on no map and may be stored turned
        return read_image(mask.bands[0][1], cover_px=SIDE_PX)
    from rasterio.transform import Affine

    from unchoke.scenes.handles import HandlePool
    from unchoke.scenes.scene_facts import Grid

    pool, bands = HandlePool(), mask.shown_bands
    with pool.open(str(mask.file)) as file:  # its grid with fewer, larger pixels
        height, width = _small(file.height, file.width)
        coarse = file.transform * Affine.scale(file.width / width, file.height / height)
        onto = Grid(width, height, tuple(coarse)[:6], file.crs.to_wkt() if file.crs else "")
    values = np.zeros((len(bands), onto.height, onto.width), np.float32)
    valid = np.ones((onto.height, onto.width), bool)
    for place, (_, path, number) in enumerate(bands):
        with pool.open(path, onto=onto, resampling="average") as file:
            values[place] = file.read(number)
            valid &= file.read(file.count) > 0
    pool.close()
    return paint_bands(np.nan_to_num(values), [name for name, _, _ in bands], valid & np.isfinite(values).all(axis=0))


def _small(height: int, width: int) -> tuple[int, int]:
    shrink = max(1.0, max(height, width) / SIDE_PX)
    return max(1, round(height / shrink)), max(1, round(width / shrink))
