"""Extraction in a worker process: the encoder is built once per process, then jobs come one by one.

Both functions are plain and at module level, so any engine of `jobs` can run them in another process. One torch thread per
worker: the parallelism is the workers'.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from unchoke.core.errors import UsageError
from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import load_encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.extractor import Extractor
from unchoke.features.recipe import Recipe
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult

_extractor: Extractor | None = None


def set_up(recipe: Recipe, weights: Path | None, paths: Mapping[str, str], folder: Path, batch: int, channels_last: bool) -> None:
    """Build the frozen part in this process."""
    global _extractor
    torch.set_num_threads(1)
    encoder = load_encoder(recipe.encoder.name, weights=weights, input_px=recipe.encoder.input_px)
    if encoder.spec.weights_sha256 != recipe.encoder.weights_sha256:
        raise UsageError(
            f"the weights of {recipe.encoder.name} changed while the command ran",
            why="features of two sets of weights are never mixed",
            try_="run the same command again",
        )
    frozen = frozen_part(encoder, cut_network(encoder, recipe.cut, verify=False))
    engine = TorchEngine(frozen, device=torch.device("cpu"), precision=recipe.precision, batch=batch, channels_last=channels_last)
    _extractor = Extractor(engine, recipe, paths, folder)


def run_job(job: Job) -> JobResult:
    """Extract one job with the encoder built by `set_up`."""
    if _extractor is None:
        raise RuntimeError("set_up did not run in this process")
    return _extractor(job)
