"""Decoding a large JPEG smaller must not change its features past the tolerance engines are held to."""

import io

import numpy as np
import torch
from PIL import Image

from unchoke.features.agree import USUAL, compare
from unchoke.features.encoders import load_encoder
from unchoke.features.engines import TorchEngine
from unchoke.pixels.image import decode_image
from unchoke.pixels.resize import fit_to_input
from unchoke.pixels.tile_grid import TilePlan, cover_px


def large_photo(seed: int) -> bytes:
    """Detail at every scale, as in a photo: noise of growing coarseness added up."""
    random = np.random.default_rng(seed)
    total = np.zeros((1200, 1600, 3))
    for cell_px in (2, 5, 13, 34, 89, 233):
        grid = random.normal(size=(1200 // cell_px + 2, 1600 // cell_px + 2, 3)) * cell_px**0.7
        planes = [np.asarray(Image.fromarray(grid[..., c].astype(np.float32)).resize((1600, 1200))) for c in range(3)]
        total += np.stack(planes, axis=2)
    scaled = (total - total.mean()) / total.std() * 50 + 128
    buffer = io.BytesIO()
    Image.fromarray(scaled.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def test_shrunk_decode_agrees_with_the_full_one() -> None:
    encoder = load_encoder()
    engine = TorchEngine(encoder, device=torch.device("cpu"))
    photos = [large_photo(seed) for seed in range(4)]
    cover = cover_px(TilePlan(), encoder.spec.preprocess)
    shrunk = [decode_image(data, cover_px=cover) for data in photos]
    assert all(image.shape == (600, 800, 3) for image in shrunk)
    inputs = [[fit_to_input(image, encoder.spec.preprocess) for image in side] for side in (map(decode_image, photos), shrunk)]
    assert compare(engine.encode(np.stack(inputs[0])), engine.encode(np.stack(inputs[1]))).within(USUAL)
