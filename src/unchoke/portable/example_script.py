"""The short script that is shipped beside a model: photos in, answers out, with one runtime, numpy and Pillow.

In: the format. Out: the script's text, and, of a script that was written, its functions. The check before an export is handed
over runs these very functions: what is compared is what is shipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.photos.pixels.image import Pixels
from unchoke.portable.model_files import MODEL_NAMES, Format

SCRIPT = "predict.py"
FACTS = "model.json"
_NEEDS = {"onnx": "onnxruntime", "openvino": "openvino", "pt2": "torch"}
_OPENED = {
    "onnx": 'session = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])',
    "openvino": 'session = openvino.compile_model(HERE / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})',
    "pt2": 'session = torch.export.load(HERE / "model.pt2").module()',
}
_ASKED = {
    "onnx": 'session.run(None, {"pixels": pixels})[0]',
    "openvino": "session(pixels)[0]",
    "pt2": "session(torch.from_numpy(pixels)).numpy()",
}
_TEXT = '''"""python predict.py PHOTO … says what PHOTO shows. It needs {needs}, numpy and Pillow, and nothing else."""
import json
import sys
from pathlib import Path

import numpy as np
import {needs}
from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent
FACTS = json.loads((HERE / "model.json").read_text("utf-8"))
{opened}


def read_pixels(path):
    """Upright RGB. A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, as it was when the model learnt."""
    with Image.open(path) as image:
        if image.format in ("JPEG", "MPO") and (cover := FACTS["jpeg_cover_px"]):
            factor = next((f for f in (8, 4, 2) if min(image.size) // f >= cover), 1)
            image.draft(None, (image.width // factor, image.height // factor))
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits of grey
            return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
        return np.array(image.convert("RGB"))


def predict(pixels):
    """{output} (n, {what}) of photos of one size (n, height, width, 3)."""
    return {asked}


if __name__ == "__main__":
    for path in sys.argv[1:]:
        answers = predict(read_pixels(path)[None])[0].tolist()
        print(path, dict(zip(FACTS["names"], answers)))
'''


@dataclass(frozen=True)
class ShippedScript:
    """What the script of an export does, at work in this process."""

    read_pixels: Callable[[str | Path], Pixels]
    predict: Callable[[Pixels], NDArray[np.float32]]


def render_script(format_: Format, output: str) -> str:
    """The script as it is shipped."""
    assert format_ in MODEL_NAMES
    what = "classes" if output == "probabilities" else "targets"
    return _TEXT.format(
        needs=_NEEDS[format_], opened=_OPENED[format_], asked=_ASKED[format_], output=output.capitalize(), what=what
    )


def load_script(folder: Path) -> ShippedScript:
    """The functions of the script in `folder`, its model opened."""
    spec = importlib.util.spec_from_file_location("unchoke_shipped_script", folder / SCRIPT)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return ShippedScript(module.read_pixels, module.predict)
