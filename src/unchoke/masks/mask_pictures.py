"""Masks and scenes as pictures: the colours of classes, the gallery of a report, masks shown small on the page.

What a mask says is painted pixel by pixel, never blended across classes. The first class is mostly the background and is light;
then follow the colours of Okabe and Ito (2008), told apart by people who see colours differently; beyond those come hues spread
around the circle. They are the same in reports, on the page and in files. Pieces of a gallery are chosen by a hash, never by how
well they came out. The page reads files at the size it shows, from their overviews where they have some.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import listing
from unchoke.core.boxes import Box, plan_boxes
from unchoke.core.checksums import load_checked_json
from unchoke.core.errors import DamagedFile
from unchoke.core.fingerprint import hash_int
from unchoke.core.image_names import IMAGE_SUFFIXES, suffix_of
from unchoke.core.metrics import in_order
from unchoke.core.urls import is_url
from unchoke.masks.stitch import blend_window
from unchoke.runs.report.page import make_sharp_thumbnail, make_thumbnail
from unchoke.runs.report.summary import SPLIT_WORDS

if TYPE_CHECKING:
    from unchoke.masks.patches import Patch, PatchReader

Colour = tuple[int, int, int]
RgbPicture = NDArray[np.uint8]
Mask = NDArray[np.uint8]
Predict = Callable[[NDArray[np.float16]], NDArray[np.float32]]
"""Patches (n, B, p, p) to probabilities (n, C, p, p)."""
IGNORED = 255
"""The value of a mask's pixel that has no class."""
BACKGROUND: Colour = (232, 228, 218)
_OKABE_ITO: tuple[Colour, ...] = (
    *((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167)),
    *((230, 159, 0), (86, 180, 233), (240, 228, 66)),
)
_GOLDEN_TURN = 0.618033988749895
_STRETCH_PERCENT = (2.0, 98.0)
_WRONG_BACKGROUND: Colour = (17, 17, 17)
_HATCH: tuple[Colour, Colour] = ((208, 208, 208), (176, 176, 176))
_HATCH_PX = 3
_GREY_STEP = 24  # few shades: enough to find one's way, and small as a file
ENOUGH = 20
"""A gallery has at least this many pieces, where the scenes are large enough for them."""
_PIECE_PX = 176
_SMALLEST_PX = 32
_HELD_BYTES = 64 << 20
_SPLITS = ("test", "val", "train")
SIDE_PX = 1600
"""The longest side of a scene's picture on the page."""


def class_colours(num_classes: int) -> list[Colour]:
    """One colour for each class, in their order."""
    colours = [BACKGROUND, *_OKABE_ITO][:num_classes]
    for place in range(num_classes - len(colours)):
        hue, lightness = (0.07 + place * _GOLDEN_TURN) % 1, (0.35, 0.65)[place % 2]
        red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.6)
        colours.append((round(255 * red), round(255 * green), round(255 * blue)))
    return colours


