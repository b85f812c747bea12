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

from unchoke.decode.image import DecodeError, Pixels, decode_image, read_bytes
from unchoke.decode.pipeline import map_ahead
from unchoke.decode.resize import Preprocess, fit_to_input, resize
from unchoke.features.engines import Engine, Features
from unchoke.features.recipe import Recipe
from unchoke.features.store import POOLED, VIEWS, save_shard, to_half
from unchoke.fingerprint import digest_bytes
from unchoke.jobs.plan import Job
from unchoke.jobs.records import JobResult
from unchoke.views.augment import plan_view

_COVER = 2.0
"""A JPEG is decoded smaller only while it keeps this many times the side needed: at just enough, features drift too far."""
_AUGMENTED_COVER = 3.2
"""Augmented views show parts of the picture, so they need more of it."""


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
        features: list[Features] = []
        batch: list[Pixels] = []
        for sample_id, views in self._views(job):
            if isinstance(views, DecodeError):
                failed.append((sample_id, str(views)))
                continue
            kept.append(sample_id)
            batch.extend(views)
            if len(batch) >= self.engine.batch:
                features.append(self.engine.encode(np.stack(batch[: self.engine.batch])))
                del batch[: self.engine.batch]
        if batch:
            features.append(self.engine.encode(np.stack(batch)))
        sha256, size_bytes = save_shard(self.folder / job.output, self._arrays(features), kept)
        return JobResult(len(job.items), tuple(failed), sha256, size_bytes, {})

    def _views(self, job: Job) -> Iterator[tuple[str, list[Pixels] | DecodeError]]:
        planned = zip(job.items, job.contents, strict=True)
        return map_ahead(self._load, planned, threads=self.decode_threads, ahead=2 * self.engine.batch)

    def _load(self, planned: tuple[str, str]) -> tuple[str, list[Pixels] | DecodeError]:
        sample_id, content = planned
        try:
            if sample_id not in self.paths:
                raise DecodeError("missing", "it is no longer among the samples")
            return sample_id, load_views(self.paths[sample_id], sample_id, content, self.recipe)
        except DecodeError as error:
            return sample_id, error

    def _arrays(self, features: list[Features]) -> dict[str, NDArray[np.float16]]:
        num_views = 1 + self.recipe.num_augmented
        flat = np.concatenate(features) if features else np.empty((0, self.recipe.encoder.dim), np.float32)
        by_view = to_half(flat).reshape(-1, num_views, self.recipe.encoder.dim)
        arrays = {POOLED: np.ascontiguousarray(by_view[:, 0])}
        if num_views > 1:
            arrays[VIEWS] = np.ascontiguousarray(by_view[:, 1:])
        return arrays


def load_views(path: str, sample_id: str, content: str, recipe: Recipe) -> list[Pixels]:
    """The plain view and the augmented ones, ready for the engine. `content` is the planned SHA-256 ("" to skip the check)."""
    data = read_bytes(path)
    if content and digest_bytes(data) != content:
        raise DecodeError("changed", "the file changed while the command ran; run it again")
    return decode_views(data, sample_id, recipe)


def decode_views(data: bytes, sample_id: str, recipe: Recipe) -> list[Pixels]:
    """The same of bytes already read; `sample_id` decides what the augmented views show."""
    preprocess = recipe.encoder.preprocess
    image = decode_image(data, cover_px=_cover_px(preprocess, recipe.num_augmented))
    augmented = (_augmented(image, sample_id, number, preprocess) for number in range(1, recipe.num_augmented + 1))
    return [fit_to_input(image, preprocess), *augmented]


def _cover_px(preprocess: Preprocess, num_augmented: int) -> int:
    return int(preprocess.resize_px * (_AUGMENTED_COVER if num_augmented else _COVER))


def _augmented(image: Pixels, sample_id: str, number: int, preprocess: Preprocess) -> Pixels:
    window = plan_view(sample_id, number, height=image.shape[0], width=image.shape[1])
    part = np.ascontiguousarray(image[window.top : window.top + window.height, window.left : window.left + window.width])
    view = resize(part, preprocess.size_px, preprocess.size_px, interpolation="bilinear")
    return np.ascontiguousarray(view[:, ::-1]) if window.mirrored else view
