"""Finished bands of a mask to the files that people open: GeoTIFFs in the scene's place on the map, or PNG for photos.

In: the values of a band as `stitch` finishes it. Each band becomes one small file (`PartStore`), so that a mask that was
interrupted goes on where it stopped: it is written atomically and carries a digest of everything it was made from; a part of
other weights, another scene or another plan counts as missing, and so does one that was damaged.

Out: one file of classes (uint8, 255 where nothing is known, a name and a colour for each class) and one of probabilities (a band
for each class, uint8, scale 1/254, 255 where nothing is known). Parts go block by block into a plain tiled TIFF beside them, GDAL
makes that Cloud-Optimised, the result is compared with the parts, and then it takes its name. Memory does not grow with the mask;
the same parts give the same bytes. Nothing is predicted here.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.boxes import Box
from unchoke.core.errors import MachineError
from unchoke.masks.mask_pictures import class_colours
from unchoke.masks.stitch import BLOCK_PX, StitchPlan
from unchoke.scenes.handles import raster_env
from unchoke.scenes.npz import write_npz
from unchoke.scenes.scene_facts import Grid

if TYPE_CHECKING:
    from rasterio.io import DatasetWriter


Bytes = NDArray[np.uint8]

NO_CLASS = 255
"""Where nothing could be said, in classes and in probabilities alike."""
PROBABILITY_STEPS = 254
"""A stored probability is a whole number of steps: 0 is 0, 254 is 1."""
_ROWS = 64
_SMALLEST_BLOCK_PX = 16  # TIFF wants multiples of this
_CACHE_BYTES = 24 * 2**20
_SETTINGS = {"GDAL_CACHEMAX": _CACHE_BYTES, "GDAL_NUM_THREADS": "1", "GDAL_PAM_ENABLED": "NO"}
"""Blocks are written once and read in order: a small cache will do. One thread, so that bytes repeat; no files on the side."""


@dataclass(frozen=True, eq=False)
class MaskPart:
    """A band of a mask: classes (h, w) and, where they are kept, probabilities (C, h, w); `NO_CLASS` where there is nothing."""

    classes: Bytes
    probabilities: Bytes | None = None


def to_part(values_chw: NDArray[np.float32], *, probabilities: bool) -> MaskPart:
    """The likeliest class of each pixel (of equals the first), and how likely each class is; not-a-number becomes `NO_CLASS`.

    A few rows at a time, because what is worked out on the way takes more than what comes out.
    """
    num_classes, height, width = values_chw.shape
    classes = np.empty((height, width), np.uint8)
    steps = np.empty((num_classes, height, width), np.uint8) if probabilities else None
    for top in range(0, height, _ROWS):
        values = values_chw[:, top : top + _ROWS]
        nothing = np.isnan(values).any(axis=0)
        known = np.where(nothing, 0, values)
        classes[top : top + _ROWS] = np.where(nothing, NO_CLASS, known.argmax(axis=0))
        if steps is not None:
            rounded = np.rint(np.clip(known, 0, 1) * PROBABILITY_STEPS)
            steps[:, top : top + _ROWS] = np.where(nothing, NO_CLASS, rounded)
    return MaskPart(classes, steps)


class PartStore:
    """The parts of one mask, in a folder of their own. `made_from` is the digest of everything they depend on.

    What a kill left half-written is swept, unless others write to the same folder just now (`sweep`).
    """

    def __init__(self, folder: Path, *, made_from: str, probabilities: bool, sweep: bool = True) -> None:
        self.folder = folder
        self.made_from = made_from
        self._probabilities = probabilities
        folder.mkdir(parents=True, exist_ok=True)
        if sweep:
            atomic.sweep_temporaries(folder)

    def file(self, band: Box) -> Path:
        return self.folder / f"part_r{band.top:06d}_c{band.left:06d}.npz"

    def done(self, band: Box) -> bool:
        """Whether the part is there, sound, and made from the same things. It is read for that."""
        return self._read(band) is not None

    def save(self, band: Box, part: MaskPart) -> None:
        """Keep a part for good, in the place of any other of this band."""
        arrays = {"made_from": np.array(self.made_from), "classes": part.classes}
        if part.probabilities is not None:
            arrays["probabilities"] = part.probabilities
        write_npz(self.file(band), arrays, compress="isal")

    def load(self, band: Box) -> MaskPart:
        part = self._read(band)
        if part is None:
            raise FileNotFoundError(self.file(band))
        return part

    def remove(self) -> None:
        """Everything in the folder, and the folder: for a mask that is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, band: Box) -> MaskPart | None:
        try:
            with np.load(self.file(band)) as arrays:
                if str(arrays["made_from"]) != self.made_from:
                    return None
                part = MaskPart(arrays["classes"], arrays["probabilities"] if self._probabilities else None)
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):  # missing, or not what was written
            return None
        return part if part.classes.shape == (band.height, band.width) else None


@dataclass(frozen=True)
class MaskFiles:
    """Where a mask goes; `probabilities` is None where they are not asked for."""

    classes: Path
    probabilities: Path | None

    @property
    def paths(self) -> list[Path]:
        return [self.classes] if self.probabilities is None else [self.classes, self.probabilities]


def plan_files(folder: Path, scene_id: str, *, is_photo: bool, probabilities: bool) -> MaskFiles:
    """The names of a mask's files: `.tif`, for the classes of a photo `.png`. Probabilities are one TIFF with all classes."""
    classes = folder / f"{scene_id}_classes{'.png' if is_photo else '.tif'}"
    return MaskFiles(classes, folder / f"{scene_id}_probabilities.tif" if probabilities else None)


