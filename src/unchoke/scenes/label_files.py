"""Label files as people have them to rasters of class numbers: colours, shades, 0 and 255, a file for each class, COCO outlines.

In: scenes with their label files, by name. Out: the scenes with labels whose pixels are the classes 0, 1, …, and what the classes
are called and painted. Files that hold class numbers already stay as they are; others become one raster each in the workspace
(`labels/`), made once. What the files were taken for is a choice with its reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, checksums, listing
from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.errors import DamagedFile, DataError, UsageError, list_some
from unchoke.core.fingerprint import digest
from unchoke.core.image_names import suffix_of
from unchoke.core.input_file import parse_json, read_plain
from unchoke.core.remote import locate
from unchoke.core.units import format_count
from unchoke.core.urls import is_url
from unchoke.data.image_files import stem_of
from unchoke.machine.detect import usable_cores
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool, stamp_file
from unchoke.scenes.scan_scenes import LabelCode, ScannedScenes
from unchoke.scenes.scene_facts import IGNORE

if TYPE_CHECKING:
    from unchoke.scenes.scene_facts import FileStamp

_VERSION = "labels, version 1"
_LARGEST_PX = 1 << 24
"""Larger rasters hold class numbers; looking at all of their pixels beforehand would take too long."""
_MOST_COLOURS = 256
_LOSSY = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".webp"})
_NEAR = 48
"""How far lossy pixels may lie from black or white."""
_SHADE_STEP = 4
"""Values this many times sparser than their number are shades of grey, not numbers of classes."""
_VOC_NAMES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
_VOC_VOID = (224, 224, 192)
_VOID_WORDS = frozenset({"void", "ignore", "ignored", "unlabelled", "unlabeled", "dontcare"})
_NAME_FILES = ("labelmap.txt", "class_dict.csv", "classes.csv", "classes.txt", "colors.csv")
_NAMED_COLOUR = re.compile(r"^\s*(?P<name>[^,:;\t#]+?)\s*[,:;\t]\s*(\d{1,3})[\s,;]+(\d{1,3})[\s,;]+(\d{1,3})\b")
Rgb = tuple[int, int, int]
Classes = NDArray[np.uint8]


def read_labels(session: Session, scanned: ScannedScenes) -> ScannedScenes:
    """The scenes with labels whose pixels are class numbers; see above."""
    label = session.settings.label
    if label is not None and (outlines := outline_files(label)):
        return _from_coco(session, scanned, outlines)
    if scanned.layers:
        return _from_layers(session, scanned)
    labelled = [scene for scene in scanned.scenes if scene.label is not None and not is_url(scene.label)]
    if not labelled:
        return scanned
    with session.stage("labels", format_count(len(labelled), "file")):
        seen = _look(session, list(dict.fromkeys(str(scene.label) for scene in labelled)))
        return _decode(session, scanned, seen)


# What the files hold


@dataclass(frozen=True)
class _Seen:
    """What one file holds: its values, or its colours as numbers; `palette` gives values their colours. Empty: not looked at."""

    values: tuple[int, ...] = ()
    colours: tuple[int, ...] = ()
    palette: tuple[Rgb, ...] = ()
    mixed: bool = False
    """Whether a lossy file holds more than black and white."""
    deep: bool = False
    """Whether values are stored in several bands."""


def _look(session: Session, files: Sequence[str]) -> dict[str, _Seen]:
    """The values of every file; those that were looked at before are remembered by their size and time."""
    memory = session.workspace.root / "labels" / "seen.json"
    stamps = {file: stamp_file(file) for file in files if Path(file).is_file()}
    keys = {
        file: digest([_VERSION, os.path.realpath(file), stamp.size_bytes, stamp.mtime_ns])[:24] for file, stamp in stamps.items()
    }
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, DamagedFile):
        known = checksums.load_checked_json(memory)
    new = [file for file in stamps if keys[file] not in known]
    for file, seen in zip(new, map_ahead(_look_at, new, threads=usable_cores(), ahead=32), strict=True):
        known[keys[file]] = [list(seen.values), list(seen.colours), [list(one) for one in seen.palette], seen.mixed, seen.deep]
    if new:
        memory.parent.mkdir(parents=True, exist_ok=True)
        checksums.save_checked_json(memory, {keys[file]: known[keys[file]] for file in stamps})
    found = {}
    for file in stamps:
        values, colours, palette, mixed, deep = known[keys[file]]
        found[file] = _Seen(tuple(values), tuple(colours), tuple(map(tuple, palette)), mixed, deep)
    return found


def _look_at(file: str) -> _Seen:
    pool = HandlePool()
    with pool.open(file) as dataset:
        if dataset.width * dataset.height > _LARGEST_PX or set(dataset.dtypes) != {"uint8"}:
            return _Seen()
        pixels = dataset.read()
        palette: tuple[Rgb, ...] = ()
        if dataset.count == 1:
            with suppress(ValueError):
                palette = tuple(colour[:3] for _, colour in sorted(dataset.colormap(1).items()))
        nodata = dataset.nodatavals[0] if dataset.count == 1 else None
    pool.close()
    if len(pixels) in (2, 4) and _is_even(pixels[:-1]) and not _is_even(pixels[-1:]):
        raise DataError(
            f"the label {file} is in the transparency alone",
            code="label-not-exact",
            why="its pixels have one colour, and only the alpha channel differs",
            try_="save the alpha channel as a grey PNG: magick mogrify -alpha extract MASKS/*.png",
        )
    lossy = suffix_of(file) in _LOSSY
    if len(pixels) <= 2 or bool((pixels[0] == pixels[1]).all() and (pixels[0] == pixels[2]).all()):
        grey = pixels[0]
        if lossy:
            return _Seen(values=(0, IGNORE), mixed=float((np.minimum(grey, 255 - grey) > _NEAR).mean()) > 0.02)
        values = np.flatnonzero(np.bincount(grey.ravel(), minlength=256)).tolist()
        return _Seen(values=tuple(value for value in values if value != nodata), palette=palette, deep=len(pixels) > 1)
    colours = np.unique(_packed(pixels))
    return _Seen(colours=tuple(colours[: _MOST_COLOURS + 1].tolist()), mixed=lossy or len(colours) > _MOST_COLOURS)


def _is_even(bands: Classes) -> bool:
    return bool((bands == bands[:, :1, :1]).all())


def _packed(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Red, green and blue as one number."""
    red, green, blue = (one.astype(np.uint32) for one in pixels[:3])
    packed: NDArray[np.uint32] = red << 16 | green << 8 | blue
    return packed


