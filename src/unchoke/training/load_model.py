"""`load_model`: what a run trained as a torch module, from pixels to probabilities or values.

In: a run. Out: a `LoadedModel`: the network that `export` writes into files, with the resize, the normalisation and the
calibration inside, and methods that also decode files, as `predict` does. It runs in float32 by torch, wherever it is moved to.
Kinds of runs that no such network can be made of yet are refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.ahead import map_ahead
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.data.several_labels import label_cells
from unchoke.exports.whole_model import BlendAnswers, HeadAnswers, NetworkAnswers, PhotoModel
from unchoke.features.encoders import EncoderSpec
from unchoke.features.extractor import shown_cover_px
from unchoke.machine.backend import unshortened
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.pixels.image import DecodeError, Pixels, read_image, to_rgb
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.training.network.trained_network import TrainedNetwork
from unchoke.training.saved_models import SavedModel, load_models

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = str | Path | Image | Pixels

_BATCH = 32
"""Pictures of one size that go through the network together."""
_UNKNOWN = "not stated where they come from; look it up before you pass the model on"


@dataclass(frozen=True, eq=False)
class AssembledModel:
    """`cover_px`: the short side a JPEG keeps when it is decoded smaller, None where it is not; `least_px`: columns and rows that
    a photo must have; `weights`: whose they are."""

    model: PhotoModel
    names: tuple[str, ...]
    cover_px: int | None
    least_px: tuple[int, int]
    weights: tuple[dict[str, str], ...]
    thresholds: tuple[float, ...] = ()
    """Of several labels: the probability from which on each counts as given."""


def assemble(found: FoundRun, *, weights: Path | str | None = None) -> AssembledModel:
    """The run's model, on the CPU, in float32."""
    saved, blended = load_models(found, weights=weights)
    parts = [_answers(one) for one in saved]
    answers, kind, temperature = parts[0][0], saved[0].trained.kind, saved[0].temperature
    if blended is not None:
        kind, temperature = blended.kind, float(blended.extra["temperature"])
        shares = [one.share for one in blended.models]
        answers = BlendAnswers([part for part, _ in parts], shares, kind=kind)
    recipes = [one.recipe() for one in saved]
    covers = [shown_cover_px(recipe) for recipe in recipes]
    columns, rows = zip(*(recipe.tiles.least_px for recipe in recipes), strict=True)
    return AssembledModel(
        PhotoModel(answers, kind=kind, temperature=temperature),
        saved[0].trained.names,
        None if None in covers else max(cover for cover in covers if cover is not None),
        (max(columns), max(rows)),
        tuple({tuple(row.values()): row for _, row in parts}.values()),
        found.thresholds,
    )


def _answers(saved: SavedModel) -> tuple[nn.Module, dict[str, str]]:
    """A model from pixels to outputs, and whose pretrained weights it began with."""
    trained, spec, how = saved.trained, saved.spec, ""
    if isinstance(trained, TrainedNetwork):
        if trained.input_names:
            how = f"it takes columns of a table beside the photos ({', '.join(trained.input_names)})"
    elif trained.config.kind == "attention":
        how = "its attention head looks at views whose crops depend on the file's bytes"
    if saved.tiles.is_whole and not spec.preprocess.is_plain:
        how = f"{spec.name} wants {spec.preprocess.crop_mode} and {spec.preprocess.interpolation}, which is not built into files"
    if how:
        run = saved.found.record.run
        raise UsageError(
            f"{run} cannot be one network from pixels to answers yet",
            code="export-unsupported",
            why=how,
            try_=f"unchoke runs export {run} FOLDER, with which unchoke predicts on any machine",
        )
    if isinstance(trained, TrainedNetwork):
        network = trained.build(saved.cut)
        pretrained = network.suffix if saved.frozen is None else saved.frozen.module
        return NetworkAnswers(saved.frozen, network, spec.preprocess), describe_weights(pretrained, spec)
    assert saved.encoder is not None and saved.frozen is not None, "a head has an encoder"
    return HeadAnswers(saved.frozen, trained), describe_weights(saved.encoder.module, saved.encoder.spec)