def write_masks(
    plan: StitchPlan,
    parts: PartStore,
    *,
    grid: Grid,
    class_names: Sequence[str],
    files: MaskFiles,
    colours: Sequence[tuple[int, int, int]] = (),
) -> dict[str, int]:
    """Write `files` from the parts, which must all be there. Returns the pixels of each class; the rest has none.

    Classes have the `colours` of the labels that they were learnt from, where those have some.

    Kill it anywhere: the files are whole or not there. A disk that runs full is a `MachineError`.
    """
    import rasterio

    scratch = MaskFiles(parts.folder / "classes.tif", files.probabilities and parts.folder / "probabilities.tif")
    with _failures_explained(files.classes), raster_env(), rasterio.Env(**_SETTINGS):
        counts = _assemble(plan, parts, grid, class_names, colours or class_colours(len(class_names)), scratch)
        _finish(scratch.classes, files.classes, plan, parts, overviews="MODE", predictor="NO")
    if scratch.probabilities is not None and files.probabilities is not None:
        with _failures_explained(files.probabilities), raster_env(), rasterio.Env(**_SETTINGS):
            _finish(scratch.probabilities, files.probabilities, plan, parts, overviews="AVERAGE", predictor="STANDARD")
    return {name: int(count) for name, count in zip(class_names, counts, strict=False)}


def _assemble(
    plan: StitchPlan,
    parts: PartStore,
    grid: Grid,
    class_names: Sequence[str],
    colours: Sequence[tuple[int, int, int]],
    to: MaskFiles,
) -> Any:
    """Every part into its place in plain tiled TIFFs; whole blocks, each written once. Returns the pixels of each value."""
    counts = np.zeros(256, np.int64)
    with ExitStack() as stack:
        classes = stack.enter_context(_create(to.classes, plan, grid, count=1, predictor=1))
        palette = {number: (*colour, 255) for number, colour in enumerate(colours)}
        classes.write_colormap(1, {**palette, NO_CLASS: (0, 0, 0, 0)})
        classes.set_band_description(1, "class")
        classes.update_tags(**{f"class_{number}": name for number, name in enumerate(class_names)})
        chances = None
        if to.probabilities is not None:
            chances = stack.enter_context(_create(to.probabilities, plan, grid, count=plan.num_classes, predictor=2))
            chances.scales = (1 / PROBABILITY_STEPS,) * len(class_names)
            chances.descriptions = tuple(class_names)
        for band in plan.bands():
            part = parts.load(band)
            classes.write(part.classes, 1, window=_window(band))
            if chances is not None:
                chances.write(part.probabilities, window=_window(band))
            counts += np.bincount(part.classes.ravel(), minlength=256)
    return counts


def _create(file: Path, plan: StitchPlan, grid: Grid, *, count: int, predictor: int) -> DatasetWriter:
    import rasterio
    from rasterio.crs import CRS

    block_px = plan.block_px if plan.block_px % _SMALLEST_BLOCK_PX == 0 else BLOCK_PX
    return rasterio.open(
        file,
        "w",
        driver="GTiff",
        width=plan.width,
        height=plan.height,
        count=count,
        dtype="uint8",
        nodata=NO_CLASS,
        crs=CRS.from_wkt(grid.crs) if grid.crs else None,
        transform=rasterio.Affine(*grid.transform),
        tiled=True,
        blockxsize=block_px,
        blockysize=block_px,
        interleave="pixel",
        compress="deflate",
        zlevel=1,  # GDAL compresses it once more, and better, on the way to its last form
        predictor=predictor,
        bigtiff="IF_SAFER",
    )


def _finish(scratch: Path, target: Path, plan: StitchPlan, parts: PartStore, *, overviews: str, predictor: str) -> None:
    """GDAL writes the last form beside the scratch file; compared with the parts, it becomes `target`."""
    import rasterio
    from rasterio.shutil import copy

    built = scratch.with_name(f"finished-{scratch.stem}{target.suffix}")
    built.unlink(missing_ok=True)
    if target.suffix == ".png":
        copy(scratch, built, driver="PNG")
    else:
        options = {"COMPRESS": "DEFLATE", "PREDICTOR": predictor, "BLOCKSIZE": BLOCK_PX, "OVERVIEW_RESAMPLING": overviews}
        copy(scratch, built, driver="COG", NUM_THREADS=1, BIGTIFF="IF_SAFER", **options)
    scratch.unlink()
    with rasterio.open(built) as file:  # a full disk may go unnoticed when GDAL closes a file
        for band in plan.bands():
            part, read = parts.load(band), file.read(window=_window(band))
            kept = part.classes[None] if scratch.stem == "classes" else part.probabilities
            if kept is None or not np.array_equal(read, kept):
                raise _unwritten(target, "what was read back is not what was written")
    atomic.adopt(built, target)


@contextmanager
def _failures_explained(target: Path) -> Iterator[None]:
    """Translate what GDAL and the system say when a file cannot be written."""
    from rasterio._err import CPLE_BaseError
    from rasterio.errors import RasterioError

    try:
        with atomic.no_room_explained(target):
            yield
    except (RasterioError, CPLE_BaseError) as error:
        raise _unwritten(target, str(error)) from error


def _unwritten(target: Path, why: str) -> MachineError:
    return MachineError(
        f"{target.name} could not be written",
        code="mask-not-written",
        why=f"{why}; the disk may be full",
        try_=f"look at the room in {target.parent} and run the same command again: finished parts are kept",
    )


def _window(band: Box) -> Any:
    from rasterio.windows import Window

    return Window(band.left, band.top, band.width, band.height)
