"""Bytes to network input: what each way of decoding and resizing costs, and what it does to the features.

Every way is compared with timm's own evaluation transform (Pillow) through the same float32 network: cosine of the features,
plain and after removing the mean. Small photos are the demo's; large ones are mosaics of nine of them, so that shrinking in the
DCT domain has something to shrink. Usage: python benches/bench_decode.py [FOLDER]
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from common import say, work_folder
from photos import demo_photos
from PIL import Image

from unchoke.features.agree import compare
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.features.engines import TorchEngine
from unchoke.pixels.image import decode_image
from unchoke.pixels.resize import fit_to_input

Way = Callable[[bytes], np.ndarray]


def plain(data: bytes) -> np.ndarray:
    from timm.data import create_transform

    transform = create_transform(input_size=(3, 224, 224), interpolation="bicubic", crop_pct=0.875, use_prefetcher=True)
    return np.asarray(transform(Image.open(io.BytesIO(data)).convert("RGB"))).transpose(1, 2, 0)


def pillow_crop(data: bytes) -> np.ndarray:
    """Only the centre is resized, in one step: the same filter, other sampling points."""
    image = Image.fromarray(simplejpeg.decode_jpeg(data))
    side = min(image.size) * 0.875
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return np.asarray(image.resize((224, 224), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side)))


def covering(encoder: Encoder, times: float | None) -> Way:
    preprocess = encoder.spec.preprocess
    cover_px = None if times is None else int(preprocess.resize_px * times)
    return lambda data: fit_to_input(decode_image(data, cover_px=cover_px), preprocess)


def mosaics(photos: list[bytes]) -> list[bytes]:
    made = []
    for start in range(0, len(photos) - 8, 9):
        tiles = [fit_square(data) for data in photos[start : start + 9]]
        rows = [np.concatenate(tiles[row : row + 3], axis=1) for row in (0, 3, 6)]
        made.append(simplejpeg.encode_jpeg(np.ascontiguousarray(np.concatenate(rows)), quality=90))
    return made


def fit_square(data: bytes) -> np.ndarray:
    return simplejpeg.decode_jpeg(data)[:348, :348]


def measure(ways: dict[str, Way], pictures: list[bytes], engine: TorchEngine) -> dict[str, dict[str, float]]:
    truth = engine.encode(np.stack([plain(data) for data in pictures]))
    found = {}
    for name, way in ways.items():
        way(pictures[0])
        started = time.perf_counter()
        pixels = np.stack([way(data) for data in pictures])
        each_ms = (time.perf_counter() - started) / len(pictures) * 1000
        agreement = compare(truth, engine.encode(pixels))
        found[name] = {
            "ms": round(each_ms, 2),
            "mean_cosine": round(agreement.mean_cosine, 5),
            "worst_centred": round(agreement.worst_centred, 5),
        }
    return found


def decode_ms(pictures: list[bytes], **options: int) -> float:
    started = time.perf_counter()
    for data in pictures:
        simplejpeg.decode_jpeg(data, **options)
    return round((time.perf_counter() - started) / len(pictures) * 1000, 2)


def main() -> None:
    files = sorted(demo_photos(Path(work_folder())).rglob("*.jpg"))[::6]
    small = [file.read_bytes() for file in files]
    large = mosaics(small)
    encoder = load_encoder()
    engine = TorchEngine(encoder, device=torch.device("cpu"))
    torch.set_num_threads(1)
    ways = {"plain": plain, "ours": covering(encoder, 2.0), "pillow, centre alone": pillow_crop}
    covers = {
        "full": covering(encoder, None),
        "twice the input": covering(encoder, 2.0),
        "just the input": covering(encoder, 1.0),
    }
    say(
        "decode",
        small_pictures=len(small),
        small=measure(ways, small, engine),
        decode_only_ms={"full": decode_ms(small), "six eighths": decode_ms(small, min_height=256, min_width=256)},
        large_pictures=len(large),
        large=measure(covers, large, engine),
    )


if __name__ == "__main__":
    main()
