"""Exported models beside their runs: the same first class, the largest difference, speed, for kinds of runs, formats and sizes.

Photos are generated. Each kind of run is trained once; each file is compared by `export` itself on the run's test photos, and
here on pictures from 33 to 6,000 pixels with what `predict` answers in float32 torch.

    python benches/bench_export.py /tmp/bench-export [KIND …]          # about 10 minutes on two cores
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from common import say
from PIL import Image

import unchoke
from unchoke.core.events import ignore

COLOURS = {"apple": (200, 60, 50), "leaf": (60, 170, 70), "plum": (90, 60, 160)}
KINDS = {
    "head": {},
    "cut": {"cut": "-4", "epochs": 2},
    "whole": {"cut": "none", "epochs": 1, "input_px": 128},
    "tiles": {"cut": "-2", "epochs": 1, "streams": 2, "tiles": "1x1"},
    "values": {},
    "blend": {"minutes": 0.5},
}
SIZES = ((33, 33), (33, 47), (224, 224), (375, 500), (1024, 768), (2000, 3000), (6000, 4000), (6000, 6000))


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


def train(kind: str, folder: Path) -> str:
    words = {"out": folder / kind, "on_event": ignore, **KINDS[kind]}
    if kind == "values":
        return unchoke.fit(folder / "table.csv", images=(str(folder / "photos"),), target=("radius",), **words).run
    return unchoke.fit(folder / "photos", **words).run


def compare_sizes(kind: str, run: str, made: Path, folder: Path) -> None:
    """The file on noise of many sizes against `predict`'s way, by a lossless file."""
    from unchoke.commands.open_models import OpenOptions, open_model
    from unchoke.commands.picture_chunks import answer_chunk, cut_chunks, show_picture
    from unchoke.photos.pixels.image import read_bytes
    from unchoke.portable.example_script import load_script
    from unchoke.runs.lookup import find_run
    from unchoke.training.scoring.figures import softmax

    script = load_script(made)
    photo = next((folder / "photos").rglob("*.jpg"))
    for height, width in SIZES:
        file = folder / f"{height}x{width}.bmp"
        Image.open(photo).resize((width, height)).save(file)
        model = open_model(find_run(run, out=folder / kind), [str(file)], OpenOptions(None, None, None, ignore, plain=True))
        chunk = cut_chunks([str(file)], 1)[0]
        outputs = answer_chunk(model, chunk, [show_picture(model, str(file), read_bytes)]).outputs
        ours = softmax(outputs / model.temperature) if model.kind == "classification" else outputs
        theirs = script.predict(script.read_pixels(file)[None])
        same = ours.argmax() == theirs.argmax()
        say(f"    {height}×{width}: same first class {same}, difference {np.abs(ours - theirs).max():.1e}")
        file.unlink()


def main() -> None:
    folder = Path(sys.argv[1])
    if not (folder / "table.csv").exists():
        make_data(folder)
    for kind in sys.argv[2:] or KINDS:
        run = train(kind, folder)
        for format_ in ("onnx", "openvino"):
            to = folder / f"{kind}-{run}-{format_}"
            try:
                made = unchoke.export(run, to=to, format=format_, out=folder / kind, on_event=ignore)
            except unchoke.UnchokeError as error:
                say(f"{kind} {format_}: {error.what} ({error.why})")
                continue
            found = made.agreement
            times = f"{1000 * found.photo_s:.1f} ms a photo, torch {1000 * found.torch_photo_s:.1f} ms"
            say(
                f"{kind} {format_}: {found.words()}; other sizes {found.sizes_difference:.1e}; {times}; {made.size_bytes:,} bytes"
            )
            compare_sizes(kind, run, to, folder)


if __name__ == "__main__":
    main()
