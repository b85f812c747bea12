"""The script that is shipped beside a model."""

from __future__ import annotations

import pytest

from unchoke.portable.example_script import render_script


@pytest.mark.parametrize("format_", ["onnx", "openvino", "pt2"])
def test_it_is_a_program_that_opens_pictures_alone(format_: str) -> None:
    script = render_script(format_, "probabilities")  # type: ignore[arg-type]
    compile(script, "predict.py", "exec")
    assert script.count("Image.open(") == script.count("Image.open(path, formats=FORMATS)") == 1
    assert '"JPEG PNG ' in script
    assert "EPS" not in script
