"""Pictures: pixels decoded, from which file, and what was done to them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter

from unchoke.chokes.watch import decoding
from unchoke.chokes.watch.hooks import Hook
from unchoke.chokes.watch.recorder import Recorder


@pytest.fixture
def recorder(hooks_made: list[Hook]) -> Recorder:
    made = Recorder()
    decoding.install(made)
    return made


@pytest.fixture
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8))


def rows(recorder: Recorder, kind: str) -> list[dict[str, Any]]:
    return [row for row in recorder.to_dict()["calls"] if row["kind"] == kind]


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp", "jp2", "gif", "bmp"])
def test_a_picture_is_decoded_once_however_often_it_is_used(
    recorder: Recorder, picture: Image.Image, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"one.{suffix}"
    picture.save(path)
    with Image.open(path) as opened:
        opened.load()
        opened.load()
        opened.convert("RGB").getpixel((0, 0))
    (row,) = rows(recorder, "decode")
    assert (row["count"], row["amount"], row["example"]) == (1, 160 * 120, str(path))


def test_a_draft_counts_the_pixels_that_were_decoded(recorder: Recorder, picture: Image.Image, tmp_path: Path) -> None:
    path = tmp_path / "one.jpg"
    picture.save(path)
    opened = Image.open(path)
    opened.draft("RGB", (40, 30))
    opened.resize((20, 15))
    (row,) = rows(recorder, "decode")
    assert row["amount"] == 40 * 30
    assert row["detail"] == {"format": "JPEG", "width_px": 160, "height_px": 120, "divisor": 4}
    (resized,) = rows(recorder, "resize")
    assert resized["amount"] == 20 * 15
    assert resized["detail"]["from_px"] == [40, 30]


def test_files_and_bytes_are_told_apart_by_what_is_in_them(recorder: Recorder, picture: Image.Image, tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    picture.save(path)
    for number in range(4):
        with path.open("rb") as file:
            (Image.open(file) if number % 2 else Image.open(io.BytesIO(file.read()))).load()
    (row,) = rows(recorder, "decode")
    assert (row["count"], row["distinct"]) == (4, 2)


def test_transforms_count_the_pixels_they_work_on(recorder: Recorder, picture: Image.Image) -> None:
    picture.filter(ImageFilter.GaussianBlur(2))
    ImageEnhance.Brightness(picture).enhance(1.2)
    np.asarray(picture.crop((0, 0, 10, 10)))
    assert {row["detail"]["name"] for row in rows(recorder, "transform")} == {"filter", "enhance"}
    assert rows(recorder, "transform")[0]["amount"] == 160 * 120
    assert rows(recorder, "crop")[0]["amount"] == 100
    assert rows(recorder, "to_array")[0]["amount"] == 100


def test_opencv_and_simplejpeg_are_watched_too(recorder: Recorder, picture: Image.Image, tmp_path: Path) -> None:
    import cv2
    import simplejpeg

    path = tmp_path / "one.jpg"
    picture.save(path)
    assert cv2.imread(str(tmp_path / "missing.jpg")) is None
    array = cv2.resize(cv2.imread(str(path)), (32, 24))
    cv2.GaussianBlur(array, (3, 3), 1)
    simplejpeg.decode_jpeg(path.read_bytes())
    cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    decoded = rows(recorder, "decode")
    assert [row["amount"] for row in decoded] == [160 * 120] * 3
    assert decoded[0]["example"] == str(path)
    assert decoded[1]["example"] == decoded[2]["example"]
    assert rows(recorder, "resize")[0]["amount"] == 32 * 24
    assert rows(recorder, "transform")[0]["amount"] == 32 * 24


def test_a_chain_of_torchvision_transforms_is_one_call(recorder: Recorder, picture: Image.Image) -> None:
    from unchoke.core.torchvision_ready import prepare_torchvision

    prepare_torchvision()
    from torchvision import transforms

    transforms.Compose([transforms.Resize((24, 32)), transforms.ToTensor()])(picture)
    chain = [row for row in rows(recorder, "transform") if row["detail"]["name"] == "Compose"]
    assert chain[0]["amount"] == 160 * 120
    assert rows(recorder, "resize")[0]["amount"] == 24 * 32
