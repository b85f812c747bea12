"""What a GPU does to a JPEG, with libjpeg-turbo in nvJPEG's place: the CPU's own pixels within rounding, upright, in order."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unchoke.features.gpu_decoder import GpuDecoder, resize_on_gpu
from unchoke.features.photo_loader import EncodedPicture, examine
from unchoke.pixels.image import decode_image, jpeg_shape
from unchoke.pixels.resize import Preprocess, fit_to_input

PREPROCESS = Preprocess(96, 0.875, "center", "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def decoder(*, pixels_at_once: int = 10**9, refuses: bool = False) -> GpuDecoder:
    import simplejpeg

    def decode(files: list[torch.Tensor]) -> list[torch.Tensor]:
        if refuses:
            raise RuntimeError("nvjpegDecode failed")
        return [torch.from_numpy(simplejpeg.decode_jpeg(file.numpy().tobytes(), "RGB")).permute(2, 0, 1) for file in files]

    made = GpuDecoder.__new__(GpuDecoder)
    made._preprocess, made.device, made._pixels_at_once, made._decode = PREPROCESS, torch.device("cpu"), pixels_at_once, decode
    return made


def jpeg(width: int, height: int, *, orientation: int = 1, mode: str = "RGB", seed: int = 0) -> bytes:
    ramp = np.random.default_rng(seed).integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), np.uint8)
    image = Image.fromarray(ramp).resize((width, height), Image.Resampling.BICUBIC).convert(mode)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92, exif=exif)
    return file.getvalue()


def encoded(data: bytes) -> EncodedPicture:
    return EncodedPicture(data, *examine(data))


def on_cpu(data: bytes) -> np.ndarray:
    return fit_to_input(decode_image(data), PREPROCESS)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("width", "height"), [(300, 200), (200, 300), (109, 109), (109, 400), (90, 60)])
def test_pixels_equal_the_cpus_within_rounding(interpolation: str, width: int, height: int) -> None:
    preprocess = Preprocess(96, 0.875, "center", interpolation, (0.5,) * 3, (0.5,) * 3)
    image = decode_image(jpeg(width, height))
    ours = resize_on_gpu(torch.from_numpy(image).permute(2, 0, 1)[None], preprocess)[0].numpy()
    theirs = fit_to_input(image, preprocess)
    difference = np.abs(ours.astype(int) - theirs)
    assert difference.max() <= 2
    assert difference.mean() < 0.1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photo_comes_out_upright(orientation: int) -> None:
    data = jpeg(300, 200, orientation=orientation)
    (ours,), failed = decoder()([encoded(data)])
    assert not failed
    assert np.abs(ours.numpy().astype(int) - on_cpu(data)).mean() < 0.1


@pytest.mark.parametrize("pixels_at_once", [10**9, 70_000, 1])
def test_order_is_kept_whatever_sizes_come_together(pixels_at_once: int) -> None:
    files = [jpeg(300, 200, seed=1), jpeg(200, 300, seed=2), jpeg(300, 200, seed=3), jpeg(150, 150, mode="L", seed=4)]
    png = io.BytesIO()
    Image.fromarray(decode_image(files[0])).save(png, "PNG")
    mixed = [encoded(files[0]), encoded(png.getvalue()), *map(encoded, files[1:])]
    ours, failed = decoder(pixels_at_once=pixels_at_once)(mixed)
    theirs = [on_cpu(data) for data in (files[0], files[0], *files[1:])]
    assert not failed
    assert [int(np.abs(one.numpy().astype(int) - other).mean() > 0.2) for one, other in zip(ours, theirs, strict=True)] == [0] * 5


def test_what_the_gpu_refuses_is_decoded_by_the_cpu() -> None:
    data = jpeg(300, 200)
    (ours,), failed = decoder(refuses=True)([encoded(data)])
    assert not failed
    assert np.abs(ours.numpy().astype(int) - on_cpu(data)).mean() < 0.1


def test_undecodable_file_is_named_the_others_stay(tmp_path: Path) -> None:
    sound, cut_off = jpeg(300, 200), jpeg(300, 200)[:-300]
    ours, failed = decoder()([encoded(sound), encoded(cut_off)])
    assert list(failed) == [1]
    assert failed[1].startswith("truncated:")
    assert np.abs(ours[0].numpy().astype(int) - on_cpu(sound)).mean() < 0.1


def test_only_whole_jpegs_in_common_colours_are_for_a_gpu() -> None:
    whole = jpeg(64, 48)
    assert jpeg_shape(whole) == (48, 64)
    assert jpeg_shape(jpeg(64, 48, mode="L")) == (48, 64)
    assert jpeg_shape(jpeg(64, 48, mode="CMYK")) is None
    assert jpeg_shape(whole[:-40]) is None
    damaged = bytearray(whole)
    damaged[len(damaged) // 2 : len(damaged) // 2 + 8] = b"\xff\xd9" * 4
    assert jpeg_shape(bytes(damaged)) is None
    assert jpeg_shape(b"\x89PNG not a jpeg") is None
