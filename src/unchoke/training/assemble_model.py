"""What a run trained as one network from pixels to answers, with the facts that travel with it.

In: a run about photos that was found. Out: an `AssembledModel`. Kinds of runs that no such network can be made of yet are
refused with a sentence; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import nn

from unchoke.core.errors import UsageError
from unchoke.exports.whole_model import BlendAnswers, HeadAnswers, NetworkAnswers, PhotoModel
from unchoke.features.cut import END, cut_network, frozen_part
from unchoke.features.encoders import Encoder, EncoderSpec
from unchoke.features.extractor import shown_cover_px
from unchoke.features.recipe import TWICE, PictureRecipe
from unchoke.runs.lookup import FoundRun
from unchoke.training.export_run import encoder_of
from unchoke.training.heads.trained_head import load_head
from unchoke.training.ladder.trained_blend import load_blend
from unchoke.training.network.trained_network import load_network, pixel_recipe_of

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
