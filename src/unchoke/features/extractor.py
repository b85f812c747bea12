"""The body of an extraction job: some items in, one shard of features out; and how photos become inputs of a network.

A job reads the inputs of each item, runs them through the engine in fixed batches and writes a shard. How an item is read is the
caller's; `PictureReader` reads a photo's file, checks that it is still the file that was planned, and decodes it. An item that
fails is left out of the shard and reported with its reason. Queueing, retries and progress are the business of `jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.clock import Clock, Loading, during
from unchoke.core.errors import UsageError
from unchoke.core.timeline import EXTRACTION, noted_clocks
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import load_encoder
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.feature_store import Half, save_rows, to_half
from unchoke.features.recipe import FeatureRecipe, PictureRecipe
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.pixels.image import DecodeError, Pixels, decode_image, read_planned
from unchoke.pixels.resize import fit_to_input, resize
from unchoke.pixels.tile_grid import Window, cover_px, cut_tiles, plan_view

ItemInputs = Sequence[NDArray[Any]]
Read = Callable[[str, str], ItemInputs | str]
"""An item's id and planned content to its inputs, view by view, or the reason why there are none."""
PhotoSource = str | bytes | DecodeError
"""Where a photo is, or what its file holds, or why that cannot be read."""
_AUGMENTED_COVER = 3.2
"""Augmented views show parts of the picture, so they need more of it."""
_SQUARE = 4096
"""Windows of photos that are tiled are planned on a square of this side and stretched to the photo."""


