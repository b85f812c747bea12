"""Trained models opened for prediction, and what they answer to pictures, chunk by chunk.

In: a run that was found, and the pictures' paths. Out: an `OpenModel`, and for each chunk the outputs of its pictures, and why
some could not be read. The frozen part runs through the engine the run used, or through plain torch, with a note, where
that cannot be had. Chunks and answers are the same wherever they are computed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
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
from unchoke.features.engine_openvino import OpenVinoEngine
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.extractor import decode_views
from unchoke.features.feature_store import FeatureOverflow, to_half
from unchoke.features.recipe import PictureRecipe
from unchoke.machine.backend import one_thread, torch_device
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.pixels.image import DecodeError, Pixels, read_bytes
from unchoke.runs.lookup import FoundRun
from unchoke.training.heads.heads import TrainedHead
from unchoke.training.heads.novelty import NOVELTY, Novelty
from unchoke.training.ladder.blend import blend
from unchoke.training.network.trained_network import RowsInMemory, TrainedNetwork, open_network
from unchoke.training.saved_models import SavedModel, load_models

_CHUNK = 64
_CHUNK_BYTES = 256_000_000


@dataclass(frozen=True, eq=False)
class OpenModel:
    """What was trained, opened: how pictures are decoded for it (`shown` of a picture's inputs are used), and what answers.

    `answer` is given as many pictures as `chunk` at most: their paths, and their inputs one after the other. Beside the outputs
    it may say how unlike the training photos each picture is. `engines` run the frozen parts.
    """

    names: tuple[str, ...]
    kind: str
    temperature: float
    recipe: PictureRecipe
    shown: int
    chunk: int
    answer: Callable[[Sequence[str], Pixels], tuple[NDArray[np.float32], NDArray[np.float32] | None]]
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


def open_model(found: FoundRun, paths: Sequence[str], options: OpenOptions) -> OpenModel:
    """The run's head, network, or blend. Models of a blend that want other pixels than the first decode pictures themselves."""
    saved, blended = load_models(found, weights=options.weights)
    models = [_open(one, paths, options) for one in saved]
    first = models[0]
    if blended is None:
        return first
    shares = [one.share for one in blended.models]

    def wanted(model: OpenModel) -> tuple[Any, ...]:
        return model.shown, model.recipe.encoder.preprocess, model.recipe.decode_scale

    def decoded(model: OpenModel, shown: Sequence[str]) -> Pixels:
        views = map_ahead(lambda path: decode_shown(model, path, options.read), shown, threads=2, ahead=32)
        return np.stack([view for found in views for view in found])

    def answer(shown: Sequence[str], pixels: Pixels) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        own = (pixels if wanted(model) == wanted(first) else decoded(model, shown) for model in models)
        answers = [model.answer(shown, inputs) for model, inputs in zip(models, own, strict=True)]
        strange = next((one for _, one in answers if one is not None), None)
        return blend([outputs for outputs, _ in answers], shares, blended.kind), strange

    chunk, engines = min(model.chunk for model in models), tuple(engine for model in models for engine in model.engines)
    temperature = float(blended.extra["temperature"])
    return OpenModel(blended.names, blended.kind, temperature, first.recipe, first.shown, chunk, answer, engines)


def _open(saved: SavedModel, paths: Sequence[str], options: OpenOptions) -> OpenModel:
    trained = saved.trained
    if isinstance(trained, TrainedNetwork):
        return _open_network(saved, trained, paths, options)
    read_given_inputs(options.inputs, (), paths)
    return _open_head(saved, trained, options)


def _open_head(saved: SavedModel, head: TrainedHead, options: OpenOptions) -> OpenModel:
    """The encoder, then a head on its pooled features."""
    engine = _engine(saved, options)
    assert engine is not None, "a head has an encoder"
    recipe = saved.recipe(engine.name, engine.precision)
    novelty = Novelty(**saved.extra[NOVELTY]) if NOVELTY in saved.extra else None

    def answer(shown: Sequence[str], pixels: Pixels) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        views = engine.encode(pixels).reshape(len(shown), -1, head.dim).astype(np.float16)
        with one_thread():
            strange = None if novelty is None else novelty.score(views[:, 0])
            return head.logits(views if head.config.kind == "attention" else views[:, 0]), strange

    return OpenModel(head.names, head.kind, saved.temperature, recipe, recipe.num_inputs, _CHUNK, answer, (engine,))


def _open_network(saved: SavedModel, trained: TrainedNetwork, paths: Sequence[str], options: OpenOptions) -> OpenModel:
    """The frozen part through the engine the run used, rounded as in the cache, then the network; or the network alone."""
    inputs = read_given_inputs(options.inputs, trained.input_names, paths)
    beside = {} if inputs is None else dict(zip(paths, inputs, strict=True))
    engine = _engine(saved, options)
    recipe = saved.recipe() if engine is None else saved.recipe(engine.name, engine.precision)
    ready = open_network(
        saved.found,
        trained,
        on_event=options.listener,
        device="cpu" if options.plain else options.device,
        cut=saved.cut,
        loop=saved.extra.get("loop"),
        full=options.plain,
    )
    tiles = trained.spec.tiles.num_tiles

    def answer(shown: Sequence[str], pixels: Pixels) -> tuple[NDArray[np.float32], None]:
        try:
            turned: NDArray[Any] = pixels if engine is None else to_half(engine.encode(pixels), of=recipe.network)
        except FeatureOverflow as error:
            raise DataError(
                "a picture cannot be predicted",
                code="unreadable-photos",
                why=str(error),
                try_="predict the pictures one by one to find it, and leave it out: training would have refused it, too",
            ) from error
        rows = RowsInMemory(turned.reshape(len(shown), tiles, *turned.shape[1:]), recipe.encoder.preprocess)
        given = None if inputs is None else np.stack([beside[path] for path in shown])
        return ready.outputs(rows, np.arange(len(shown)), given), None

    # Pictures at a time: their activations at the cut may take far more than their pixels.
    side, activation = recipe.encoder.preprocess.size_px, () if engine is None else recipe.input_shape
    picture_bytes = recipe.tiles.num_tiles * (2 * 3 * side * side + 6 * math.prod(activation))
    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // picture_bytes))
    engines = () if engine is None else (engine,)
    return OpenModel(trained.names, trained.kind, saved.temperature, recipe, tiles, chunk, answer, engines)


def _engine(saved: SavedModel, options: OpenOptions) -> FrozenEngine | None:
    """The engine the run's features were made with, or plain torch (with a note) where it cannot be used; None where nothing is
    frozen.
    """
    encoder = saved.frozen
    if encoder is None:
        return None
    if options.plain:
        return TorchEngine(encoder, device=torch.device("cpu"))
    policy = choose_policy(detect_machine(), device=options.device)
    precision = str(saved.extra["precision"])
    if saved.extra["engine"] == "openvino":
        if options.device is None and precision != "int8":
            try:
                return _openvino(saved, precision, options, max(1, policy.workers))
            except MachineError as error:
                lost = error.what
        else:
            how = " in int8" if options.device is None else f", which --device {options.device} replaces"
            lost = f"the run's features come from OpenVINO{how}"
        options.listener(Note(f"{lost}; plain torch is used instead: same model, tiny differences", "warning"))
        precision = "f32"
    return TorchEngine(
        encoder,
        device=torch_device(policy),
        precision=precision,
        batch=policy.encode_batch,
        channels_last=policy.memory_format == "channels_last",
    )


def _openvino(saved: SavedModel, precision: str, options: OpenOptions, streams: int) -> FrozenEngine:
    found, encoder = saved.found, saved.frozen
    assert encoder is not None
    if found.workspace is None and not os.access(found.folder, os.W_OK):
        with scratch_folder("engine") as keep_in:  # an exported run on a read-only disk
            return OpenVinoEngine(encoder, precision=precision, streams=streams, keep_in=keep_in)
    keep_in_run = found.workspace.engines if found.workspace else found.folder / "engines"

    def warn(text: str) -> None:
        options.listener(Note(text, "warning"))

    return OpenVinoEngine(encoder, precision=precision, streams=streams, keep_in=keep_in_run, warn=warn)


@dataclass(frozen=True)
class PictureChunk:
    """Pictures that are answered together; `first` is the place of the first among all."""

    first: int
    paths: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ChunkAnswer:
    """One row of `outputs` for each picture of the chunk that could be read, in order; `broken` has the reasons of the others.
    `strange` is how unlike training photos each is, where that is known: above 1, more than 99 % of validation photos.
    """

    chunk: PictureChunk
    outputs: NDArray[np.float32]
    broken: dict[str, str]
    strange: NDArray[np.float32] | None = None


def cut_chunks(paths: Sequence[str], size: int) -> list[PictureChunk]:
    """All pictures, `size` at a time: which go together depends on their order alone, and so do the last bits of answers."""
    return [PictureChunk(first, tuple(paths[first : first + size])) for first in range(0, len(paths), size)]


def decode_shown(model: OpenModel, path: str, read: Callable[[str], bytes]) -> list[Pixels]:
    """A picture as the model wants it. Views follow from its content, since a path is spelt in many ways."""
    data = read(path)
    return decode_views(data, digest_bytes(data), model.recipe)[: model.shown]


def show_picture(model: OpenModel, path: str, read: Callable[[str], bytes]) -> list[Pixels] | DecodeError:
    """A picture as the model wants it, or why there is none."""
    try:
        return decode_shown(model, path, read)
    except DecodeError as error:
        return error


def answer_chunk(model: OpenModel, chunk: PictureChunk, shown: Sequence[list[Pixels] | DecodeError]) -> ChunkAnswer:
    """What the model answers to a chunk whose pictures were read and decoded."""
    broken: dict[str, str] = {}
    good_paths, pixels = [], []
    for path, views in zip(chunk.paths, shown, strict=True):
        if isinstance(views, DecodeError):
            broken[path] = str(views)
        else:
            good_paths.append(path)
            pixels += views
    if not good_paths:
        return ChunkAnswer(chunk, np.empty((0, len(model.names)), np.float32), broken)
    outputs, strange = model.answer(good_paths, np.stack(pixels))
    return ChunkAnswer(chunk, outputs, broken, strange)


def answer_here(
    model: OpenModel, chunks: Sequence[PictureChunk], read: Callable[[str], bytes] = read_bytes
) -> Iterator[ChunkAnswer]:
    """The answers of this machine; later pictures are read and decoded meanwhile."""
    pictures = (path for chunk in chunks for path in chunk.paths)
    ahead = map_ahead(lambda path: show_picture(model, path, read), pictures, threads=2, ahead=min(32, 2 * model.chunk))
    with closing(ahead):
        for chunk in chunks:
            yield answer_chunk(model, chunk, list(islice(ahead, len(chunk.paths))))
