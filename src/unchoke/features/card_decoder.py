"""JPEGs decoded and resized on a card: what `decode_image` and `fit_to_input` do on the CPU, by nvJPEG and the card's arithmetic.

In: whole files as bytes, among them pictures that are inputs already. Out: uint8 inputs of the network on the device, in order,
and the reasons of those that neither the card nor the CPU could decode, by their places. Whether its features agree with those of
the CPU's decoder is measured before it is used (`choose_decoder.py`); features made this way have a fingerprint of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import interpolate

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.machine.backend import device_free_bytes, send
from unchoke.pixels.image import DecodeError, Pixels, decode_image, decode_stored
from unchoke.pixels.resize import Preprocess, centre_offset, fit_to_input

_BYTES_PER_PIXEL = 60
"""While it is resized: three channels as bytes and as float32, before and after each of two passes."""
_MOST_PIXELS, _FEWEST_PIXELS = 64_000_000, 4_000_000
"""How many pixels are decoded at once: enough to keep the card busy, and no more."""


@dataclass(frozen=True, eq=False)
class EncodedPicture:
    """A file's bytes. `for_card`: it is a JPEG that libjpeg-turbo decodes without complaint, in colours nvJPEG knows.

    `height` and `width` are those of its rows and columns, before it is turned by its EXIF `orientation`.
    """

    data: memoryview | bytes
    for_card: bool
    height: int = 0
    width: int = 0
    orientation: int = 1


class CardDecoder:
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

    def __call__(self, files: Sequence[EncodedPicture | Pixels]) -> tuple[torch.Tensor, dict[int, str]]:
        side = self._preprocess.size_px
        out = torch.zeros((len(files), side, side, 3), dtype=torch.uint8, device=self.device)
        failed: dict[int, str] = {}
        encoded = {place: file for place, file in enumerate(files) if isinstance(file, EncodedPicture)}
        ready = {place: file for place, file in enumerate(files) if not isinstance(file, EncodedPicture)}
        for places in self._parts(encoded):
            by_size: dict[tuple[int, ...], list[int]] = defaultdict(list)
            images = self._on_card([encoded[place] for place in places])
            for number, image in enumerate(images):
                by_size[tuple(image.shape)].append(number)
            for numbers in by_size.values():
                inputs = resize_on_card(torch.stack([images[number] for number in numbers]), self._preprocess)
                out[self._index([places[number] for number in numbers])] = inputs
        for place, file in encoded.items():
            if not file.for_card:
                try:
                    ready[place] = fit_to_input(decode_image(bytes(file.data)), self._preprocess)
                except DecodeError as error:
                    failed[place] = str(error)
        if ready:
            pixels = torch.from_numpy(np.stack(list(ready.values())))
            out[self._index(list(ready))] = pixels.to(self.device)
        return out, failed

    def _parts(self, encoded: dict[int, EncodedPicture]) -> Iterator[list[int]]:
        """The places of files for the card, so many at once as their pixels allow."""
        places: list[int] = []
        num_pixels = 0
        for place, file in encoded.items():
            if not file.for_card:
                continue
            if places and num_pixels + file.height * file.width > self._pixels_at_once:
                yield places
                places, num_pixels = [], 0
            places.append(place)
            num_pixels += file.height * file.width
        if places:
            yield places

    def _on_card(self, files: list[EncodedPicture]) -> list[torch.Tensor]:
        """Upright pictures as nvJPEG decodes them, 3 × height × width; one it refuses is decoded here."""
        try:
            images = self._decode([_tensor(file.data) for file in files])
        except RuntimeError:
            images = [self._one(file) for file in files]
        return [_turned(image, file.orientation) for image, file in zip(images, files, strict=True)]

    def _one(self, file: EncodedPicture) -> torch.Tensor:
        try:
            return self._decode([_tensor(file.data)])[0]
        except RuntimeError:  # a kind of JPEG the card does not know
            return torch.from_numpy(decode_stored(bytes(file.data))).permute(2, 0, 1).to(self.device)

    def _index(self, places: list[int]) -> torch.Tensor:
        return send(torch.tensor(places), self.device)


def _tensor(data: memoryview | bytes) -> torch.Tensor:
    writable = isinstance(data, memoryview) and not data.readonly
    return torch.frombuffer(data if writable else bytearray(data), dtype=torch.uint8)


def _turned(image_chw: torch.Tensor, orientation: int) -> torch.Tensor:
    """Upright, by the table of EXIF: 2 mirrored, 3 half-turn, 4 flipped, 5–8 with axes swapped."""
    if orientation >= 5:
        image_chw = image_chw.transpose(1, 2)
    flips = {2: (2,), 3: (1, 2), 4: (1,), 6: (2,), 7: (1, 2), 8: (1,)}.get(orientation)
    return image_chw.flip(flips) if flips else image_chw


def resize_on_card(images_nchw: torch.Tensor, preprocess: Preprocess) -> torch.Tensor:
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