def _unpacked(colour: int) -> Rgb:
    return colour >> 16, colour >> 8 & 255, colour & 255


# What they mean


def _decode(session: Session, scanned: ScannedScenes, seen: Mapping[str, _Seen]) -> ScannedScenes:
    settings = session.settings
    if blurred := [file for file, one in seen.items() if one.mixed]:
        raise DataError(
            f"the label {blurred[0]} has no exact values",
            code="label-not-exact",
            why="a mask has one value or colour for each class, and JPEG, or scaling with smoothing, mixes neighbours",
            try_="save the masks as PNG, resized by nearest neighbour if at all",
        )
    names = _named_colours(scanned.label)
    if any(one.colours for one in seen.values()):
        return _from_colours(session, scanned, seen, names)
    values = sorted({value for one in seen.values() for value in one.values})
    palettes = [one.palette for one in seen.values() if one.palette]
    plain = [value for value in values if value not in (IGNORE, settings.ignore)]
    grey = not palettes and not any(suffix_of(file) in (".tif", ".tiff", ".jp2") for file in seen)
    shades: list[int] = []
    if plain == [0] and IGNORE in values and settings.ignore != IGNORE:
        shades, reason = [0, IGNORE], "the labels hold 0 and 255 alone, so 255 is the second class"
    elif grey and len(plain) == 2 and plain[0] == 0 and plain[1] > 1 and IGNORE not in values:
        shades, reason = plain, f"the labels hold 0 and {plain[1]} alone, so {plain[1]} is the second class"
    elif grey and len(plain) >= 2 and plain[-1] > _SHADE_STEP * len(plain):
        shades = [value for value in values if value != settings.ignore]
        reason = f"{format_count(len(shades), 'value')} far apart: the smallest is the first class"
    if shades:
        session.chose(Choice("label_values", list_some([str(one) for one in shades], limit=6), reason))
        table = np.full(256, IGNORE, np.uint8)
        table[shades] = np.arange(len(shades))
        class_names = () if len(shades) == 2 else tuple(f"value {shade}" for shade in shades)
        code = LabelCode(class_names, tuple((shade, shade, shade) for shade in shades))
        return _made(session, scanned, code, lambda file: partial(_read_table, file, table))
    if IGNORE in values and settings.ignore is None:
        session.chose(Choice("ignore", IGNORE, "no class has this number: its pixels count as unlabelled, as in VOC"))
    if any(one.deep for one in seen.values()):
        same = np.arange(256, dtype=np.uint8)
        return _made(session, scanned, LabelCode(), lambda file: partial(_read_table, file, same), decoded=False)
    if not palettes:
        return scanned
    highest = max(plain, default=0)
    colours = max(palettes, key=len)[: highest + 1]
    by_colour = {colour: name for name, colour in names.items()}
    class_names = tuple(by_colour.get(colour, "") for colour in colours)
    if not all(class_names):
        is_voc = "SegmentationClass" in Path(scanned.label).parts and highest == len(_VOC_NAMES) - 1
        class_names = _VOC_NAMES if is_voc else ()
    code = LabelCode(class_names, colours) if len(set(colours)) == len(colours) == highest + 1 else LabelCode(class_names)
    session.chose(Choice("label_values", f"0 to {highest}", "palette masks: each entry of the palette is a class"))
    return replace(scanned, code=code)


