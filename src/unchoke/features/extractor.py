"""The body of an extraction job: some pictures in, one shard of features out.

A job reads each file, checks that it is still the file that was planned, decodes it, runs it through the engine in fixed batches
and writes a shard. A file that fails is left out of the shard and reported with its reason. Queueing, retries and progress are
the business of `jobs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.clock import Clock, Loading, during
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.timeline import EXTRACTION, job_clocks
from unchoke.features.engines import Engine
from unchoke.features.feature_store import ACTIVATIONS, POOLED, VIEWS, Half, save_shard, to_half
from unchoke.features.recipe import Recipe
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.photos.pixels.augment import Window, plan_view
from unchoke.photos.pixels.image import DecodeError, Pixels, decode_image, read_bytes
from unchoke.photos.pixels.resize import fit_to_input, resize
from unchoke.photos.pixels.tile_grid import cover_px, cut_tiles

_AUGMENTED_COVER = 3.2
"""Augmented views show parts of the picture, so they need more of it."""
_SQUARE = 4096
"""Windows of photos that are tiled are planned on a square of this side and stretched to the photo."""


@dataclass(frozen=True)
class Extractor:
    """Callable on a job. `paths` maps sample ids to files; `folder` is where the queue's outputs lie."""

    engine: Engine
    recipe: Recipe
    paths: Mapping[str, str]
    folder: Path
    decode_threads: int = 0

    def __call__(self, job: Job) -> JobResult:
        kept: list[str] = []
        failed: list[tuple[str, str]] = []
        features: list[Half] = []
        batch: list[Pixels] = []
        clock, loading = Clock(EXTRACTION), Loading()
        for sample_id, views in clock.each("load", self._views(job, loading)):
            if isinstance(views, DecodeError):
                failed.append((sample_id, str(views)))
                continue
            kept.append(sample_id)
            batch.extend(views)
            if len(batch) >= self.engine.batch:
                features.append(self._encode(batch[: self.engine.batch], clock))
                del batch[: self.engine.batch]
        if batch:
            features.append(self._encode(batch, clock))
        with clock.stage("write"):
            sha256, size_bytes = save_shard(self.folder / job.output, self._arrays(features), kept)
        return JobResult(len(job.items), tuple(failed), sha256, size_bytes, job_clocks(clock, loading))

    def _encode(self, batch: list[Pixels], clock: Clock) -> Half:
        with clock.stage("collate"):
            pixels_nhwc = np.stack(batch)
        with clock.stage("encode"):
            return to_half(self.engine.encode(pixels_nhwc), of=self.recipe.network)

    def _views(self, job: Job, loading: Loading) -> Iterator[tuple[str, list[Pixels] | DecodeError]]:
        def load(planned: tuple[str, str]) -> tuple[str, list[Pixels] | DecodeError]:
            with loading.here():
                return self._load(*planned)

        planned = zip(job.items, job.contents, strict=True)
        ahead = max(self.decode_threads, 2 * self.engine.batch // self.recipe.tiles.num_tiles, 1)
        return map_ahead(load, planned, threads=self.decode_threads, ahead=ahead)

    def _load(self, sample_id: str, content: str) -> tuple[str, list[Pixels] | DecodeError]:
        try:
            if sample_id not in self.paths:
                raise DecodeError("missing", "it is no longer among the samples")
            return sample_id, load_views(self.paths[sample_id], sample_id, content, self.recipe)
        except DecodeError as error:
            return sample_id, error

    def _arrays(self, features: list[Half]) -> dict[str, NDArray[np.float16]]:
        recipe, num_views = self.recipe, 1 + self.recipe.num_augmented
        flat = np.concatenate(features) if features else np.empty((0, *recipe.input_shape), np.float16)
        by_view = flat.reshape(len(flat) // recipe.num_inputs, num_views, *recipe.row_shape)
        arrays = {POOLED if recipe.is_plain else ACTIVATIONS: np.ascontiguousarray(by_view[:, 0])}
        if num_views > 1:
            arrays[VIEWS] = np.ascontiguousarray(by_view[:, 1:])
        return arrays


def load_views(path: str, sample_id: str, content: str, recipe: Recipe) -> list[Pixels]:
    """The plain view and the augmented ones, each as its tiles, ready for the engine.

    `content` is the planned SHA-256 ("" to skip the check).
    """
    data = read_bytes(path)
    if content:
        with during("verify"):
            found = digest_bytes(data)
        if found != content:
            raise DecodeError("changed", "the file changed while the command ran; run it again")
    return decode_views(data, sample_id, recipe)


def decode_views(data: bytes, sample_id: str, recipe: Recipe) -> list[Pixels]:
    """The same of bytes already read; `sample_id` decides what the augmented views show."""
    image = decode_image(data, cover_px=_cover_px(recipe))
    show = _show_whole if recipe.tiles.is_whole else _show_tiles
    with during("transform"):
        return [shown for number in range(1 + recipe.num_augmented) for shown in show(image, sample_id, number, recipe)]


def _cover_px(recipe: Recipe) -> int | None:
    """The short side to keep when a file is decoded smaller; None where it must not be."""
    times = _AUGMENTED_COVER if recipe.num_augmented and recipe.cover is not None else recipe.cover
    return None if times is None else cover_px(recipe.tiles, recipe.encoder.preprocess, times=times)


def _show_whole(image: Pixels, sample_id: str, number: int, recipe: Recipe) -> list[Pixels]:
    preprocess = recipe.encoder.preprocess
    if number == 0:
        return [fit_to_input(image, preprocess)]
    window = plan_view(sample_id, number, height=image.shape[0], width=image.shape[1])
    side = preprocess.size_px
    return [_mirrored(resize(_part(image, window), side, side, interpolation="bilinear"), window)]


def _show_tiles(image: Pixels, sample_id: str, number: int, recipe: Recipe) -> list[Pixels]:
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
