"""Every decoder, format and orientation gives the same upright RGB."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from unchoke.pixels import image as decode
from unchoke.pixels.image import (
    DecodeError,
    decode_image,
    read_image,
)


def smooth_picture(height: int = 48, width: int = 64) -> np.ndarray:
    """Left red, right blue, green growing downwards: any swap of channels or axes shows."""
    rows = np.linspace(0, 200, height)[:, None]
    columns = np.linspace(0, 255, width)[None, :]
    picture = np.stack([255 - columns + 0 * rows, rows + 0 * columns, columns + 0 * rows], axis=2)
    return picture.astype(np.uint8)


def encoded(picture: np.ndarray, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, kind, **options)
    return buffer.getvalue()


def far(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(left.astype(int) - right.astype(int)).mean())


def test_libjpeg_turbo_and_pillow_agree_on_rgb() -> None:
    data = encoded(smooth_picture(), "JPEG", quality=95)
    turbo = decode._decode_turbo(data, None)
    assert turbo is not None
    assert far(turbo, decode._decode_pillow(data, None)) < 1.0
    assert far(turbo, smooth_picture()) < 4.0


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP", "GIF"])
def test_other_formats_come_out_as_the_same_rgb(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    tolerance = 12.0 if kind == "GIF" else 0.5  # a palette of 256 colours
    assert far(decode_image(encoded(smooth_picture(), kind, **options)), smooth_picture()) < tolerance


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone_as_pillow_undoes_it(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(smooth_picture(), "JPEG", quality=95, exif=exif.tobytes())
    ours = decode_image(data)
    theirs = decode._decode_pillow(data, None)
    assert ours.shape == theirs.shape
    assert far(ours, theirs) < 1.0


def test_cmyk_grey_alpha_and_palette_become_rgb() -> None:
    picture = Image.fromarray(smooth_picture())
    for mode, kind in [("CMYK", "JPEG"), ("L", "JPEG"), ("L", "PNG"), ("LA", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("1", "PNG")]:
        buffer = io.BytesIO()
        picture.convert(mode).save(buffer, kind)
        pixels = decode_image(buffer.getvalue())
        assert pixels.shape == (48, 64, 3) and pixels.dtype == np.uint8, (mode, kind)
        if mode in ("CMYK", "RGBA"):
            assert far(pixels, smooth_picture()) < 6.0, mode
        if mode == "L":
            assert (pixels[..., 0] == pixels[..., 1]).all()


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    deep = (np.linspace(0, 65535, 64)[None, :] + np.zeros((8, 1))).astype(np.uint16)
    buffer = io.BytesIO()
    Image.fromarray(deep).save(buffer, "PNG")
    pixels = decode_image(buffer.getvalue())
    assert pixels[0, 0, 0] == 0 and pixels[0, -1, 0] == 255
    assert 120 <= pixels[0, 32, 0] <= 136


def test_a_jpeg_shrinks_by_powers_of_two_but_still_covers() -> None:
    data = encoded(smooth_picture(480, 640), "JPEG")
    assert decode_image(data, cover_px=100).shape == (120, 160, 3)
    assert decode_image(data, cover_px=121).shape == (240, 320, 3)
    assert decode_image(data, cover_px=241).shape == (480, 640, 3)
    full = decode_image(data)[1::4, 1::4]
    assert far(decode_image(data, cover_px=100), full) < 6.0


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty"),
        (b"this is not a picture at all", "unreadable"),
        (encoded(smooth_picture(), "JPEG")[:-200], "truncated"),
        (encoded(smooth_picture(), "PNG")[:-60], "truncated"),
        (b"\xff\xd8\xff" + b"\x00" * 50, "unreadable"),
    ],
)
def test_a_bad_file_is_named_with_its_problem(tmp_path: Path, data: bytes, problem: str) -> None:
    file = tmp_path / "bad.jpg"
    file.write_bytes(data)
    with pytest.raises(DecodeError) as caught:
        read_image(str(file))
    assert caught.value.problem == problem
    assert caught.value.detail


def test_a_missing_file_and_a_folder_are_decode_errors_too(tmp_path: Path) -> None:
    with pytest.raises(DecodeError, match=r"^missing: "):
        read_image(str(tmp_path / "gone.jpg"))
    with pytest.raises(DecodeError, match=r"^unreadable: "):
        read_image(str(tmp_path))


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    header_only = simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8))
    place = header_only.index(b"\xff\xc0")
    bomb = bytearray(header_only)
    bomb[place + 5 : place + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(DecodeError, match=r"^bomb-sized: "):
        decode_image(bytes(bomb))


def test_postscript_refused_no_program_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, program = tmp_path / "asked", tmp_path / "gs"
    program.write_text(f"#!/bin/sh\necho $@ >> {asked}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    drawn = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%BeginProlog\n%%EndProlog\nshowpage\n%%EOF\n"
    with pytest.raises(DecodeError, match=r"^unreadable: PostScript"):
        decode_image(drawn)
    assert not asked.exists()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "GIF", "BMP", "DIB", "PPM", "JPEG2000", "MPO", "AVIF"])
def test_every_format_that_is_promised_is_read(kind: str) -> None:
    if kind not in {*decode.picture_formats(), "MPO"}:
        pytest.skip(f"this Pillow has no {kind}")
    assert decode_image(encoded(smooth_picture(), kind)).shape == smooth_picture().shape


def test_formats_that_are_not_promised_are_refused() -> None:
    for kind in ("ICO", "TGA", "PCX", "PDF", "EPS"):
        with pytest.raises(DecodeError, match=r"^unreadable: "):
            decode_image(encoded(smooth_picture(), kind))


def test_a_large_picture_is_held_no_more_often_than_it_must(tmp_path: Path) -> None:
    """A child, since a process never gives back the most memory it had: 9 megapixels are 27 MB of RGB, and 36 in Pillow."""
    Image.new("RGB", (3000, 3000)).save(tmp_path / "big.png")
    code = f"""
import resource
from PIL import ImageOps, PngImagePlugin
from unchoke.pixels.image import read_image
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak(); read_image({str(tmp_path / "big.png")!r}); print(peak() - before)
"""
    grown = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert grown < 110


def test_a_jpeg_with_a_harmless_flaw_still_decodes() -> None:
    data = encoded(smooth_picture(), "JPEG", quality=95)
    assert far(decode_image(data + b"trailing rubbish"), smooth_picture()) < 4.0


def test_the_error_crosses_process_boundaries() -> None:
    import pickle

    again = pickle.loads(pickle.dumps(DecodeError("truncated", "half of it")))
    assert (again.problem, again.detail) == ("truncated", "half of it")


def test_a_file_of_many_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.jpg").open("wb") as file:
        file.truncate(8_000_000_000)
    with pytest.raises(DecodeError, match=r"^bomb-sized: "):
        read_image(str(tmp_path / "large.jpg"))
