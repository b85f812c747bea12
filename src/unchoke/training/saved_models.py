"""What a run trained, read from its files: a head or a network, and the encoder before it.

In: a run that was found. Out: one `SavedModel`, or for a blend one for each of its models. The encoder is the one the run was
trained with, from an exported run's own folder, a file that was named, or where the workspace had it from; other weights are
refused.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from unchoke.core.errors import UsageError
from unchoke.core.remembered import load_remembered
from unchoke.features.cut import END, Cut, cut_network, frozen_part
from unchoke.features.encoders import Encoder, EncoderSpec, load_encoder
from unchoke.features.recipe import TWICE, PictureRecipe
from unchoke.pixels.tile_grid import TilePlan
from unchoke.runs.lookup import FoundRun
from unchoke.training.heads.heads import TrainedHead, load_head
from unchoke.training.ladder.blend import TrainedBlend, load_blend
from unchoke.training.network.trained_network import TrainedNetwork, load_network, pixel_recipe_of

ENCODER_FILE = "encoder.safetensors"


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A head or a network, and `extra`: what else its file says of how it answers."""

    found: FoundRun
    trained: TrainedHead | TrainedNetwork
    extra: dict[str, Any]
    weights: Path | str | None = None

    @classmethod
    def load(cls, found: FoundRun, *, weights: Path | str | None = None, network: bool | None = None) -> SavedModel:
        """`network` says whether the file holds a network where the run's record does not: it is one of several models."""
        is_network = found.trains_network if network is None else network
        trained: TrainedHead | TrainedNetwork
        trained, extra = load_network(found.head_file) if is_network else load_head(found.head_file)
        return cls(found, trained, extra, weights)

    @property
    def spec(self) -> EncoderSpec:
        return EncoderSpec.from_dict(self.extra["encoder"])

    @property
    def tiles(self) -> TilePlan:
        return self.trained.spec.tiles if isinstance(self.trained, TrainedNetwork) else TilePlan()

    @property
    def temperature(self) -> float:
        return float(self.extra["temperature"])

    @cached_property
    def encoder(self) -> Encoder | None:
        """The network before it, whole; None where all of it was trained."""
        if isinstance(self.trained, TrainedNetwork) and self.trained.is_whole:
            return None
        return encoder_of(self.found, self.extra, weights=self.weights)

    @cached_property
    def cut(self) -> Cut | None:
        if self.encoder is None:
            return None
        name = self.trained.spec.cut if isinstance(self.trained, TrainedNetwork) else str(self.extra.get("cut", END))
        return cut_network(self.encoder, name)

    @cached_property
    def frozen(self) -> Encoder | None:
        """The part of the encoder that was not trained."""
        return None if self.encoder is None or self.cut is None else frozen_part(self.encoder, self.cut)

    def recipe(self, engine: str = "torch", precision: str = "f32") -> PictureRecipe:
        """How pictures become its inputs; as in extraction, where pictures with augmented views were decoded larger."""
        if self.cut is None:
            assert isinstance(self.trained, TrainedNetwork)
            return pixel_recipe_of(self.trained, self.extra)
        named = (self.spec, engine, precision, int(self.extra["num_augmented"]), self.cut.name, self.tiles)
        return PictureRecipe(*named, shape=self.cut.shape, decode_scale=str(self.extra.get("decode_scale", TWICE)))


def load_models(found: FoundRun, *, weights: Path | str | None = None) -> tuple[list[SavedModel], TrainedBlend | None]:
    """What the run trained, and how its models are blended where there are several."""
    if not found.is_blend:
        return [SavedModel.load(found, weights=weights)], None
    blended = load_blend(found.head_file)
    models = [
        SavedModel.load(replace(found, model=one.file), weights=weights, network=one.kind == "network") for one in blended.models
    ]
    return models, blended


def encoder_of(found: FoundRun, extra: dict[str, Any], *, weights: Path | str | None = None) -> Encoder:
    """The very encoder a run was trained with, refused if its weights are not the same ones."""
    spec = EncoderSpec.from_dict(extra["encoder"])
    return load_same_encoder(found, spec.name, spec.weights_sha256, weights=weights, input_px=spec.input_px)


def load_same_encoder(
    found: FoundRun, name: str, sha256: str, *, weights: Path | str | None = None, input_px: int | None = None
) -> Encoder:
    encoder = load_encoder(name, weights=weights_of(found, weights), input_px=input_px)
    if encoder.spec.weights_sha256 != sha256:
        raise UsageError(
            f"the weights of {name} here are not those the run was trained with",
            code="other-weights",
            why=f"their hash is {encoder.spec.weights_sha256[:12]}, the run's is {sha256[:12]}",
            try_="pass the original file with --weights, or use an exported run, which carries its weights",
        )
    return encoder


def weights_of(found: FoundRun, weights: Path | str | None = None) -> Path | None:
    """The file with a run's encoder: the one named, the one that was exported with it, or the one its workspace remembers."""
    if weights:
        return Path(weights)
    exported = found.folder / encoder_file(found)
    if exported.exists():
        return exported
    remembered = load_remembered(found.workspace).get("weights") if found.workspace else None
    return Path(remembered) if remembered and Path(remembered).exists() else None


def encoder_file(found: FoundRun) -> str:
    """Where an exported run has its encoder's weights; the models of a blend have one each."""
    return ENCODER_FILE if found.model == FoundRun.model else f"{Path(found.model).stem}_{ENCODER_FILE}"


def save_encoder(encoder: Encoder, built: Path, name: str = ENCODER_FILE) -> None:
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in encoder.module.state_dict().items()}, built / name)
    shutil.copymode(built / "record.json", built / name)  # the library writes it for its owner alone