def _from_colours(session: Session, scanned: ScannedScenes, seen: Mapping[str, _Seen], names: Mapping[str, Rgb]) -> ScannedScenes:
    """Each colour a class: black first, then in the order of the file that names them, or of their red, green and blue."""
    found = {_unpacked(colour) for one in seen.values() for colour in one.colours}
    for one in seen.values():  # grey and palette files among coloured ones
        found |= {one.palette[value] if value < len(one.palette) else (value, value, value) for value in one.values}
    void = {colour for name, colour in names.items() if name.lower() in _VOID_WORDS}
    if not names and _VOC_VOID in found:
        void = {_VOC_VOID}
    named = [colour for colour in names.values() if colour not in void]
    if unknown := sorted(found - set(named) - void) if names else []:
        raise DataError(
            f"the labels hold the colour {unknown[0]}",
            code="label-colour-unknown",
            why=f"{list_some(list(names), limit=4)} have other colours in the file that names them",
            try_="add its name there, or take that file away: colours are then classes by themselves",
        )
    colours = named or sorted(found - void, key=lambda colour: (colour != (0, 0, 0), colour))
    if len(colours) > IGNORE - 1:
        raise DataError(
            f"the labels hold {len(colours)} colours",
            code="label-not-exact",
            why="a mask has one colour for each class, and there may be 254 classes",
            try_="save the masks as PNG without smoothing",
        )
    by_colour = {colour: name for name, colour in names.items()}
    class_names = tuple(by_colour.get(colour, "#{:02x}{:02x}{:02x}".format(*colour)) for colour in colours)
    reason = "the labels are coloured: " + (
        "named in a file beside them" if names else "black first, then by red, green and blue"
    )
    if void & found:
        reason += f"; {list_some([str(one) for one in sorted(void & found)])} counts as unlabelled"
    session.chose(Choice("label_colours", list_some(list(class_names), limit=6), reason))
    keys = np.array([red << 16 | green << 8 | blue for red, green, blue in colours], np.uint32)
    order = np.argsort(keys)
    code = LabelCode(class_names, tuple(colours))
    return _made(session, scanned, code, lambda file: partial(_read_colours, file, keys[order], order.astype(np.uint8)))


