"""Exported models beside their runs: the same first class, the largest difference, speed, for every kind of run and format.

Photos and scenes are generated. Each kind of run is trained once; each file is compared by `export` itself with the run in
float32 torch, on its test photos and on pictures from 33 to 6,000 pixels; here one of 6,000 × 6,000 joins them (of masks, a
scene of 6,000 × 33). A refusal is a row, too.

    python benches/bench_export.py /tmp/bench-export [KIND …]                   # about 15 minutes on two free cores
    python benches/bench_export.py /tmp/bench-export head --precision f16,int8  # in fewer bits
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import say
from PIL import Image

import unchoke
from unchoke.core.events import ignore

COLOURS = {"apple": (200, 60, 50), "leaf": (60, 170, 70), "plum": (90, 60, 160)}
KINDS: dict[str, dict[str, Any]] = {
    "head": {},
    "cut": {"cut": "-4", "epochs": 2},
    "whole": {"cut": "none", "epochs": 1, "input_px": 128},
    "tiles": {"cut": "-2", "epochs": 1, "streams": 2, "tiles": "1x1"},
    "values": {},
    "blend": {"minutes": 0.5},
    "masks": {"epochs": 2, "patch_size": 64, "overlap": 16, "classes": "ground,disc"},
}
LARGE_PX = 6000


def make_photo(file: Path, seed: int, colour: tuple[int, int, int]) -> float:
    """A blob on a textured ground; its size is the value to be learnt."""
    random = np.random.default_rng(seed)
    ground = Image.fromarray(random.integers(0, 160, (6, 8, 3), dtype=np.uint8)).resize((320, 240), Image.Resampling.BICUBIC)
    rows, columns = np.mgrid[0:240, 0:320]
    radius = random.uniform(30, 90)
    blob = np.clip(1.5 - np.hypot(rows - random.uniform(80, 160), columns - random.uniform(100, 220)) / radius, 0, 1)[..., None]
    pixels = np.asarray(ground) * (1 - 0.6 * blob) + np.array(colour) * 0.6 * blob
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, quality=90)
    return float(radius)


def make_data(folder: Path) -> None:
    rows = []
    for number, (name, colour) in enumerate(COLOURS.items()):
        for index in range(60):
            file = folder / "photos" / name / f"{name}{index:02d}.jpg"
            rows.append({"image": f"{name}/{file.name}", "radius": make_photo(file, 1000 * number + index, colour)})
    pd.DataFrame(rows).to_csv(folder / "table.csv", index=False)


def make_scenes(folder: Path) -> None:
    """Scenes of four bands, each with a disc that two of them show."""
    import rasterio

    for number in range(10):
        random = np.random.default_rng(number)
        rows, columns = np.mgrid[:128, :128]
        disc = np.hypot(rows - random.uniform(40, 88), columns - random.uniform(40, 88)) < random.uniform(20, 40)
        bands = 1000 + np.stack([900 * disc, -400 * disc, 0 * disc, 0 * disc]) + random.integers(0, 700, (4, 128, 128))
        place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500_000 + 3000 * number, 0, -10, 5_200_000)}
        for name, values in (("scenes", bands.astype(np.uint16)), ("labels", disc[None].astype(np.uint8))):
            file = folder / name / f"s{number}.tif"
            file.parent.mkdir(parents=True, exist_ok=True)
            profile = {"driver": "GTiff", "count": len(values), "height": 128, "width": 128, "dtype": values.dtype}
            with rasterio.open(file, "w", **profile, **place) as raster:
                raster.write(values)


def train(kind: str, folder: Path) -> str:
    words = {"out": folder / kind, "on_event": ignore, **KINDS[kind]}
    if kind == "masks":
        return unchoke.segment_train(folder / "scenes", label=str(folder / "labels"), **words).run
    if kind == "values":
        return unchoke.fit(folder / "table.csv", images=(str(folder / "photos"),), target=("radius",), **words).run
    return unchoke.fit(folder / "photos", **words).run


def compare_large(kind: str, run: str, made: Path, folder: Path) -> str:
    """The shipped script on one large picture, beside the run in float32 torch."""
    from unchoke.exports.agreement import compare
    from unchoke.exports.example_script import load_script
    from unchoke.runs.lookup import find_run

    found, script = find_run(run, out=folder / kind), load_script(made)
    if kind == "masks":
        from unchoke.exports.export_masks import filled_scene, opened_masks

        with opened_masks(found, None) as work:
            return work.compare_scene(script, filled_scene(work.samples()[0][0], 33, LARGE_PX)).words()
    from unchoke.exports.export_photos import answer_plainly

    file = folder / f"{LARGE_PX}.bmp"
    Image.open(next((folder / "photos").rglob("*.jpg"))).resize((LARGE_PX, LARGE_PX)).save(file)
    ours = answer_plainly(found, [str(file)], None)
    theirs = script.predict(script.read_pixels(file)[None]).astype(np.float64)
    file.unlink()
    return compare(ours, theirs, is_class=kind != "values").words()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--formats", default="onnx,openvino")
    typed = parser.parse_args()
    folder = typed.folder
    if not (folder / "table.csv").exists():
        make_data(folder)
    if "masks" in typed.kinds and not (folder / "scenes").exists():
        make_scenes(folder)
    for kind in typed.kinds:
        run = train(kind, folder)
        for format_, precision in ((one, other) for one in typed.formats.split(",") for other in typed.precision.split(",")):
            named = f"{kind} {format_} {precision}"
            to = folder / f"{kind}-{run}-{format_}-{precision}"
            try:
                made = unchoke.export(run, to=to, format=format_, precision=precision, out=folder / kind, on_event=ignore)
            except unchoke.UnchokeError as error:
                say(f"{named}: {error.what} ({error.why})")
                continue
            found = made.agreement
            other = f"33 to 6,000 px: {found.other_sizes.words()}; {LARGE_PX} px: {compare_large(kind, run, to, folder)}"
            say(f"{named}: {found.words()}; {other}; {found.speed.words(found.unit)}; {made.size_bytes:,} bytes")


if __name__ == "__main__":
    main()
