"""`load_model`: what a run trained as a torch module, from pixels to probabilities or values.

In: a run. Out: a `LoadedModel`: the network that `export` writes into files, with the resize, the normalisation and the
calibration inside, and methods that also decode files, as `predict` does. It runs in float32 by torch, wherever it is moved to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.ahead import map_ahead
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.machine.backend import unshortened
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.pixels.image import DecodeError, Pixels, read_image, to_rgb
from unchoke.runs.lookup import find_run
from unchoke.training.assemble_model import AssembledModel, assemble

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = str | Path | Image | Pixels

_BATCH = 32
"""Pictures of one size that go through the network together."""


class LoadedModel(nn.Module):
    """A run's model. Called with pixels, (n, height, width, RGB) in uint8 of any size, it gives probabilities or values.

    It is frozen and in evaluation mode; `requires_grad_(True)` makes it trainable, and `predict_proba` answers with the weights
    it has by then, in evaluation mode whatever mode it is in. `classes` are the columns of its probabilities, `targets` those of
    its values: one of them is empty.
    """

    def __init__(self, assembled: AssembledModel, run: str) -> None:
        super().__init__()
        self.run = run
        self.network = assembled.model
        self.classes: tuple[str, ...] = assembled.names if assembled.model.is_class else ()
        self.targets: tuple[str, ...] = () if assembled.model.is_class else assembled.names
        self._cover_px, self._least_px = assembled.cover_px, assembled.least_px
        self.eval()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        answered: torch.Tensor = self.network(pixels)
        return answered

    def predict_proba(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """The probability of every class for each picture: files, PIL images, or uint8 arrays (height, width, RGB).

        A large JPEG file is decoded at a half, a quarter or an eighth, as in training; an image or array is seen as it is.
        """
        if not self.classes:
            raise UsageError(
                f"{self.run} predicts values, which have no probabilities",
                code="no-probabilities",
                why=f"it was trained on {list_some(self.targets)}",
                try_="model.predict(pictures)",
            )
        return self._answer(pictures)

    def predict(self, pictures: Sequence[Picture]) -> NDArray[Any]:
        """The likeliest class of each picture, by name; or its values, a column for each of `targets`."""
        answers = self._answer(pictures)
        return np.array(self.classes)[answers.argmax(axis=1)] if self.classes else answers

    def _answer(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        _refuse_single(pictures)
        device = next(self.buffers()).device
        decoded = map_ahead(self._read, pictures, threads=2, ahead=_BATCH)
        none = np.empty((0, len(self.classes or self.targets)), np.float32)
        with torch.inference_mode(), _evaluating(self), unshortened():
            found = [self(torch.from_numpy(np.stack(batch)).to(device)).float().cpu().numpy() for batch in _batches(decoded)]
        return np.concatenate([none, *found])

    def _read(self, picture: Picture) -> Pixels:
        from PIL.Image import Image
        from PIL.ImageOps import exif_transpose

        try:
            if isinstance(picture, str | Path):
                return self._large(read_image(str(picture), cover_px=self._cover_px))
            if isinstance(picture, Image):
                return self._large(np.array(to_rgb(exif_transpose(picture))))
            return self._large(_checked(picture))
        except DecodeError as error:
            name = picture if isinstance(picture, str | Path) else "a picture that was given"
            raise DataError(
                f"{name} cannot be read", code="unreadable-photos", why=str(error), try_="leave it out; nothing stands in for it"
            ) from error

    def _large(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        if width < self._least_px[0] or height < self._least_px[1]:
            raise DecodeError("unreadable", f"{width}×{height} pixels are too few for its tiles")
        return pixels


def load_model(
    run: str | Path, *, weights: str | Path | None = None, device: str | None = None, out: str | Path | None = None
) -> LoadedModel:
    """The model of a run of photos, ready to answer."""
    found = find_run(run, out=out)
    found.refuse_masks("unchoke.load_model")
    where = choose_policy(detect_machine(), overrides={"device": device or "cpu"}).device
    return LoadedModel(assemble(found, weights=weights), found.record.run).to(where)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Every part in evaluation mode; afterwards each in the mode it had."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _refuse_single(pictures: object) -> None:
    single = isinstance(pictures, str | Path) or hasattr(pictures, "convert") or getattr(pictures, "ndim", 4) == 3
    if single:
        raise UsageError(
            "one picture was given",
            code="single-picture",
            why="answers are rows, one for each of several",
            try_="model.predict([picture])",
        )


def _checked(array: object) -> Pixels:
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape[2:] != (3,) or not array.size:
        what = f"an array of {array.dtype} {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise UsageError(
            f"{what} is no picture",
            code="not-a-picture",
            why="pictures are uint8 (height, width, 3), red first, as they were decoded: the model resizes and normalises them",
            try_="give the pixels as they are in the file, before any transform",
        )
    return np.ascontiguousarray(array)


def _batches(pictures: Iterator[Pixels]) -> Iterator[list[Pixels]]:
    """Pictures that follow one another and have one size, a few at a time."""
    for _, alike in groupby(pictures, key=lambda picture: picture.shape):
        batch: list[Pixels] = []
        for picture in alike:
            batch.append(picture)
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch
