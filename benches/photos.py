"""Photos to measure on: the demo's grocery photos, whole or cut into many crops, or some of a folder of one's own.

Made once below a folder, then reused.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

PHOTO_ENDINGS = {".jpg", ".jpeg", ".png"}


def demo_photos(work: Path) -> Path:
    """The 1,393 photos of `unchoke demo` in class folders."""
    from unchoke.cli.demo import write_photos

    photos = work / "photos"
    if not photos.exists():
        write_photos(photos)
    return photos


def crops(work: Path, *, count: int, side_px: int) -> Path:
    """`count` different square crops of the demo's photos, larger ones enlarged, as JPEG files in the same class folders."""
    import numpy as np
    from PIL import Image

    target = work / f"crops-{count}-{side_px}"
    if target.exists():
        return target
    sources = sorted(demo_photos(work).rglob("*.jpg"))
    random = np.random.default_rng(0)
    for number in range(count):
        source = sources[number % len(sources)]
        with Image.open(source) as image:
            window_px = int(random.integers(min(max(side_px, 128), *image.size), min(image.size) + 1))
            left = int(random.integers(0, image.width - window_px + 1))
            top = int(random.integers(0, image.height - window_px + 1))
            part = image.convert("RGB").crop((left, top, left + window_px, top + window_px)).resize((side_px, side_px))
        file = target.with_suffix(".part") / source.parent.name / f"{number:06d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        part.save(file, "JPEG", quality=88)
    target.with_suffix(".part").rename(target)
    print(f"made {count} crops of {side_px} px in {target}", file=sys.stderr)
    return target


def wanted_photos(given: str | None, work: Path, *, num: int, side_px: int = 512) -> Path:
    """`num` photos of a folder of one's own; without one the demo's, and beyond those crops of them."""
    if given:
        return some_of(Path(given), work, num=num)
    demo = demo_photos(work)
    return some_of(demo, work, num=num) if num <= len(list(demo.rglob("*.jpg"))) else crops(work, count=num, side_px=side_px)


def some_of(photos: Path, work: Path, *, num: int) -> Path:
    """`num` photos spread over class folders, as links (copies across file systems); the folder itself if it has no more."""
    files = sorted(file for file in photos.rglob("*") if file.suffix.lower() in PHOTO_ENDINGS)
    if len(files) <= num:
        return photos
    target = work / f"{photos.name}-{num}"
    if target.exists():
        return target
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for number in range(num):
        source = files[number * len(files) // num]
        place = part / source.relative_to(photos)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, place)
        except OSError:
            shutil.copyfile(source, place)
    part.rename(target)
    return target