def _named_colours(label: str) -> dict[str, Rgb]:
    """Names and colours from a file such as `labelmap.txt` or `class_dict.csv` in the label folder, or beside it."""
    place = locate(label or ".")
    if not label or not isinstance(place, Path):
        return {}
    folder = place if place.is_dir() else place.parent
    for file in (one / name for one in (folder, folder.parent) for name in _NAME_FILES):
        if file.is_file():
            lines = read_plain(file).decode("utf-8", "replace").splitlines()
            found = {match["name"]: match for line in lines if (match := _NAMED_COLOUR.match(line))}
            if found:
                return {name: (int(match[2]), int(match[3]), int(match[4])) for name, match in found.items()}
    return {}


# One file for each class


def _from_layers(session: Session, scanned: ScannedScenes) -> ScannedScenes:
    names = sorted({name for layers in scanned.layers.values() for name in layers})
    reason = "each scene has a label file for each class; pixels in none are background, of several the last counts"
    session.chose(Choice("label_classes", list_some(names, limit=6), reason))
    layers = {
        scene_id: [(number, files[name]) for number, name in enumerate(names, 1) if name in files]
        for scene_id, files in scanned.layers.items()
    }
    first = {scene_id: files[0][1] for scene_id, files in layers.items() if files}
    of_first = {file: layers[scene_id] for scene_id, file in first.items()}
    scenes = [replace(scene, label=first.get(scene.scene_id)) for scene in scanned.scenes]
    return _made(
        session,
        replace(scanned, scenes=scenes),
        LabelCode(("background", *names)),
        lambda file: partial(_read_layers, of_first[file]),
        beside=lambda file: [path for _, path in of_first[file]],
    )


def _read_layers(layers: Sequence[tuple[int, str]], profile: dict[str, Any]) -> Classes:
    planes = [(number, file, _read_pixels(file, profile).max(axis=0)) for number, file in layers]
    classes = np.zeros(planes[0][2].shape, np.uint8)
    for number, file, held in planes:
        if held.shape != classes.shape:
            raise DataError(
                f"{file} has another size than the first label of its scene",
                code="label-does-not-fit",
                why=f"{held.shape[1]}×{held.shape[0]} pixels, not {classes.shape[1]}×{classes.shape[0]}",
                try_="give the labels of one scene the same size",
            )
        classes[held > (127 if suffix_of(file) in _LOSSY else 0)] = number
    return classes


def _read_table(file: str, table: Classes, profile: dict[str, Any]) -> Classes:
    grey = _read_pixels(file, profile)[0]
    return table[np.where(grey > 127, np.uint8(255), np.uint8(0)) if suffix_of(file) in _LOSSY else grey]


def _read_colours(file: str, keys: NDArray[np.uint32], numbers: Classes, profile: dict[str, Any]) -> Classes:
    pixels = _read_pixels(file, profile)
    if len(pixels) < 3:  # a grey or palette file among coloured ones
        with HandlePool().open(file) as dataset:
            table = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
            with suppress(ValueError):
                for value, colour in dataset.colormap(1).items():
                    table[value] = colour[:3]
        pixels = np.moveaxis(table[pixels[0]], -1, 0)
    packed = _packed(pixels)
    places = np.searchsorted(keys, packed).clip(0, len(keys) - 1)
    return np.where(keys[places] == packed, numbers[places], np.uint8(IGNORE))