@dataclass(frozen=True)
class Extractor:
    """Callable on a job. `folder` is where the queue's outputs lie; `read_threads` read ahead of the engine."""

    engine: FrozenEngine
    recipe: FeatureRecipe
    read: Read
    folder: Path
    read_threads: int = 0

    def __call__(self, job: Job) -> JobResult:
        recipe, size = self.recipe, self.engine.batch
        rows = np.empty((len(job.items) * recipe.num_inputs, *recipe.input_shape), np.float16)
        kept: list[str] = []
        failed: list[tuple[str, str]] = []
        num_encoded = 0
        batch: list[NDArray[Any]] = []
        clock, loading = Clock(EXTRACTION), Loading()
        for item_id, inputs in clock.each("load", self._inputs(job, loading)):
            if isinstance(inputs, str):
                failed.append((item_id, inputs))
                continue
            kept.append(item_id)
            batch.extend(inputs)
            while len(batch) >= size:
                num_encoded += self._encode(batch[:size], rows[num_encoded:], clock)
                del batch[:size]
        if batch:
            num_encoded += self._encode(batch, rows[num_encoded:], clock)
        by_view = rows[:num_encoded].reshape(len(kept), recipe.num_views, *recipe.row_shape)
        with clock.stage("write"):
            file = self.folder / job.output
            sha256, size_bytes = save_rows(file, by_view, kept, name=recipe.member, levels=recipe.levels)
        return JobResult(len(job.items), tuple(failed), sha256, size_bytes, noted_clocks(clock.tally(), loading.tally()))

    def _encode(self, batch: ItemInputs, out: Half, clock: Clock) -> int:
        """Put the features of `batch` at the beginning of `out`; return how many."""
        with clock.stage("collate"):
            inputs = np.stack(batch)
        with clock.stage("encode"):
            out[: len(batch)] = to_half(self.engine.encode(inputs), of=self.recipe.network)
        return len(batch)

    def _inputs(self, job: Job, loading: Loading) -> Iterator[tuple[str, ItemInputs | str]]:
        def load(planned: tuple[str, str]) -> tuple[str, ItemInputs | str]:
            with loading.here():
                return planned[0], self.read(*planned)

        planned = zip(job.items, job.contents, strict=True)
        ahead = max(self.read_threads, 2 * self.engine.batch // self.recipe.num_tiles, 1)
        return map_ahead(load, planned, threads=self.read_threads, ahead=ahead)


_extractor: Extractor | None = None


def set_up(
    recipe: PictureRecipe,
    weights: Path | None,
    paths: Mapping[str, str],
    folder: Path,
    batch: int,
    channels_last: bool,
    threads: int = 1,
) -> None:
    """Build the frozen part in a worker process, once. `threads` are torch's: one, unless there are more cores than workers."""
    global _extractor
    torch.set_num_threads(threads)
    encoder = load_encoder(recipe.encoder.name, weights=weights, input_px=recipe.encoder.input_px)
    if encoder.spec.weights_sha256 != recipe.encoder.weights_sha256:
        raise UsageError(
            f"the weights of {recipe.encoder.name} changed while the command ran",
            code="weights-changed",
            why="features of two sets of weights are never mixed",
            try_="run the same command again",
        )
    frozen = frozen_part(encoder, cut_network(encoder, recipe.cut, verify=False))
    engine = TorchEngine(frozen, device=torch.device("cpu"), precision=recipe.precision, batch=batch, channels_last=channels_last)
    _extractor = Extractor(engine, recipe, PictureReader(recipe, paths), folder)


def run_job(job: Job) -> JobResult:
    """Extract one job with what `set_up` built in this process."""
    if _extractor is None:
        raise RuntimeError("set_up did not run in this process")
    return _extractor(job)


@dataclass(frozen=True)
class PictureReader:
    """Reads photos for an `Extractor`; `sources` says of each where it is, what its file holds, or why nobody can read it."""

    recipe: PictureRecipe
    sources: Mapping[str, PhotoSource]

    def __call__(self, sample_id: str, content: str) -> ItemInputs | str:
        try:
            if (source := self.sources.get(sample_id)) is None:
                raise DecodeError("missing", "it is no longer among the samples")
            if isinstance(source, DecodeError):
                raise source
            data = source if isinstance(source, bytes) else read_planned(source, content)
            return decode_views(data, sample_id, self.recipe)
        except DecodeError as error:
            return str(error)


def load_views(path: str, sample_id: str, content: str, recipe: PictureRecipe) -> list[Pixels]:
    """The plain view and the augmented ones, each as its tiles, ready for the engine.

    `content` is the planned SHA-256 ("" to skip the check).
    """
    return decode_views(read_planned(path, content), sample_id, recipe)


def decode_views(data: bytes, sample_id: str, recipe: PictureRecipe) -> list[Pixels]:
    """The same of bytes already read; `sample_id` decides what the augmented views show."""
    image = decode_image(data, cover_px=shown_cover_px(recipe))
    show = _show_whole if recipe.tiles.is_whole else _show_tiles
    with during("transform"):
        return [shown for number in range(1 + recipe.num_augmented) for shown in show(image, sample_id, number, recipe)]


def shown_cover_px(recipe: PictureRecipe) -> int | None:
    """The short side to keep when a file is decoded smaller; None where it must not be."""
    times = _AUGMENTED_COVER if recipe.num_augmented and recipe.cover is not None else recipe.cover
    return None if times is None else cover_px(recipe.tiles, recipe.encoder.preprocess, times=times)


def _show_whole(image: Pixels, sample_id: str, number: int, recipe: PictureRecipe) -> list[Pixels]:
    preprocess = recipe.encoder.preprocess
    if number == 0:
        return [fit_to_input(image, preprocess)]
    window = plan_view(sample_id, number, height=image.shape[0], width=image.shape[1])
    side = preprocess.size_px
    return [_mirrored(resize(_part(image, window), side, side, interpolation="bilinear"), window)]


def _show_tiles(image: Pixels, sample_id: str, number: int, recipe: PictureRecipe) -> list[Pixels]:
    """The view's window of the photo, mirrored where it says so, and then its tiles: left and right change places too."""
    height, width = image.shape[:2]
    square = plan_view(sample_id, number, height=_SQUARE, width=_SQUARE)
    window = _stretched(square, height, width)
    return list(cut_tiles(_mirrored(_part(image, window), window), recipe.tiles, recipe.encoder.preprocess))


def _stretched(window: Window, height: int, width: int) -> Window:
    """A window of the square, as the same share of a picture: the crop keeps about the proportions of the photo."""
    top, bottom = (round(value * height / _SQUARE) for value in (window.top, window.top + window.height))
    left, right = (round(value * width / _SQUARE) for value in (window.left, window.left + window.width))
    return Window(top, left, max(1, bottom - top), max(1, right - left), window.mirrored)


def _part(image: Pixels, window: Window) -> Pixels:
    return np.ascontiguousarray(image[window.top : window.top + window.height, window.left : window.left + window.width])


def _mirrored(image: Pixels, window: Window) -> Pixels:
    return np.ascontiguousarray(image[:, ::-1]) if window.mirrored else image
