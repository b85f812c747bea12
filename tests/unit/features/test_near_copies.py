"""Copies of pictures are found however they were changed; other pictures are not, also where all of them look alike."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from unchoke.features.near_copies import find_pairs, make_look
from unchoke.features.nearest import NearestRows


def picture(seed: int) -> Image.Image:
    random = np.random.default_rng(seed)
    layers = [random.integers(0, 256, (side, side, 3), np.uint8) for side in (6, 12, 24)]
    shown = [np.asarray(Image.fromarray(one).resize((240, 240), Image.Resampling.BICUBIC), np.float32) for one in layers]
    return Image.fromarray(np.mean(shown, axis=0).astype(np.uint8))


def recompressed(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=25)
    return Image.open(buffer).convert("RGB")


CHANGES = {
    "resized": lambda image: image.resize((80, 80)),
    "recompressed": recompressed,
    "brighter": lambda image: image.point(lambda value: value * 0.7),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "cropped": lambda image: image.crop((9, 3, 231, 225)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found_and_nothing_else(change: str) -> None:
    looks = np.stack([make_look(np.asarray(one)) for one in [*map(picture, range(30)), CHANGES[change](picture(7))]])
    near = NearestRows(np.full((31, 1), 7), np.array([[0.1]] * 30 + [[0.9]], np.float32))
    near.rows[7] = 30
    found = find_pairs(looks, [""] * 31, near)
    assert found.rows.tolist() == [[7, 30]]
    assert found.looks[0] > 0.85


def test_pictures_in_the_same_frame_are_no_copies() -> None:
    frame = np.zeros((240, 240, 3), np.float32)
    frame[::40], frame[:, ::60] = 150, 150
    shown = [np.clip(frame + 0.25 * np.asarray(picture(seed), np.float32), 0, 255).astype(np.uint8) for seed in range(60)]
    looks = np.stack([make_look(one) for one in shown])
    near = NearestRows((np.arange(60)[:, None] + 1) % 60, np.full((60, 1), 0.95, np.float32))
    assert not len(find_pairs(looks, [""] * 60, near).rows)


def test_same_bytes_are_copies_and_blank_pictures_are_not() -> None:
    looks = np.zeros((4, 64, 64), np.uint8)
    assert find_pairs(looks, ["a", "b", "a", ""], None).rows.tolist() == [[0, 2]]
