"""The script that is shipped beside a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unchoke.exports.example_script import FACTS, RUNTIMES, SCRIPT, load_script, render_script


@pytest.mark.parametrize("format_", ["onnx", "openvino", "pt2"])
def test_it_is_a_program_that_opens_pictures_alone(format_: str) -> None:
    script = render_script(format_, "probabilities")  # type: ignore[arg-type]
    compile(script, "predict.py", "exec")
    assert script.count("Image.open(") == script.count("Image.open(path, formats=FORMATS)") == 1
    assert '"JPEG PNG ' in script
    assert "EPS" not in script


def test_files_of_a_scene_are_told_apart_by_their_bands(tmp_path: Path) -> None:
    files = ["B2", "B10", "B3"]
    script = render_script("onnx", "masks", files).replace(RUNTIMES["onnx"].opened, "").replace("import onnxruntime\n", "")
    (tmp_path / SCRIPT).write_text(script, encoding="utf-8")
    facts = {"window_px": 64, "overlap_px": 8, "scale": {}, "files": files, "sha256": {}}
    (tmp_path / FACTS).write_text(json.dumps(facts), encoding="utf-8")
    shipped = load_script(tmp_path)
    assert "SCENE_B2.tif SCENE_B10.tif SCENE_B3.tif MASK.tif" in shipped.__doc__
    assert shipped.in_order(["l8_B10.tif", "l8_B2.tif", "l8_b3_30m.tif"]) == ["l8_B2.tif", "l8_B10.tif", "l8_b3_30m.tif"]
    for given in (["l8_B2.tif"], ["1.tif", "2.tif", "3.tif"], ["a_B2.tif", "b_B2.tif", "l8_B3.tif"]):
        with pytest.raises(SystemExit, match="B2, B10, B3"):
            shipped.in_order(given)
    shipped.FACTS["files"] = ["1"]
    assert shipped.in_order(["scene.tif"]) == ["scene.tif"]


def test_it_refuses_what_predict_refuses(tmp_path: Path) -> None:
    """The part that reads photos; there is no model here to open."""
    script = render_script("onnx", "values").replace(RUNTIMES["onnx"].opened, "").replace("import onnxruntime\n", "")
    (tmp_path / SCRIPT).write_text(script, encoding="utf-8")
    (tmp_path / FACTS).write_text(json.dumps({"jpeg_cover_px": None, "least_px": [4, 2], "sha256": {}}), encoding="utf-8")
    read_pixels = load_script(tmp_path).read_pixels
    values = {
        "float.tif": np.ones((8, 8), np.float32),
        "deep.tif": np.full((8, 8), 70_000, np.int32),
        "narrow.png": np.zeros((8, 3), np.uint8),
        "grey.png": np.full((8, 8), 65_535, np.uint16),
    }
    for name, pixels in values.items():
        Image.fromarray(pixels).save(tmp_path / name)
    for name in ("float.tif", "deep.tif", "narrow.png"):
        with pytest.raises(ValueError, match=name):
            read_pixels(tmp_path / name)
    assert (read_pixels(tmp_path / "grey.png") == 255).all()
