"""Measures of real pictures, and what looks agree on."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageFilter

from unchoke.curation.photo_measures import NO_TIME, NUMBERS, measure_photo


def as_jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=92, **options)
    return buffer.getvalue()


def picture(seed: int = 0) -> Image.Image:
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (12, 12, 3), np.uint8)).resize((240, 240), Image.Resampling.BICUBIC)
    fine = random.integers(-30, 30, (240, 240, 3))
    return Image.fromarray(np.clip(np.asarray(coarse, np.int64) + fine, 0, 255).astype(np.uint8))


def number(data: bytes, name: str) -> float:
    return float(measure_photo(data).numbers[NUMBERS.index(name)])


def test_light_and_sharpness_follow_the_picture() -> None:
    plain, blurred = as_jpeg(picture()), as_jpeg(picture().filter(ImageFilter.GaussianBlur(6)))
    assert number(blurred, "sharpness") < 0.2 < number(plain, "sharpness")
    assert number(as_jpeg(Image.new("RGB", (90, 60), (9, 9, 9))), "commonest_share") > 0.99
    assert number(as_jpeg(picture().point(lambda value: value // 10)), "light_high") < 45 < number(plain, "light_high")


def test_time_place_and_camera_come_from_the_file() -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Maker", "Model 1"
    exif.get_ifd(0x8769)[0x9003] = "2024:05:01 10:00:30"
    gps = exif.get_ifd(0x8825)
    gps[1], gps[2], gps[3], gps[4] = "N", (48.0, 30.0, 0.0), "W", (2.0, 15.0, 0.0)
    found = measure_photo(as_jpeg(picture(), exif=exif))
    assert found.camera == "Maker Model 1"
    assert found.taken_s % 60 == 30
    assert np.allclose(found.place, (48.5, -2.25))
    assert measure_photo(as_jpeg(picture())).taken_s == NO_TIME
