"""What training reads, whatever the cut: pooled features, cached activations, or pixels.

In: a session and the pictures. Out: which pictures are there, which failed and why, and a function that gives the trainer for
what is learnt from them. This is the one place that knows which settings lead to which kind of training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import UsageError
from unchoke.core.settings import Settings, flag, settings_where
from unchoke.features.cut import NONE, cut_network, is_all_frozen
from unchoke.features.encoders import bare_encoder
from unchoke.features.extraction import extract_features
from unchoke.features.prepare_engine import Picture
from unchoke.features.recipe import PictureRecipe
from unchoke.pixels.tile_grid import plan_tiles
from unchoke.runs.session import Session
from unchoke.training.build_record import EncoderUse
from unchoke.training.data import FeatureSource, LearningTask
from unchoke.training.heads.head_trainer import HeadTrainer
from unchoke.training.network.photo_job import LinearStart, StoredActivations
from unchoke.training.network.photo_trainer import PhotoTrainer
from unchoke.training.network.prepare_pixels import plan_pixels, prepare_pixels
from unchoke.training.run_training import Trainer


@dataclass(frozen=True, eq=False)
class Inputs:
    """`present[i]` says whether picture i can be trained on; `failed` maps the others to their reasons."""

    present: NDArray[np.bool_]
    failed: dict[str, str]
    encoder: EncoderUse
    trainer: Callable[[LearningTask], Trainer]
    features: FeatureSource | None = None
    """Of the pictures that are present, where the whole network is frozen."""


def trains_network(settings: Settings) -> bool:
    """Whether anything but heads on pooled features of whole pictures is trained."""
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    declared = settings.sums or settings.target_weights or settings.positive or settings.input
    return not is_all_frozen(settings.cut) or not tiles.is_whole or bool(declared)


def prepare_inputs(session: Session, pictures: Sequence[Picture], *, start: LinearStart | None = None) -> Inputs:
    """Make sure that everything training will read is on this disk, once; `start` is where the head of a cut network begins."""
    refuse_unused(session.settings)
    if unheeded := unheeded_options(session.settings):
        session.warn(unheeded_text(unheeded))
    if session.settings.cut == NONE:
        return _pixels(session, pictures)
    extracted = extract_features(session, pictures)
    use = EncoderUse.of(extracted)
    if not trains_network(session.settings):
        return Inputs(
            extracted.present,
            extracted.failed,
            use,
            lambda learnable: HeadTrainer(session, learnable.problem, extracted.store, end_dim=use.spec.dim),
            extracted.store,
        )
    stored = StoredActivations(extracted.placement, extracted.store.row_shape, use.num_augmented)
    return Inputs(
        extracted.present,
        extracted.failed,
        use,
        lambda learnable: PhotoTrainer(session, learnable, extracted.encoder, stored, start),
        extracted.store if is_all_frozen(session.settings.cut) else None,
    )


def _pixels(session: Session, pictures: Sequence[Picture]) -> Inputs:
    pixels = prepare_pixels(session, pictures)
    return Inputs(
        pixels.present,
        pixels.failed,
        pixels.use,
        lambda learnable: PhotoTrainer(session, learnable, pixels.encoder, pixels.source),
    )


def disk_bytes(session: Session, pictures: Sequence[Picture]) -> int:
    """What the pictures will take on disk for this training, found out without running any of them."""
    settings = session.settings
    encoder = bare_encoder(settings.encoder, input_px=settings.input_px)
    if settings.cut == NONE:
        cache = plan_pixels(session, pictures, encoder, mode=settings.cache).cache
        return int(cache.evidence["bytes"]) if cache.value == "disk" else 0
    cut = cut_network(encoder, settings.cut, verify=False)
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    recipe = PictureRecipe(encoder.spec, "", "", settings.views, cut.name, tiles, shape=cut.shape)
    return recipe.item_bytes * len(pictures)


def unheeded_options(settings: Settings) -> list[str]:
    """Options in force, typed or of a preset, that training heads does not look at."""
    if trains_network(settings):
        return []
    given = settings.given()
    return [flag(name) for name in settings_where(lambda option: option.networks_only) if name in given]


def unheeded_text(flags: list[str]) -> str:
    """That options are not used by heads, and why."""
    verbs = "concerns training through a network and is" if len(flags) == 1 else "concern training through a network and are"
    whole = "; a batch of them is a few MB and always goes through whole" if {"--sub-batch", "--eval-batch"} & set(flags) else ""
    return f"{' and '.join(flags)} {verbs} not used: heads train on cached vectors{whole}"


def refuse_unused(settings: Settings) -> None:
    """An option that this kind of training would ignore is refused."""
    if settings.cut == "pyramid":
        raise UsageError(
            "--cut pyramid is for masks",
            code="option-needs-masks",
            why="maps at several strides are what a decoder draws from; classes and values come from the network's end",
            try_="--cut blocks, or `unchoke segment train` for masks",
        )
    if settings.augment is not None and settings.cut != NONE:
        raise UsageError(
            f"--augment {settings.augment} has no effect with --cut {settings.cut}",
            code="option-has-no-effect",
            why="what is frozen is computed once, so it cannot see other pixels in every epoch",
            try_="--views 4, which caches four augmented views of each image, or --cut none",
        )
    if settings.views and settings.cut == NONE:
        raise UsageError(
            f"--views {settings.views} has no effect with --cut none",
            code="option-has-no-effect",
            why="nothing is cached but pixels, and those are augmented anew in every epoch",
            try_="--views 0, and --augment light or strong for how much they are varied",
        )
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    if settings.fusion != "mean" and tiles.num_tiles == tiles.streams:
        raise UsageError(
            f"--fusion {settings.fusion} has nothing to fuse",
            code="option-has-no-effect",
            why="each stream is a single tile",
            try_=f"--tiles 2x2 --fusion {settings.fusion}, or leave --fusion out",
        )