def as_hex(colour: Colour) -> str:
    """``#0072b2``."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def choose_rgb(band_names: Sequence[str]) -> tuple[int, int, int] | None:
    """Which bands show red, green and blue: those named so, bands 4, 3 and 2 of Landsat 8/9 and Sentinel-2, or the first three.

    None where there are fewer than three: those are shown in grey. A band is number 4 as ``b4``, ``B04`` or ``l8_b4``.
    """
    words = [name.strip().lower() for name in band_names]
    matches = [re.search(r"(?:^|[^a-z0-9])b0*(\d+)$", word) for word in words]
    numbers = [match[1] if match else "" for match in matches]
    for known, wanted in ((words, (("red", "r"), ("green", "g"), ("blue", "b"))), (numbers, (("4",), ("3",), ("2",)))):
        places = [place for one in wanted for place in [next((at for at, word in enumerate(known) if word in one), -1)]]
        if min(places) >= 0:
            return places[0], places[1], places[2]
    return (0, 1, 2) if len(words) >= 3 else None


def paint_bands(bands: NDArray[np.floating[Any]], band_names: Sequence[str], valid: NDArray[np.bool_]) -> RgbPicture:
    """Three bands (or one, in grey) of (B, h, w), stretched between two percentiles of its valid pixels; the rest is hatched."""

    def stretched(band: NDArray[np.floating[Any]]) -> RgbPicture:
        low, high = np.percentile(band[valid], _STRETCH_PERCENT) if valid.any() else (0, 0)
        if high <= low:
            return np.full(band.shape, 128, np.uint8)
        return np.asarray((255 * np.nan_to_num((band - low) / (high - low)).clip(0, 1)).round(), np.uint8)

    picture = np.stack([stretched(bands[place]) for place in choose_rgb(band_names) or (0, 0, 0)], axis=-1)
    return np.where(valid[..., None], picture, _hatch(valid.shape))


def paint_mask(mask: Mask, colours: Sequence[Colour]) -> RgbPicture:
    """Each pixel in the colour of its class; those without one are hatched."""
    known = mask < len(colours)
    return np.where(known[..., None], np.array(colours, np.uint8)[np.where(known, mask, 0)], _hatch(mask.shape))


def paint_overlay(picture: RgbPicture, mask: Mask, colours: Sequence[Colour], *, opacity: float = 0.5) -> RgbPicture:
    """The picture with every class but the first laid over it."""
    laid = (mask > 0) & (mask < len(colours))
    blended = (1 - opacity) * picture.astype(np.float32) + opacity * paint_mask(mask, colours).astype(np.float32)
    return np.where(laid[..., None], blended.round().astype(np.uint8), picture)


def paint_error(picture: RgbPicture, prediction: Mask, truth: Mask, colours: Sequence[Colour]) -> RgbPicture:
    """The picture faint and grey where the answer is right; wrong pixels in the colour of their true class, black for the first.

    Pixels without a label, or without an answer, are hatched.
    """
    grey = picture.mean(axis=-1, keepdims=True, dtype=np.float32) // _GREY_STEP * _GREY_STEP
    faint = np.broadcast_to((170 + grey / 3).round().astype(np.uint8), picture.shape)
    missed = np.array([_WRONG_BACKGROUND, *colours[1:]], np.uint8)
    known = (truth < len(colours)) & (prediction < len(colours))
    judged = np.where((truth == prediction)[..., None], faint, missed[np.where(known, truth, 0)])
    return np.where(known[..., None], judged, _hatch(truth.shape))


def _hatch(shape: tuple[int, ...]) -> RgbPicture:
    rows, columns = np.indices(shape[:2])
    hatched: RgbPicture = np.array(_HATCH, np.uint8)[(rows + columns) // _HATCH_PX % 2]
    return hatched


@dataclass(frozen=True)
class GalleryWindow:
    """A piece of a scene to show, and the split all of its pixels belong to."""

    scene_id: str
    box: Box
    split: str

    @property
    def title(self) -> str:
        rows = f"rows {self.box.top}–{self.box.bottom - 1}"
        columns = f"columns {self.box.left}–{self.box.right - 1}"
        return f"{self.scene_id}, {rows}, {columns}, {SPLIT_WORDS.get(self.split, self.split)}"


@dataclass(frozen=True)
class GallerySample:
    """A piece with its numbers: bands (B, h, w) as measured, `truth` and `prediction` (h, w) with 255 for no class."""

    title: str
    bands: NDArray[np.float32]
    band_names: Sequence[str]
    valid: NDArray[np.bool_]
    truth: NDArray[np.uint8]
    prediction: NDArray[np.uint8]
    is_photo: bool = False

    def paint(self) -> RgbPicture:
        """A photo as it is, bands stretched for the eye."""
        if self.is_photo and len(self.bands) in (1, 3):
            return np.broadcast_to(self.bands.transpose(1, 2, 0), (*self.valid.shape, 3)).clip(0, 255).astype(np.uint8)
        return paint_bands(self.bands, self.band_names, self.valid)


def choose_samples(
    patches: Iterable[Patch],
    *,
    sizes: Mapping[str, tuple[int, int]],
    limit: int = 24,
    seed: int = 0,
    photos: Collection[str] = (),
) -> list[GalleryWindow]:
    """Windows to show: parts of test patches first, then of validation's, then of training's, each in the order of a hash.

    Of `photos` the whole is shown, where all of it is in one split.

    `sizes` has (height, width) of each scene. A window is a whole patch; where fewer than `ENOUGH` of those do not overlap,
    patches are quartered, and quartered again, down to 32 px; where that is not enough either, some may overlap. Patches that
    were left out of all splits are not shown.
    """
    shown = [patch for patch in patches if patch.split in _SPLITS]
    splits: dict[str, set[str]] = {}
    for patch in shown:
        splits.setdefault(patch.scene_id, set()).add(patch.split)
    whole = {scene_id for scene_id in photos if len(splits.get(scene_id, ())) == 1}
    shown = [replace(one, box=Box(0, 0, *sizes[one.scene_id])) if one.scene_id in whole else one for one in shown]

    def windows(parts: int) -> list[GalleryWindow]:
        """Every patch in `parts` × `parts` windows, in the order they are to be shown."""
        cut: set[GalleryWindow] = set()
        for patch in shown:
            (top, left, height, width), size = patch.box, sizes[patch.scene_id]
            if patch.scene_id in whole and parts == 1:
                cut.add(GalleryWindow(patch.scene_id, patch.box, patch.split))
                continue
            side = -(-max(height, width) // parts)
            for one in plan_boxes(height, width, size_px=side) if side >= _SMALLEST_PX or parts == 1 else []:
                box = Box(top + one.top, left + one.left, one.height, one.width).common(Box(0, 0, *size))
                if box is not None and min(box.height, box.width) >= min(_SMALLEST_PX, *size):
                    cut.add(GalleryWindow(patch.scene_id, box, patch.split))
        return sorted(cut, key=lambda one: (in_order(one.split, _SPLITS), hash_int(seed, "gallery", one.scene_id, *one.box)))

    best: list[GalleryWindow] = []
    for parts in (1,) if whole else (1, 2, 4, 8):
        kept: list[GalleryWindow] = []
        for window in windows(parts):
            near = (other.box for other in kept if other.scene_id == window.scene_id)
            if len(kept) < limit and not any(box.common(window.box) for box in near):
                kept.append(window)
        best = max(best, kept, key=len)
        if len(best) >= min(ENOUGH, limit):
            break
    further = (window for window in windows(1) if window not in best)
    return [*best, *islice(further, max(0, min(ENOUGH, limit) - len(best)))]


def stitched_samples(
    windows: Iterable[GalleryWindow], *, reader: PatchReader, predict: Predict, patch_px: int, overlap_px: int, batch: int = 8
) -> Iterator[GallerySample]:
    """Each window with its truth, and the very piece of the mask that stitching the whole scene would give there.

    Windows are taken as many at a time as 64 MB of sums allow, and a patch that several of these meet is predicted once.
    """
    from unchoke.scenes.raster import read_box

    left, at_once, weights = list(windows), 1, blend_window(patch_px, overlap_px)
    while left:
        taken, left = left[:at_once], left[at_once:]
        meeting: dict[tuple[str, Box], list[int]] = {}
        for place, window in enumerate(taken):
            grid = reader.facts[window.scene_id].grid
            for box in plan_boxes(grid.height, grid.width, size_px=patch_px, overlap_px=overlap_px, edges="padded"):
                if box.common(window.box):
                    meeting.setdefault((window.scene_id, box), []).append(place)
        sums: list[NDArray[np.float32]] = []
        for start in range(0, len(meeting), batch):
            patches = list(meeting)[start : start + batch]
            answers = predict(np.stack([reader.read(scene_id, box)[0] for scene_id, box in patches]))
            sums = sums or [np.zeros((answers.shape[1], one.box.height, one.box.width), np.float32) for one in taken]
            for patch, answer in zip(patches, answers, strict=True):
                for place in meeting[patch]:
                    common = taken[place].box.common(patch[1])
                    assert common is not None
                    weighted = (answer * weights)[:, *common.slices_in(patch[1])]
                    sums[place][:, *common.slices_in(taken[place].box)] += weighted
        at_once = max(1, _HELD_BYTES // max(one.nbytes for one in sums))  # the first one tells how many classes there are
        for window, values in zip(taken, sums, strict=True):
            scene = reader.facts[window.scene_id]
            bands, valid = read_box(scene, window.box, pool=reader.pool)
            # the weights, by whose sum stitching divides, are the same for all classes of a pixel
            prediction = np.where(valid, values.argmax(axis=0), IGNORED).astype(np.uint8)
            truth = reader.mask(window.scene_id, window.box)
            title = window.title
            if scene.is_photo and window.box[2:] == (scene.grid.height, scene.grid.width):
                title = f"{window.scene_id}, {SPLIT_WORDS.get(window.split, window.split)}"
            yield GallerySample(title, bands, scene.band_names, valid, truth, prediction, scene.is_photo)


def build_gallery(
    samples: Iterable[GallerySample], *, class_names: Sequence[str], colours: Sequence[Colour] = (), limit: int = 24
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The record's `gallery` (title, note and five pictures for each of at most `limit` samples) and its `legend`.

    Images shrink smoothly; masks are sampled first and painted then, so that no colour is between two classes.
    """
    gallery, colours = [], colours or class_colours(len(class_names))
    for sample in islice(samples, limit):
        picture = sample.paint()
        small, truth, prediction = (_sampled(one) for one in (picture, sample.truth, sample.prediction))
        gallery.append(
            {
                "title": sample.title,
                "note": score_note(sample, class_names),
                "image": make_thumbnail(picture, side_px=_PIECE_PX),
                "overlay": make_thumbnail(paint_overlay(picture, sample.prediction, colours), side_px=_PIECE_PX),
                "prediction": make_sharp_thumbnail(paint_mask(prediction, colours)),
                "truth": make_sharp_thumbnail(paint_mask(truth, colours)),
                "error": make_sharp_thumbnail(paint_error(small, prediction, truth, colours)),
            }
        )
    return gallery, [{"name": name, "colour": as_hex(colour)} for name, colour in zip(class_names, colours, strict=True)]