def describe_weights(module: nn.Module, spec: EncoderSpec) -> dict[str, str]:
    """Whose pretrained weights a network began with, and under what licence, as timm or the package says it."""
    licence, package = _UNKNOWN, spec.weights_from.removeprefix("package ")
    known: Any = getattr(module, "pretrained_cfg", None) or {}
    if spec.weights_from.startswith("file "):
        pass
    elif known.get("license"):
        licence = f"{known['license']} (timm)"
    elif package != spec.weights_from:
        try:
            facts: Any = metadata.metadata(package.replace("_", "-"))
            stated = facts.get("License", "UNKNOWN")
        except metadata.PackageNotFoundError:
            stated = ""
        licence = _UNKNOWN if stated in ("UNKNOWN", "", None) else f"{stated} ({package})"
    return {"encoder": spec.name, "from": spec.weights_from, "sha256": spec.weights_sha256, "licence": licence}


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
        values = assembled.model.kind == "regression"
        self.classes: tuple[str, ...] = () if values else assembled.names
        self.targets: tuple[str, ...] = assembled.names if values else ()
        self.thresholds = assembled.thresholds
        self._cover_px, self._least_px = assembled.cover_px, assembled.least_px
        self.eval()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        answered: torch.Tensor = self.network(pixels)
        return answered

    def predict_proba(self, pictures: Picture | Sequence[Picture]) -> NDArray[np.float32]:
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
        return self._answer(pictures, self)

    def predict(self, pictures: Picture | Sequence[Picture]) -> NDArray[Any]:
        """The likeliest class of each picture; of several labels those it has, joined by `|`; or values, one for each target."""
        answers = self._answer(pictures, self)
        if self.thresholds:
            return np.array(label_cells(answers >= np.array(self.thresholds), self.classes))
        return np.array(self.classes)[answers.argmax(axis=1)] if self.classes else answers

    def embed(self, pictures: Picture | Sequence[Picture]) -> NDArray[np.float32]:
        """The features of each picture, (n, dim): what the last layer, or the head, looks at."""
        answers: Any = self.network.answers
        return self._answer(pictures, answers.embed)

    def _answer(self, pictures: Picture | Sequence[Picture], ask: Callable[[torch.Tensor], torch.Tensor]) -> NDArray[np.float32]:
        """A row for each picture; one picture alone gives one row."""
        alone = isinstance(pictures, str | Path) or hasattr(pictures, "convert") or getattr(pictures, "ndim", 4) == 3
        several: Any = [pictures] if alone else pictures
        device = next(self.buffers()).device
        decoded = map_ahead(self._read, several, threads=2, ahead=_BATCH)
        found = [np.empty((0, len(self.classes or self.targets)), np.float32)]
        with torch.inference_mode(), _evaluating(self), unshortened():
            for _, alike in groupby(decoded, key=lambda pixels: pixels.shape):  # those that follow each other in one size
                while batch := list(islice(alike, _BATCH)):
                    found.append(ask(torch.from_numpy(np.stack(batch)).to(device)).float().cpu().numpy())
        return np.concatenate(found[1:] or found)

    def _read(self, picture: Picture) -> Pixels:
        from PIL.Image import Image
        from PIL.ImageOps import exif_transpose

        try:
            if isinstance(picture, str | Path):
                pixels = read_image(str(picture), cover_px=self._cover_px)
            elif isinstance(picture, Image):
                pixels = np.array(to_rgb(exif_transpose(picture)))
            else:
                pixels = _checked(picture)
            height, width = pixels.shape[:2]
            if width < self._least_px[0] or height < self._least_px[1]:
                raise DecodeError("unreadable", f"{width}×{height} pixels are too few for its tiles")
        except DecodeError as error:
            name = picture if isinstance(picture, str | Path) else "a picture that was given"
            raise DataError(
                f"{name} cannot be read", code="unreadable-photos", why=str(error), try_="leave it out; nothing stands in for it"
            ) from error
        return pixels


def load_model(
    run: str | Path, *, weights: str | Path | None = None, device: str | None = None, out: str | Path | None = None
) -> LoadedModel:
    """The model of a run as a `torch.nn.Module`, from pixels to probabilities or values, with its preprocessing inside.

    Args:
        run: A run: exp_3, 3, latest, best, or the folder of one, exported or not.
        weights: The encoder's weights, where they are no longer found.
        device: Where to put it: cpu, cuda or mps (default cpu).
        out: Workspace folder (default unchoke-out).

    Returns:
        A module with `classes` (or `targets`), `predict_proba`, `predict` and `embed`, for files, PIL images or arrays, one or
        several.

    Example:
        >>> model = unchoke.load_model("best", out="work")
        >>> str(model.predict(["photos/apple/apple 00.jpg"])[0])
        'apple'
    """
    found = find_run(run, out=out)
    found.refuse_masks("unchoke.load_model")
    where = choose_policy(detect_machine(), device=device or "cpu").device
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
