"""Trained models opened for prediction: a head behind its encoder, a network, or a blend of several.

In: a run that was found, and the pictures' paths. Out: an `OpenModel`: how pictures are decoded for it, and what answers. The
frozen part runs through the engine the run used, or through plain torch, with a note, where that cannot be had.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.errors import DataError, MachineError
from unchoke.core.events import Note, OnEvent
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.temporary_folders import scratch_folder
from unchoke.data.extra_inputs import read_given_inputs
from unchoke.features.cut import END, Cut, cut_network, frozen_part
from unchoke.features.encoders import Encoder, EncoderSpec
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.extractor import decode_views
from unchoke.features.feature_store import FeatureOverflow, Half, to_half
from unchoke.features.recipe import TWICE, PictureRecipe
from unchoke.machine.backend import one_thread, torch_device
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.pixels.image import DecodeError, Pixels, read_bytes
from unchoke.runs.lookup import FoundRun
from unchoke.training.export_run import encoder_of
from unchoke.training.heads.heads import load_head
from unchoke.training.ladder.blend import blend, load_blend
from unchoke.training.network.trained_network import RowsInMemory, TrainedNetwork, load_network, open_network, pixel_recipe_of

_CHUNK = 64
_CHUNK_BYTES = 256_000_000


@dataclass(frozen=True, eq=False)
class OpenModel:
    """What was trained, opened: how pictures are decoded for it (`shown` of a picture's inputs are used), and what answers.

    `answer` is given as many pictures as `chunk` at most: their paths, and their inputs one after the other. `engines` run the
    frozen parts.
    """

    names: tuple[str, ...]
    kind: str
    temperature: float
    recipe: PictureRecipe
    shown: int
    chunk: int
    answer: Callable[[Sequence[str], Pixels], NDArray[np.float32]]
    engines: tuple[FrozenEngine, ...] = ()


@dataclass(frozen=True)
class OpenOptions:
    inputs: Path | str | None
    weights: Path | str | None
    device: str | None
    listener: OnEvent
    read: Callable[[str], bytes] = read_bytes
    """The content of a picture's file."""
    plain: bool = False
    """Everything in float32 by torch on the processor, whatever the run used."""

    def warn(self, text: str) -> None:
        self.listener(Note(text, "warning"))


def open_model(found: FoundRun, paths: Sequence[str], options: OpenOptions) -> OpenModel:
    """What the run trained, whatever it is."""
    if found.is_blend:
        return open_blend(found, paths, options)
    return open_network_model(found, paths, options) if found.trains_network else open_head(found, paths, options)


def open_blend(found: FoundRun, paths: Sequence[str], options: OpenOptions) -> OpenModel:
    """All models with a share; those that want other pixels than the first decode the pictures for themselves."""
    blended = load_blend(found.head_file)
    openers = {"head": open_head, "network": open_network_model}
    models = [openers[one.kind](replace(found, model=one.file), paths, options) for one in blended.models]
    first, shares = models[0], [one.share for one in blended.models]

    def answer(shown: Sequence[str], pixels: Pixels) -> NDArray[np.float32]:
        own = (pixels if _same_pixels(model, first) else _decode_again(model, shown, options.read) for model in models)
        outputs = [model.answer(shown, inputs) for model, inputs in zip(models, own, strict=True)]
        return blend(outputs, shares, blended.kind)

    chunk, engines = min(model.chunk for model in models), tuple(engine for model in models for engine in model.engines)
    temperature = float(blended.extra["temperature"])
    return OpenModel(blended.names, blended.kind, temperature, first.recipe, first.shown, chunk, answer, engines)


def _same_pixels(one: OpenModel, other: OpenModel) -> bool:
    ours, theirs = ((model.shown, model.recipe.encoder.preprocess, model.recipe.decode_scale) for model in (one, other))
    return ours == theirs


def _decode_again(model: OpenModel, paths: Sequence[str], read: Callable[[str], bytes]) -> Pixels:
    """Pictures that could be decoded a moment ago, as this model wants them."""

    def views(path: str) -> list[Pixels]:
        data = read(path)
        return decode_views(data, digest_bytes(data), model.recipe)[: model.shown]

    return np.stack([view for found in map_ahead(views, paths, threads=2, ahead=32) for view in found])


def open_head(found: FoundRun, paths: Sequence[str], options: OpenOptions) -> OpenModel:
    """The encoder, then a head on its pooled features."""
    head, extra = load_head(found.head_file)
    read_given_inputs(options.inputs, (), paths)
    encoder = encoder_of(found, extra, weights=options.weights)
    cut = cut_network(encoder, str(extra.get("cut", END)))
    engine = _engine(found, frozen_part(encoder, cut), extra, options)
    named = (encoder.spec, engine.name, engine.precision, int(extra["num_augmented"]), cut.name)
    recipe = PictureRecipe(*named, shape=cut.shape, decode_scale=str(extra.get("decode_scale", TWICE)))

    def answer(shown: Sequence[str], pixels: Pixels) -> NDArray[np.float32]:
        views = engine.encode(pixels).reshape(len(shown), -1, head.dim).astype(np.float16)
        with one_thread():
            return head.logits(views if head.config.kind == "attention" else views[:, 0])

    temperature = float(extra["temperature"])
    return OpenModel(head.names, head.kind, temperature, recipe, recipe.num_inputs, _CHUNK, answer, (engine,))


def open_network_model(found: FoundRun, paths: Sequence[str], options: OpenOptions) -> OpenModel:
    """The frozen part through the engine the run used, rounded as in the cache, then the network; or the network alone."""
    trained, extra = load_network(found.head_file)
    inputs = read_given_inputs(options.inputs, trained.input_names, paths)
    beside = {} if inputs is None else dict(zip(paths, inputs, strict=True))
    engines: tuple[FrozenEngine, ...] = ()
    if trained.is_whole:
        recipe, cut = pixel_recipe_of(trained, extra), None
        turn: Callable[[Pixels], NDArray[Any]] = _as_they_are
    else:
        encoder = encoder_of(found, extra, weights=options.weights)
        cut = cut_network(encoder, trained.spec.cut)
        engine = _engine(found, frozen_part(encoder, cut), extra, options)
        recipe, engines = _recipe(trained, extra, cut, engine), (engine,)
        turn = partial(_activations, engine, recipe.network)
    device = "cpu" if options.plain else options.device
    ready = open_network(
        found, trained, on_event=options.listener, device=device, cut=cut, loop=extra.get("loop"), full=options.plain
    )
    tiles = trained.spec.tiles.num_tiles

    def answer(shown: Sequence[str], pixels: Pixels) -> NDArray[np.float32]:
        turned = turn(pixels)
        rows = RowsInMemory(turned.reshape(len(shown), tiles, *turned.shape[1:]), recipe.encoder.preprocess)
        given = None if inputs is None else np.stack([beside[path] for path in shown])
        return ready.outputs(rows, np.arange(len(shown)), given)

    chunk = _chunk(recipe, () if trained.is_whole else recipe.input_shape)
    return OpenModel(trained.names, trained.kind, float(extra["temperature"]), recipe, tiles, chunk, answer, engines)


def _recipe(trained: TrainedNetwork, extra: dict[str, Any], cut: Cut, engine: FrozenEngine) -> PictureRecipe:
    """As in extraction: pictures of which augmented views were cached, too, were decoded larger."""
    spec, num_augmented = EncoderSpec.from_dict(extra["encoder"]), int(extra["num_augmented"])
    scale, tiles = str(extra.get("decode_scale", TWICE)), trained.spec.tiles
    return PictureRecipe(spec, engine.name, engine.precision, num_augmented, cut.name, tiles, shape=cut.shape, decode_scale=scale)


def _as_they_are(pixels: Pixels) -> Pixels:
    return pixels


def _activations(engine: FrozenEngine, network: str, pixels: Pixels) -> Half:
    try:
        return to_half(engine.encode(pixels), of=network)
    except FeatureOverflow as error:
        raise DataError(
            "a picture cannot be predicted",
            code="unreadable-photos",
            why=str(error),
            try_="predict the pictures one by one to find it, and leave it out: training would have refused it, too",
        ) from error


def _chunk(recipe: PictureRecipe, activation: tuple[int, ...]) -> int:
    """Pictures at a time: what they become at the cut may take far more than their pixels."""
    side, tiles = recipe.encoder.preprocess.size_px, recipe.tiles.num_tiles
    picture_bytes = tiles * (2 * 3 * side * side + 6 * math.prod(activation))
    return max(1, min(_CHUNK, _CHUNK_BYTES // picture_bytes))


def _engine(found: FoundRun, encoder: Encoder, extra: dict[str, Any], options: OpenOptions) -> FrozenEngine:
    """The engine the run's features were made with, or plain torch (with a note) where it cannot be used."""
    if options.plain:
        return TorchEngine(encoder, device=torch.device("cpu"))
    policy = choose_policy(detect_machine(), overrides={"device": options.device})
    engine, precision = str(extra["engine"]), str(extra["precision"])
    if engine == "openvino":
        try:
            return _openvino(found, encoder, precision, options, max(1, policy.workers))
        except MachineError as error:
            options.listener(Note(f"{error.what}; plain torch is used instead: same model, tiny differences", "warning"))
            precision = "f32"
    return TorchEngine(
        encoder,
        device=torch_device(policy),
        precision=precision,
        batch=policy.encode_batch,
        channels_last=policy.memory_format == "channels_last",
    )


def _openvino(found: FoundRun, encoder: Encoder, precision: str, options: OpenOptions, streams: int) -> FrozenEngine:
    device = options.device
    if device is not None or precision == "int8":
        raise MachineError(
            "the run's features come from OpenVINO" + (" in int8" if device is None else f", which --device {device} replaces"),
            code="engine-not-reproducible",
            why="int8 is calibrated on the training images" if device is None else "OpenVINO runs on the processor only",
            try_="leave --device out",
        )
    if found.workspace is None and not os.access(found.folder, os.W_OK):
        with scratch_folder("engine") as keep_in:  # an exported run on a read-only disk
            return OpenVinoEngine(encoder, precision=precision, streams=streams, keep_in=keep_in)
    keep_in_run = found.workspace.engines if found.workspace else found.folder / "engines"
    return OpenVinoEngine(encoder, precision=precision, streams=streams, keep_in=keep_in_run, warn=options.warn)


@dataclass(frozen=True)
class PictureChunk:
    """Pictures that are answered together; `first` is the place of the first among all."""

    first: int
    paths: tuple[str, ...]

    @property
    def placed(self) -> list[tuple[int, str]]:
        """Each path with its place among all."""
        return list(enumerate(self.paths, start=self.first))


@dataclass(frozen=True, eq=False)
class ChunkAnswer:
    """One row of `outputs` for each picture of the chunk that could be read, in order; `broken` has the reasons of the others."""

    chunk: PictureChunk
    outputs: NDArray[np.float32]
    broken: dict[str, str]


def cut_chunks(paths: Sequence[str], size: int) -> list[PictureChunk]:
    """All pictures, `size` at a time: which go together depends on their order alone, and so do the last bits of answers."""
    return [PictureChunk(first, tuple(paths[first : first + size])) for first in range(0, len(paths), size)]


def show_picture(model: OpenModel, path: str, read: Callable[[str], bytes]) -> list[Pixels] | DecodeError:
    """A picture as the model wants it, or why there is none."""
    try:
        data = read(path)
        return decode_views(data, digest_bytes(data), model.recipe)[: model.shown]  # by content: a path is spelt in many ways
    except DecodeError as error:
        return error


def answer_chunk(model: OpenModel, chunk: PictureChunk, shown: Sequence[list[Pixels] | DecodeError]) -> ChunkAnswer:
    """What the model says of a chunk whose pictures were read and decoded."""
    pairs = list(zip(chunk.paths, shown, strict=True))
    broken = {path: str(views) for path, views in pairs if isinstance(views, DecodeError)}
    good = [path for path, views in pairs if not isinstance(views, DecodeError)]
    pixels = [view for _, views in pairs if not isinstance(views, DecodeError) for view in views]
    outputs = model.answer(good, np.stack(pixels)) if good else np.empty((0, len(model.names)), np.float32)
    return ChunkAnswer(chunk, outputs, broken)


def answer_here(
    model: OpenModel, chunks: Sequence[PictureChunk], read: Callable[[str], bytes] = read_bytes
) -> Iterator[ChunkAnswer]:
    """The answers of this machine; later pictures are read and decoded meanwhile."""
    pictures = (path for chunk in chunks for path in chunk.paths)
    ahead = map_ahead(lambda path: show_picture(model, path, read), pictures, threads=2, ahead=min(32, 2 * model.chunk))
    with closing(ahead):
        for chunk in chunks:
            yield answer_chunk(model, chunk, list(islice(ahead, len(chunk.paths))))
