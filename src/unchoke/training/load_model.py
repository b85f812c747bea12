"""`load_model`: what a run trained as a torch module, from pixels to probabilities or values.

In: a run. Out: a `LoadedModel`: the network that `export` writes into files, with the resize, the normalisation and the
calibration inside, and methods that also decode files, as `predict` does. It runs in float32 by torch, wherever it is moved to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.ahead import map_ahead
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.exports.whole_model import BlendAnswers, HeadAnswers, NetworkAnswers, PhotoModel
from unchoke.features.cut import END, cut_network, frozen_part
from unchoke.features.encoders import Encoder, EncoderSpec
from unchoke.features.extractor import shown_cover_px
from unchoke.features.recipe import TWICE, PictureRecipe
from unchoke.machine.backend import unshortened
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.pixels.image import DecodeError, Pixels, read_image, to_rgb
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.training.export_run import encoder_of
from unchoke.training.heads.heads import load_head
from unchoke.training.ladder.blend import load_blend
from unchoke.training.network.trained_network import load_network, pixel_recipe_of

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
    """The model of a run as a `torch.nn.Module`, from pixels to probabilities or values, with its preprocessing inside.

    Args:
        run: A run: exp_3, 3, latest, best, or the folder of one, exported or not.
        weights: The encoder's weights, where they are no longer found.
        device: Where to put it: cpu, cuda or mps (default cpu).
        out: Workspace folder (default unchoke-out).

    Returns:
        A module with `classes` (or `targets`), `predict_proba` and `predict`, for lists of files, PIL images or arrays.

    Example:
        >>> model = unchoke.load_model("best", out="work")
        >>> str(model.predict(["photos/apple/apple 00.jpg"])[0])
        'apple'
    """
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


@dataclass(frozen=True, eq=False)
class _Part:
    """One model that answers: a run has one, a blend several."""

    answers: nn.Module
    names: tuple[str, ...]
    kind: str
    temperature: float
    recipe: PictureRecipe
    weights: dict[str, str]


def assemble(found: FoundRun, *, weights: Path | str | None = None) -> AssembledModel:
    """The run's model, on the CPU, in float32."""
    if not found.is_blend:
        part = _network_part(found, weights) if found.trains_network else _head_part(found, weights)
        return _assembled([part], part.answers, part.kind, part.temperature)
    blend = load_blend(found.head_file)
    builders = {"head": _head_part, "network": _network_part}
    parts = [builders[one.kind](replace(found, model=one.file), weights) for one in blend.models]
    shares, is_class = [one.share for one in blend.models], blend.kind == "classification"
    answers = BlendAnswers([part.answers for part in parts], shares, is_class=is_class)
    return _assembled(parts, answers, blend.kind, float(blend.extra["temperature"]))


def _assembled(parts: list[_Part], answers: nn.Module, kind: str, temperature: float) -> AssembledModel:
    model = PhotoModel(answers, is_class=kind == "classification", temperature=temperature)
    covers = [shown_cover_px(part.recipe) for part in parts]
    cover_px = None if None in covers else max(cover for cover in covers if cover is not None)
    columns, rows = zip(*(part.recipe.tiles.least_px for part in parts), strict=True)
    weights = tuple(_distinct(part.weights for part in parts))
    return AssembledModel(model, parts[0].names, cover_px, (max(columns), max(rows)), weights)


def _head_part(found: FoundRun, weights: Path | str | None) -> _Part:
    head, extra = load_head(found.head_file)
    if head.config.kind == "attention":
        raise _not_yet(found, "its attention head looks at views whose crops depend on the file's bytes")
    encoder = encoder_of(found, extra, weights=weights)
    cut = cut_network(encoder, str(extra.get("cut", END)))
    scale, num_augmented = str(extra.get("decode_scale", TWICE)), int(extra["num_augmented"])
    recipe = PictureRecipe(encoder.spec, "torch", "f32", num_augmented, cut.name, shape=cut.shape, decode_scale=scale)
    _refuse_unusual(found, encoder.spec)
    answers = HeadAnswers(frozen_part(encoder, cut), head)
    return _Part(
        answers, head.names, head.kind, float(extra["temperature"]), recipe, describe_weights(encoder.module, encoder.spec)
    )


def _network_part(found: FoundRun, weights: Path | str | None) -> _Part:
    trained, extra = load_network(found.head_file)
    if trained.input_names:
        raise _not_yet(found, f"it takes columns of a table beside the photos ({', '.join(trained.input_names)})")
    spec = EncoderSpec.from_dict(extra["encoder"])
    if trained.spec.tiles.is_whole:
        _refuse_unusual(found, spec)
    frozen: Encoder | None = None
    recipe, cut = pixel_recipe_of(trained, extra), None
    if not trained.is_whole:
        encoder = encoder_of(found, extra, weights=weights)
        cut = cut_network(encoder, trained.spec.cut)
        frozen = frozen_part(encoder, cut)
        scale, num_augmented = str(extra.get("decode_scale", TWICE)), int(extra["num_augmented"])
        tiles = trained.spec.tiles
        recipe = PictureRecipe(spec, "torch", "f32", num_augmented, cut.name, tiles, shape=cut.shape, decode_scale=scale)
    network = trained.build(cut)
    described = describe_weights(network.suffix if frozen is None else frozen.module, spec)
    answers = NetworkAnswers(frozen, network, spec.preprocess)
    return _Part(answers, trained.names, trained.kind, float(extra["temperature"]), recipe, described)


def _refuse_unusual(found: FoundRun, spec: EncoderSpec) -> None:
    if not spec.preprocess.is_plain:
        how = f"{spec.name} wants {spec.preprocess.crop_mode} and {spec.preprocess.interpolation}, which is not built into files"
        raise _not_yet(found, how)


def _not_yet(found: FoundRun, why: str) -> UsageError:
    return UsageError(
        f"{found.record.run} cannot be one network from pixels to answers yet",
        code="export-unsupported",
        why=why,
        try_=f"unchoke runs export {found.record.run} FOLDER, with which unchoke predicts on any machine",
    )


def describe_weights(module: nn.Module, spec: EncoderSpec) -> dict[str, str]:
    """Whose pretrained weights a network began with, and under what licence."""
    licence = _licence(module, spec)
    return {"encoder": spec.name, "from": spec.weights_from, "sha256": spec.weights_sha256, "licence": licence}


def _licence(module: nn.Module, spec: EncoderSpec) -> str:
    """What timm or the package says of the pretrained weights; of a file nobody knows."""
    if spec.weights_from.startswith("file "):
        return _UNKNOWN
    known: Any = getattr(module, "pretrained_cfg", None) or {}
    if known.get("license"):
        return f"{known['license']} (timm)"
    package = spec.weights_from.removeprefix("package ")
    if package == spec.weights_from:
        return _UNKNOWN
    try:
        facts: Any = metadata.metadata(package.replace("_", "-"))
        stated = facts.get("License", "UNKNOWN")
    except metadata.PackageNotFoundError:
        return _UNKNOWN
    return _UNKNOWN if stated in ("UNKNOWN", "", None) else f"{stated} ({package})"


def _distinct(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    return list({tuple(row.values()): row for row in rows}.values())
