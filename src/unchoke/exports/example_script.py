"""The short script that is shipped beside a model: photos or scenes in, answers out, with one runtime, numpy and a decoder.

In: the format and what comes out. Out: the script's text, and, of a script that was written, its functions. The check before an
export is handed over runs these very functions: what is compared is what is shipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unchoke.core.signal_stack import kept_signal_stack
from unchoke.exports.model_files import Format
from unchoke.pixels.image import PICTURE_FORMATS

SCRIPT = "predict.py"
FACTS = "model.json"


@dataclass(frozen=True)
class Runtime:
    """What runs a format: the package, how it opens a file, how it is asked."""

    package: str
    opened: str
    asked: str


RUNTIMES: dict[Format, Runtime] = {
    "onnx": Runtime(
        "onnxruntime",
        'session = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])',
        'session.run(None, {"pixels": pixels})[0]',
    ),
    "openvino": Runtime(
        "openvino",
        'session = openvino.compile_model(HERE / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})',
        "session(pixels)[0]",
    ),
    "pt2": Runtime(
        "torch", 'session = torch.export.load(HERE / "model.pt2").module()', "session(torch.from_numpy(pixels)).numpy()"
    ),
}
_PHOTOS = '''"""python predict.py {given} says what PHOTO shows. It needs {package}, numpy and Pillow, and nothing else."""
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import {package}
from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent
FACTS = json.loads((HERE / "model.json").read_text("utf-8"))
KNOWN = Image.registered_extensions().values()
FORMATS = [name for name in {formats} if name in KNOWN]  # and no others: Pillow would have Ghostscript run PostScript
for name, digest in FACTS["sha256"].items():
    if hashlib.sha256((HERE / name).read_bytes()).hexdigest() != digest:
        raise SystemExit(f"{{HERE / name}} is damaged: it is not the file that was exported")
{opened}


def read_pixels(path):
    """Upright RGB. A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, as it was when the model learnt."""
    with Image.open(path, formats=FORMATS) as image:
        if image.format in ("JPEG", "MPO") and (cover := FACTS["jpeg_cover_px"]):
            factor = next((f for f in (8, 4, 2) if min(image.size) // f >= cover), 1)
            image.draft(None, (image.width // factor, image.height // factor))
        image = ImageOps.exif_transpose(image)
        if image.mode == "F" or (image.mode == "I" and not 0 <= image.getextrema()[0] <= image.getextrema()[1] < 65536):
            raise ValueError(f"{{path}}: its numbers do not fit 16 bits")
        if image.width < FACTS["least_px"][0] or image.height < FACTS["least_px"][1]:
            raise ValueError(f"{{path}}: {{image.width}}x{{image.height}} pixels are too few for its tiles")
        if image.mode.startswith("I"):  # 16 bits of grey
            return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
        return np.array(image.convert("RGB"))


def predict(pixels):
    """{output} (n, {what}) of photos of one size (n, height, width, 3)."""
    return {asked}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("python predict.py {given}")
    failed = 0
    for path in sys.argv[1:]:
        try:
            answers = predict(read_pixels(path)[None])[0].tolist()
        except Exception as error:  # whatever is wrong with this one, the others are answered
            failed += 1
            print(f"{{path}}: {{type(error).__name__}}: {{error}}", file=sys.stderr)
            continue
        print(path, dict(zip(FACTS["names"], answers)))
    sys.exit(failed > 0)
'''
_SCENES = '''"""python predict.py {given} draws the mask of a scene.

It needs {package}, numpy and rasterio, and nothing else. The model sees one window at a time: cutting windows, blending what it
says of them, and the scene's own scale are here.
"""
import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import {package}

HERE = Path(__file__).resolve().parent
FACTS = json.loads((HERE / "model.json").read_text("utf-8"))
SIDE, SHARED, SCALE = FACTS["window_px"], FACTS["overlap_px"], FACTS["scale"]
for name, digest in FACTS["sha256"].items():
    if hashlib.sha256((HERE / name).read_bytes()).hexdigest() != digest:
        raise SystemExit(f"{{HERE / name}} is damaged: it is not the file that was exported")
{opened}


def in_order(paths):
    """The scene's files in the order of the model's bands: which is which, the names say, as in `scene_B10.tif`."""
    wanted = FACTS["files"]
    if len(wanted) == len(paths) == 1:
        return paths
    endings = [re.compile(rf"(^|[_.\\- ]){{re.escape(band)}}([_-]\\d{{{{2,3}}}}m)?$", re.IGNORECASE) for band in wanted]
    found = [[path for path in paths if ending.search(Path(path).stem)] for ending in endings]
    if len(paths) != len(wanted) or any(len(one) != 1 for one in found):
        raise SystemExit(f"one file for each of {{', '.join(wanted)}} is wanted, its name ending so: {given}")
    return [one[0] for one in found]


def read_scene(paths):
    """Physical values (bands, height, width), not a number where one of the bands has none; and where the scene lies."""
    import rasterio

    bands, paths = [], in_order(paths)
    for place, number in FACTS["bands_in_files"]:
        with rasterio.open(paths[place]) as scene:
            profile, stored = scene.profile, scene.read(number, masked=True).astype(np.float32).filled(np.nan)
            bands.append(stored * np.float32(scene.scales[number - 1]) + np.float32(scene.offsets[number - 1]))
    bands = np.stack(bands)
    bands[:, ~np.isfinite(bands).all(axis=0)] = np.nan
    return bands, profile


def put_on_scale(bands):
    """As the model learnt to see scenes; "max" and "percentile" are those of this scene's own pixels."""
    known = bands[:, np.isfinite(bands).all(axis=0)]
    low, high = np.zeros(len(bands), np.float32), np.float32(SCALE["divide"])
    if SCALE["kind"] == "max" and known.size:
        high = known.max(axis=1)
        high = np.where(high > 0, high, np.float32(1))
    if SCALE["kind"] == "percentile" and known.size:
        low, high = np.percentile(known, SCALE["percentiles"], axis=1).astype(np.float32)
        high = np.where(high > low, high - low, np.float32(1))
    scaled = (bands - low[:, None, None]) / high[:, None, None]
    return np.clip(scaled, 0, 1) if SCALE["kind"] == "percentile" else scaled