def _read_pixels(file: str, profile: dict[str, Any]) -> NDArray[np.uint8]:
    """All bands; what the file says of its place goes into `profile`."""
    with HandlePool().open(file) as dataset:
        profile.update(crs=dataset.crs, transform=dataset.transform)
        pixels: NDArray[np.uint8] = dataset.read()
    return pixels


# COCO


def outline_files(label: str) -> list[Path]:
    """The COCO files that `label` names: one, or all of a folder that holds no rasters."""
    place = locate(label)
    if not isinstance(place, Path):
        return []
    if place.suffix.lower() == ".json":
        return [place]
    found = [Path(entry.path) for entry in listing.walk(place)] if place.is_dir() else []
    outlines = [file for file in found if file.suffix.lower() == ".json"]
    return sorted(outlines) if outlines and len(outlines) == len(found) else []


def _from_coco(session: Session, scanned: ScannedScenes, files: Sequence[Path]) -> ScannedScenes:
    """Outlines and run lengths to rasters: a class for each category, the smaller object on top, crowds unlabelled."""
    images: dict[str, dict[str, Any]] = {}
    objects: dict[str, list[dict[str, Any]]] = {}
    categories: dict[int, str] = {}
    boxes_alone = 0
    for file in files:
        try:
            content = parse_json(read_plain(file))
            categories |= {int(one["id"]): str(one["name"]) for one in content["categories"]}
            of_file = {one["id"]: one for one in content["images"]}
            for one in of_file.values():
                images[_bare(one["file_name"])] = one
            for thing in content["annotations"]:
                if thing.get("segmentation"):
                    objects.setdefault(_bare(of_file[thing["image_id"]]["file_name"]), []).append(thing)
                boxes_alone += not thing.get("segmentation")
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{file} is no COCO file",
                code="not-coco",
                why=f"{type(error).__name__}: {error}; images, categories and annotations are expected",
                try_="give a COCO json with outlines, or a folder of masks",
            ) from error
    if boxes_alone and not objects:
        raise UsageError(
            "detection is not supported",
            code="detection-not-supported",
            why=f"{files[0].name} holds boxes without outlines, and a box does not say which pixels belong to an object",
            try_="a detection tool, such as torchvision's or MMDetection; or outlines of the objects, for masks",
        )
    numbers = {category: number for number, category in enumerate(sorted(categories), 1)}
    if len(numbers) > IGNORE - 1:
        raise DataError(
            f"{files[0].name} has {len(numbers)} categories",
            code="too-many-classes",
            why="masks hold up to 254 classes",
            try_="join categories that belong together",
        )
    crowds = sum(bool(one.get("iscrowd")) for several in objects.values() for one in several)
    reason = "each category is a class over background, the smaller object on top"
    reason += f"; {format_count(crowds, 'crowd')} count as unlabelled" if crowds else ""
    reason += f"; {format_count(boxes_alone, 'box', 'boxes')} without outline are left out" if boxes_alone else ""
    names = [categories[category] for category in numbers]
    session.chose(Choice("label_classes", list_some(names, limit=6), reason))
    scenes, here = [], {}
    for scene in scanned.scenes:
        bare = _bare(scene.file or "")
        here[scene.scene_id] = bare
        scenes.append(replace(scene, label=str(files[0]) if bare in images else None))
    stamps = [stamp_file(str(file)) for file in files]
    folder = (
        session.workspace.root / "labels" / digest([_VERSION, "coco", [[one.size_bytes, one.mtime_ns] for one in stamps]])[:12]
    )
    made = []
    for scene in scenes:
        if scene.label is not None:
            bare = here[scene.scene_id]
            paint = partial(_paint_objects, images[bare], objects.get(bare, []), numbers)
            scene = replace(scene, label=str(_save(folder / f"{scene.scene_id}.tif", paint, stamps[0])), decoded=True)
        made.append(scene)
    without = [scene.scene_id for scene in made if scene.label is None]
    if without:
        session.warn(f"{format_count(len(without), 'photo')} not in {files[0].name}: {list_some(without)}")
    return replace(scanned, scenes=made, code=LabelCode(("background", *names)))


