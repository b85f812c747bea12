"""Small pictures as text."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from unchoke.runs.report.page import make_thumbnail, safe_thumbnail


@pytest.mark.parametrize("shape", [(300, 600, 3), (300, 600, 4), (300, 600, 1), (300, 600)])
def test_a_thumbnail_keeps_proportions_and_colour(shape: tuple[int, ...]) -> None:
    uri = make_thumbnail(np.full(shape, 200, np.uint8), side_px=100)
    picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert picture.size == (100, 50)
    assert picture.mode == "RGB"
    assert np.allclose(np.asarray(picture), 200, atol=4)
    assert safe_thumbnail(uri) == uri


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "data:image/svg+xml;base64,AAAA",
        "data:text/html;base64,AAAA",
        'data:image/png;base64,AAAA" onerror="alert(1)',
        "data:image/png;base64,AAAA\n",
        "data:image/png;base64,",
        "https://example.org/x.png",
        " data:image/png;base64,AAAA",
        7,
        None,
    ],
)
def test_anything_but_a_picture_is_refused(text: object) -> None:
    assert safe_thumbnail(text) is None
