"""JPEGs decoded and resized on a GPU: what `decode_image` and `fit_to_input` do on the CPU, by nvJPEG and the GPU's arithmetic.

In: whole files as bytes. Out: uint8 inputs of the network on the device, in order, and the reasons of those that neither the GPU
nor the CPU could decode, by their places. It is used only if its features agree with those of the CPU's decoder on the user's own
photos, and only if it is faster; its features have a fingerprint of their own. The choice is kept with the engine's, so that a
resumed run decodes the same way.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import cycle, islice

import numpy as np
import torch
from torch.nn.functional import interpolate

from unchoke.core.choices import Choice
from unchoke.core.fingerprint import hash_int
from unchoke.core.tensors import first_line
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.agree import USUAL, compare
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.extractor import PictureReader
from unchoke.features.photo_loader import EncodedPicture, FileReader
from unchoke.features.recipe import CARD, PictureRecipe
from unchoke.machine.backend import decodes_jpegs, device_free_bytes, send, synchronize
from unchoke.pixels.image import DecodeError, decode_image, decode_stored
from unchoke.pixels.resize import Preprocess, centre_offset, fit_to_input

_BYTES_PER_PIXEL = 60
"""While it is resized: three channels as bytes and as float32, before and after each of two passes."""
_MOST_PIXELS, _FEWEST_PIXELS = 64_000_000, 4_000_000
"""How many pixels are decoded at once: enough to keep the GPU busy, and no more."""
_COMPARED = 32
_REACHED = 0.6
"""What many loader processes reach of so many times one alone."""
_LEAST_SHARE = 0.8
"""Of the photos, for a GPU to be worth it: the others are decoded by the thread that feeds it."""


class GpuDecoder:
    """`decoder(files)`: inputs of the network on `device`, and the reasons of those that failed by their places."""

    def __init__(self, preprocess: Preprocess, device: torch.device) -> None:
        prepare_torchvision()
        from torchvision.io import ImageReadMode, decode_jpeg

        self._preprocess, self.device = preprocess, device
        self._decode: Callable[[list[torch.Tensor]], list[torch.Tensor]] = lambda files: decode_jpeg(
            files, mode=ImageReadMode.RGB, device=device
        )
        affordable = device_free_bytes(device) // 4 // _BYTES_PER_PIXEL
        self._pixels_at_once = max(_FEWEST_PIXELS, min(_MOST_PIXELS, affordable))

    def __call__(self, files: Sequence[EncodedPicture]) -> tuple[torch.Tensor, dict[int, str]]:
        side = self._preprocess.size_px
        out = torch.zeros((len(files), side, side, 3), dtype=torch.uint8, device=self.device)
        for places in self._parts(files):
            by_size: dict[tuple[int, ...], list[int]] = defaultdict(list)
            images = self._on_gpu([files[place] for place in places])
            for number, image in enumerate(images):
                by_size[tuple(image.shape)].append(number)
            for numbers in by_size.values():
                inputs = resize_on_gpu(torch.stack([images[number] for number in numbers]), self._preprocess)
                out[self._index([places[number] for number in numbers])] = inputs
        failed, ready = dict[int, str](), dict[int, torch.Tensor]()
        for place, file in enumerate(files):
            if not file.for_gpu:
                try:
                    ready[place] = torch.from_numpy(fit_to_input(decode_image(bytes(file.data)), self._preprocess))
                except DecodeError as error:
                    failed[place] = str(error)
        if ready:
            out[self._index(list(ready))] = torch.stack(list(ready.values())).to(self.device)
        return out, failed

    def _parts(self, files: Sequence[EncodedPicture]) -> Iterator[list[int]]:
        """The places of files for the GPU, so many at once as their pixels allow."""
        places: list[int] = []
        num_pixels = 0
        for place, file in enumerate(files):
            if file.for_gpu:
                if places and num_pixels + file.height * file.width > self._pixels_at_once:
                    yield places
                    places, num_pixels = [], 0
                places.append(place)
                num_pixels += file.height * file.width
        if places:
            yield places

    def _on_gpu(self, files: list[EncodedPicture]) -> list[torch.Tensor]:
        """Upright pictures as nvJPEG decodes them, 3 × height × width; one it refuses is decoded here."""
        try:
            images = self._decode([_tensor(file.data) for file in files])
        except RuntimeError:
            images = [self._one(file) for file in files]
        return [_turned(image, file.orientation) for image, file in zip(images, files, strict=True)]

    def _one(self, file: EncodedPicture) -> torch.Tensor:
        try:
            return self._decode([_tensor(file.data)])[0]
        except RuntimeError:  # a kind of JPEG the GPU does not know
            return torch.from_numpy(decode_stored(bytes(file.data))).permute(2, 0, 1).to(self.device)

    def _index(self, places: list[int]) -> torch.Tensor:
        return send(torch.tensor(places), self.device)


def _tensor(data: bytearray | bytes) -> torch.Tensor:
    return torch.frombuffer(data if isinstance(data, bytearray) else bytearray(data), dtype=torch.uint8)


def _turned(image_chw: torch.Tensor, orientation: int) -> torch.Tensor:
    """Upright, by the table of EXIF: 2 mirrored, 3 half-turn, 4 flipped, 5–8 with axes swapped."""
    if orientation >= 5:
        image_chw = image_chw.transpose(1, 2)
    flips = {2: (2,), 3: (1, 2), 4: (1,), 6: (2,), 7: (1, 2), 8: (1,)}.get(orientation)
    return image_chw.flip(flips) if flips else image_chw


def resize_on_gpu(images_nchw: torch.Tensor, preprocess: Preprocess) -> torch.Tensor:
    """uint8 pictures of one size to inputs, n × side × side × RGB: across, then down, rounded in between as on the CPU."""
    height, width = images_nchw.shape[2:]
    short, mode, side = preprocess.resize_px, preprocess.interpolation, preprocess.size_px
    new_height, new_width = (short, int(short * width / height)) if height <= width else (int(short * height / width), short)
    pixels = images_nchw.float()
    if width != new_width:
        pixels = _rounded_(interpolate(pixels, size=(height, new_width), mode=mode, antialias=True))
    if height != new_height:
        pixels = _rounded_(interpolate(pixels, size=(new_height, new_width), mode=mode, antialias=True))
    top, left = centre_offset(new_height, side), centre_offset(new_width, side)
    return pixels[:, :, top : top + side, left : left + side].permute(0, 2, 3, 1).to(torch.uint8)


def _rounded_(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.round_().clamp_(0, 255)


def choose_decoder(paths: Mapping[str, str], recipe: PictureRecipe, engine: FrozenEngine, *, readers: int) -> Choice | None:
    """The decoder: the GPU's ("card") or the CPU's ("cpu").

    None where there is no such GPU, and for views and tiles, which are cut out of a picture before they are resized.
    """
    plain = recipe.tiles.is_whole and not recipe.num_augmented and recipe.encoder.preprocess.is_plain
    if not (plain and isinstance(engine, TorchEngine) and decodes_jpegs(engine.device)):
        return None
    chosen = sorted(paths, key=lambda item_id: hash_int("sample", item_id))[:_COMPARED]
    files = {one: found for one in chosen if isinstance(found := FileReader(paths)(one, ""), EncodedPicture) and found.for_gpu}
    if len(files) < max(1, _LEAST_SHARE * len(chosen)):
        return Choice("decoder", "cpu", f"{len(files)} of {len(chosen)} of your pictures are JPEGs that a GPU decodes")
    read, began_s = PictureReader(recipe, paths), time.perf_counter()
    shown = {one: inputs[0] for one in files if not isinstance(inputs := read(one, ""), str)}
    cpu_rate = readers * len(shown) / (time.perf_counter() - began_s)
    try:
        decoder = GpuDecoder(recipe.encoder.preprocess, engine.device)
        decoded, _ = decoder([files[one] for one in shown])  # the first batch loads the library
        batch = list(islice(cycle(files[one] for one in shown), engine.batch))
        decoder(batch)
        began_s = time.perf_counter()
        decoder(batch)
        synchronize(engine.device)
    except (RuntimeError, ImportError) as error:
        return Choice("decoder", "cpu", f"the GPU does not decode here: {first_line(error)}")
    rate = len(batch) / (time.perf_counter() - began_s)
    agreement = compare(engine.encode(np.stack(list(shown.values()))), engine.encode(decoded.cpu().numpy()))
    figures = {name: round(value, 5) for name, value in asdict(agreement).items()}
    evidence = {**figures, "card_images_per_s": round(rate, 1), "cpu_images_per_s": round(cpu_rate, 1)}
    words, num = agreement.in_words(USUAL), len(shown)
    if not agreement.within(USUAL):
        return Choice("decoder", "cpu", f"the GPU's disagrees on {num} of your pictures: {words}", evidence)
    if rate < _REACHED * cpu_rate:
        return Choice("decoder", "cpu", f"{rate:,.0f}/s by the GPU, up to {cpu_rate:,.0f}/s by all loader processes", evidence)
    reason = f"agrees with the CPU's on {num} of your pictures ({words}): {rate:,.0f}/s, against at most {cpu_rate:,.0f}/s"
    return Choice("decoder", CARD, reason, evidence)