def _bare(name: str) -> str:
    return stem_of(PurePosixPath(str(name).replace("\\", "/")).name).lower()


def _paint_objects(
    image: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], numbers: Mapping[int, int], _profile: dict[str, Any]
) -> Classes:
    from rasterio.features import rasterize

    height, width = int(image["height"]), int(image["width"])
    classes = np.zeros((height, width), np.uint8)
    drawn = []
    for one in objects:
        outline = one["segmentation"]
        if isinstance(outline, Mapping):
            held = _run_lengths(outline)
        else:
            rings = [np.asarray(ring, float).reshape(-1, 2) for ring in outline if len(ring) >= 6]
            shapes = [({"type": "Polygon", "coordinates": [[*ring.tolist(), ring[0].tolist()]]}, 1) for ring in rings]
            held = rasterize(shapes, out_shape=(height, width)).astype(bool) if shapes else np.zeros((height, width), bool)
        number = IGNORE if one.get("iscrowd") else numbers[int(one["category_id"])]
        drawn.append((not one.get("iscrowd"), -int(held.sum()), number, held))
    for _, _, number, held in sorted(drawn, key=lambda entry: entry[:3]):
        classes[held] = number
    return classes


def _run_lengths(outline: Mapping[str, Any]) -> NDArray[np.bool_]:
    """COCO's run lengths, column by column, plain or as its text of five bits a letter."""
    height, width = outline["size"]
    counts = outline["counts"]
    if isinstance(counts, str):
        counts, text, at = [], counts, 0
        while at < len(text):
            value, shift, more = 0, 0, True
            while more:
                bits = ord(text[at]) - 48
                value |= (bits & 31) << shift
                more, shift, at = bool(bits & 32), shift + 5, at + 1
            if bits & 16:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return flat.reshape(width, height).T


# Rasters of class numbers


def _made(
    session: Session,
    scanned: ScannedScenes,
    code: LabelCode,
    reader: Callable[[str], Callable[[dict[str, Any]], Classes]],
    *,
    beside: Callable[[str], list[str]] = lambda file: [file],
    decoded: bool = True,
) -> ScannedScenes:
    """The scenes with a raster of class numbers for each label, made in threads unless it is there."""
    files = list(dict.fromkeys(scene.label for scene in scanned.scenes if scene.label is not None))
    about = [_VERSION, list(code.class_names), [list(one) for one in code.colours], session.settings.ignore]

    def make(file: str) -> str:
        stamps = [stamp_file(one) for one in beside(file)]
        key = digest([about, [[one.path, one.size_bytes, one.mtime_ns] for one in stamps]])[:12]
        name = f"{stem_of(Path(file).name)}-{key}.tif"
        return str(_save(session.workspace.root / "labels" / name, reader(file), stamps[0]))

    made = dict(zip(files, map_ahead(make, files, threads=usable_cores(), ahead=32), strict=True))
    scenes = [
        replace(scene, label=made[scene.label], decoded=decoded) if scene.label is not None else scene for scene in scanned.scenes
    ]
    return replace(scanned, scenes=scenes, code=code)


def _save(file: Path, read: Callable[[dict[str, Any]], Classes], source: FileStamp) -> Path:
    """A TIFF of the source's own time, so that a label which is made again counts as the same."""
    if file.is_file():
        return file
    from rasterio.io import MemoryFile

    place: dict[str, Any] = {}
    classes = read(place)
    height, width = classes.shape
    options = {"driver": "GTiff", "width": width, "height": height, "count": 1, "dtype": "uint8", "compress": "deflate", **place}
    with MemoryFile() as memory:
        with memory.open(**options) as target:
            target.write(classes, 1)
        data = memory.read()
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(file, data)
    os.utime(file, ns=(source.mtime_ns, source.mtime_ns))
    return file
