"""Make the pictures and tables that the scripts beside this file train on. Run once; what is already there is kept.

    python benches/chokes/make_data.py --to DIR

What comes out, all of it generated and the same on every run, under 150 MB in all:

    DIR/jpeg_small/<class>/<n>.jpg   128 x 128, 4 classes x 40 (class_0 … class_3, 000 … 039)
    DIR/jpeg_large/<class>/<n>.jpg   1600 x 1200, 4 classes x 26
    DIR/png/<class>/<n>.png          512 x 512, 4 classes x 8
    DIR/npy/<n>.npy                  96 arrays, 4 x 128 x 128 float32, 0 to 1 (000 … 095); a bright patch of at least 24 x 24
                                     pixels in band `int(n) % 4` is the class
    DIR/npz/<n>.npz                  the same arrays through savez_compressed, under the name "image"
    DIR/scene.tif                    4 bands, 2048 x 2048, uint16, deflate, strips of one row
    DIR/labels.csv                   path,label of every picture in jpeg_small: "class_0/000.jpg,0"
    DIR/many/<n>.jpg                 4,000 pictures of 32 x 32 in one folder (0000 … 3999), class `int(n) % 4`
    DIR/many.csv                     path,label of every picture in many: "0000.jpg,0"
    DIR/deliveries/<day>/<n>.jpg     96 x 96, 160 pictures (000 … 159, class `int(n) % 4`) strewn over 400 folders
                                     (day_000 … day_399)

The pictures are smooth clouds at several scales with sensor noise, so they compress about as photographs do. Nothing here trains.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import rasterio
from PIL import Image
from rasterio.transform import from_origin

NUM_CLASSES = 4
TINTS = np.array([[1.0, 0.7, 0.6], [0.6, 1.0, 0.7], [0.7, 0.6, 1.0], [1.0, 0.95, 0.55]])
Rows = list[tuple[str, int]]


def clouds(rng: np.random.Generator, width_px: int, height_px: int) -> np.ndarray:
    """One band of smooth structure at five scales, 0 to 1."""
    total = np.zeros((height_px, width_px), dtype=np.float32)
    for cells in (3, 6, 12, 24, 48):
        coarse = Image.fromarray(rng.random((cells, cells), dtype=np.float32))
        total += np.asarray(coarse.resize((width_px, height_px), Image.Resampling.BICUBIC)) / cells**0.7
    total -= total.min()
    return total / total.max()


def picture(rng: np.random.Generator, label: int, width_px: int, height_px: int) -> Image.Image:
    """Clouds in the tint of the class, with a little noise, as an RGB picture."""
    shade, detail = clouds(rng, width_px, height_px), clouds(rng, width_px, height_px)
    bands = [shade * tint * 200 + detail * (1 - tint) * 60 + 20 for tint in TINTS[label]]
    noise = rng.normal(0, 2.5, (height_px, width_px, 3)).astype(np.float32)
    return Image.fromarray((np.stack(bands, axis=2) + noise).clip(0, 255).astype(np.uint8))


def class_folders(folder: Path, *, per_class: int, size_px: tuple[int, int], suffix: str) -> None:
    for label in range(NUM_CLASSES):
        (folder / f"class_{label}").mkdir(parents=True)
        for number in range(per_class):
            image = picture(np.random.default_rng([label, number, *size_px]), label, *size_px)
            image.save(folder / f"class_{label}" / f"{number:03d}{suffix}", quality=88)


def jpeg_small(folder: Path) -> None:
    class_folders(folder, per_class=40, size_px=(128, 128), suffix=".jpg")


def jpeg_large(folder: Path) -> None:
    class_folders(folder, per_class=26, size_px=(1600, 1200), suffix=".jpg")


def png(folder: Path) -> None:
    class_folders(folder, per_class=8, size_px=(512, 512), suffix=".png")


def patched_array(number: int) -> np.ndarray:
    """Four bands in steps of 1/1023, with a brighter patch in the band that is the class."""
    rng = np.random.default_rng([number, 7])
    bands = np.stack([clouds(rng, 128, 128) * 0.6 for _ in range(4)])
    side_px = int(rng.integers(24, 49))
    top, left = rng.integers(0, 128 - side_px, 2)
    bands[number % NUM_CLASSES, top : top + side_px, left : left + side_px] += 0.35
    return (np.round(bands.clip(0, 1) * 1023) / 1023).astype(np.float32)


def npy(folder: Path) -> None:
    folder.mkdir()
    for number in range(96):
        np.save(folder / f"{number:03d}.npy", patched_array(number))


def npz(folder: Path) -> None:
    folder.mkdir()
    for number in range(96):
        np.savez_compressed(folder / f"{number:03d}.npz", image=patched_array(number))


def scene(file: Path) -> None:
    rng = np.random.default_rng(11)
    shape = {"width": 2048, "height": 2048, "count": 4, "dtype": "uint16"}
    layout = {"compress": "deflate", "tiled": False, "blockysize": 1, "interleave": "pixel"}
    place = {"crs": "EPSG:32632", "transform": from_origin(600_000, 5_300_000, 10, 10)}
    with rasterio.open(file, "w", driver="GTiff", **shape, **layout, **place) as target:
        for band in range(1, 5):
            pixels = clouds(rng, 2048, 2048) * (2000 + 500 * band) + rng.normal(300, 20, (2048, 2048))
            target.write(pixels.clip(0, 10_000).astype(np.uint16), band)


def many(folder: Path) -> None:
    folder.mkdir()
    for number in range(4000):
        picture(np.random.default_rng([number, 32]), number % NUM_CLASSES, 32, 32).save(folder / f"{number:04d}.jpg", quality=88)


def deliveries(folder: Path) -> None:
    for day in range(400):
        (folder / f"day_{day:03d}").mkdir(parents=True)
    days = np.random.default_rng(5).integers(0, 400, 160)
    for number, day in enumerate(days):
        image = picture(np.random.default_rng([number, 96]), number % NUM_CLASSES, 96, 96)
        image.save(folder / f"day_{day:03d}" / f"{number:03d}.jpg", quality=88)


def write_rows(file: Path, rows: Rows) -> None:
    with file.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(["path", "label"])
        writer.writerows(rows)


def labels(file: Path) -> None:
    write_rows(file, [(f"class_{label}/{number:03d}.jpg", label) for label in range(NUM_CLASSES) for number in range(40)])


def many_labels(file: Path) -> None:
    write_rows(file, [(f"{number:04d}.jpg", number % NUM_CLASSES) for number in range(4000)])


PARTS: dict[str, Callable[[Path], None]] = {
    "jpeg_small": jpeg_small,
    "jpeg_large": jpeg_large,
    "png": png,
    "npy": npy,
    "npz": npz,
    "scene.tif": scene,
    "labels.csv": labels,
    "many": many,
    "many.csv": many_labels,
    "deliveries": deliveries,
}


def make_data(target: Path) -> None:
    """Make each part that is missing; a part is written beside its place and moved there whole."""
    target.mkdir(parents=True, exist_ok=True)
    for name, make in PARTS.items():
        if (target / name).exists():
            continue
        unfinished = target / f"unfinished-{name}"
        if unfinished.exists():
            sys.exit(f"{unfinished} is left from a run that was stopped: remove it and run this again")
        make(unfinished)
        unfinished.rename(target / name)
        print(f"made {target / name}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="the folder to fill")
    make_data(parser.parse_args().to)