def ask(pixels):
    """Masks (n, classes, side, side) of windows (n, bands, side, side) on the scale above."""
    return {asked}


def shares(length):
    """Where windows begin along one side, and their shares of each pixel, which add up to one."""
    starts = range(0, max(1, length - SHARED), SIDE - SHARED)
    profile = np.ones(SIDE)
    ramp = np.sin(np.pi / 2 * (np.arange(SHARED) + 0.5) / max(1, SHARED)) ** 2
    profile[:SHARED] *= ramp
    profile[SIDE - SHARED :] *= ramp[::-1]
    total = np.zeros(max(starts) + SIDE)
    for start in starts:
        total[start : start + SIDE] += profile
    return [(start, (profile / total[start : start + SIDE]).astype(np.float32)) for start in starts]


def predict(scene):
    """Probabilities (classes, height, width) of a scene on its scale; not a number where a pixel has no value."""
    bands, height, width = scene.shape
    found = np.zeros((len(FACTS["names"]), height, width), np.float32)
    for top, down in shares(height):
        for left, across in shares(width):
            part = scene[:, top : top + SIDE, left : left + SIDE]
            rows, columns = part.shape[1:]
            window = np.full((1, bands, SIDE, SIDE), np.nan, np.float32)
            window[0, :, :rows, :columns] = part
            if np.isfinite(window).any():
                weights = down[:rows, None] * across[:columns]
                found[:, top : top + SIDE, left : left + SIDE] += ask(window)[0][:, :rows, :columns] * weights
    return np.where(np.isfinite(scene).all(axis=0), found, np.float32(np.nan))


if __name__ == "__main__":
    import rasterio

    if len(sys.argv) < 3:
        raise SystemExit("python predict.py {given}")
    bands, profile = read_scene(sys.argv[1:-1])
    said = predict(put_on_scale(bands))
    classes = np.where(np.isnan(said[0]), 255, said.argmax(axis=0)).astype(np.uint8)
    kept = {{name: profile[name] for name in ("height", "width", "crs", "transform")}}
    with rasterio.open(sys.argv[-1], "w", driver="GTiff", count=1, dtype="uint8", nodata=255, **kept) as mask:
        mask.write(classes, 1)
    print(sys.argv[-1], {{name: int((classes == number).sum()) for number, name in enumerate(FACTS["names"])}})
'''


def usage(output: str, files: Sequence[str] = ()) -> str:
    """What the script is given: photos, or the files of a scene and the mask to draw."""
    if output != "masks":
        return "PHOTO …"
    scene = [f"SCENE_{band}.tif" for band in files] if len(files) > 1 else ["SCENE.tif"]
    return " ".join([*scene, "MASK.tif"])


def render_script(format_: Format, output: str, files: Sequence[str] = ()) -> str:
    """The script as it is shipped; `files` are those of a scene, each named by its band."""
    runtime = RUNTIMES[format_]
    what = "classes" if output == "probabilities" else "targets"
    words = {
        "package": runtime.package,
        "opened": runtime.opened,
        "asked": runtime.asked,
        "output": output.capitalize(),
        "what": what,
        "given": usage(output, files),
    }
    formats = f'"{" ".join(PICTURE_FORMATS)}".split()'
    return _SCENES.format(**words) if output == "masks" else _PHOTOS.format(**words, formats=formats)


def needed_packages(format_: Format, output: str) -> list[str]:
    """What the script needs, as pip knows it."""
    return [RUNTIMES[format_].package, "numpy", "rasterio" if output == "masks" else "pillow"]


def load_script(folder: Path) -> Any:
    """The script in `folder` as a module, its model opened."""
    spec = importlib.util.spec_from_file_location("unchoke_shipped_script", folder / SCRIPT)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    with kept_signal_stack():  # the module may be let go of in any thread
        spec.loader.exec_module(module)
    return module