def _sampled(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """At most `_PIECE_PX` rows and columns of it, evenly chosen, proportions kept."""
    height, width = array.shape[:2]
    shrink = max(1.0, max(height, width) / _PIECE_PX)
    rows = ((np.arange(max(1, round(height / shrink))) + 0.5) * shrink).astype(int).clip(0, height - 1)
    columns = ((np.arange(max(1, round(width / shrink))) + 0.5) * shrink).astype(int).clip(0, width - 1)
    sampled: NDArray[np.uint8] = array[rows][:, columns]
    return sampled


def score_note(sample: GallerySample, class_names: Sequence[str]) -> str:
    """``mean IoU 81.2 %, 96.0 % of the pixels right``: over the classes that occur here, in truth or in the answer."""
    number = len(class_names)
    judged = (sample.truth < number) & (sample.prediction < number)
    if not judged.any():
        return "no labelled pixel here"
    truth, prediction = sample.truth[judged], sample.prediction[judged]
    both = np.bincount(truth[truth == prediction], minlength=number)
    either = np.bincount(truth, minlength=number) + np.bincount(prediction, minlength=number) - both
    there = either > 0
    iou, right = float((both[there] / either[there]).mean()), both.sum() / len(truth)
    return f"mean IoU {100 * iou:.1f} %, {100 * right:.1f} % of the pixels right"


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
    colours: tuple[Colour, ...] = ()

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Each class with its colour."""
        colours = self.colours or class_colours(len(self.class_names))
        return tuple((name, as_hex(colour)) for name, colour in zip(self.class_names, colours, strict=True))

    @property
    def shown_bands(self) -> tuple[tuple[str, str, int], ...]:
        """The three bands, or the one, that a picture of the scene is made of."""
        chosen = choose_rgb([name for name, _, _ in self.bands])
        return tuple(self.bands[place] for place in chosen) if chosen else self.bands[:1]


def list_masks(folder: Path) -> list[DrawnMask]:
    """Every mask below a folder that has a record, by run and scene; what cannot be read is among them, with the reason."""
    found = []
    for file in (
        sorted(Path(one.path) for one in listing.walk(folder) if one.relative.endswith(".json")) if folder.is_dir() else []
    ):
        run = file.parent.name
        try:
            record = load_checked_json(file)
            name = next(name for name in record["files"] if Path(name).stem == f"{file.stem}_classes")
            bands = [(str(one["name"]), str(one["path"]), int(one["number"])) for one in record.get("bands", ())]
            here = all(not is_url(path) and suffix_of(path) in IMAGE_SUFFIXES and Path(path).is_file() for _, path, _ in bands)
            found.append(
                DrawnMask(
                    run=str(record["run"] or run),
                    scene=str(record["scene"]),
                    file=file.with_name(Path(name).name),
                    width=int(record["width"]),
                    height=int(record["height"]),
                    class_names=tuple(map(str, record.get("classes", ()))),
                    shares={str(name): float(share) for name, share in record["shares"].items()},
                    bands=tuple(bands) if here else (),
                    colours=tuple((int(red), int(green), int(blue)) for red, green, blue in record.get("colours", ())),
                )
            )
        except (DamagedFile, OSError, ValueError, TypeError, KeyError, AttributeError, StopIteration) as error:
            problem = f"its record cannot be read ({error or 'it names no mask'}): draw it again"
            found.append(DrawnMask(run, file.stem, file, problem=problem))
    return found


def picture_of_mask(mask: DrawnMask) -> NDArray[np.uint8]:
    """(h, w, 4): each pixel in its class's colour, and nothing where there is no class."""
    from rasterio.enums import Resampling

    from unchoke.scenes.handles import HandlePool

    with HandlePool().open(str(mask.file)) as file:
        classes = file.read(1, out_shape=_small(file.height, file.width), resampling=Resampling.mode)
    colours = np.zeros((256, 4), np.uint8)
    num = len(mask.class_names) or 255
    colours[:num, :3] = mask.colours or class_colours(num)
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
