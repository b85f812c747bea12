"""The claims: what is commonly reported, as words and as ratios, and what measures it here.

Percentages are read as throughput (20 % faster: a ratio of 1.20), a single figure as that figure and a quarter of its gain to
either side. Reading this list loads nothing heavy: networks and rasters come with the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence

from unchoke.core.errors import UsageError
from unchoke.tuning.claims.claim import ACCELERATOR, Claim, about
from unchoke.tuning.claims.frozen_claims import measure_cached_evaluation, measure_head_only
from unchoke.tuning.claims.image_claims import measure_image_cache, measure_path_cache, measure_turbo_jpeg
from unchoke.tuning.claims.network_claims import (
    measure_accelerator,
    measure_batched_tiles,
    measure_channels_last,
    measure_evaluation_batch,
    measure_pinned_memory,
)
from unchoke.tuning.claims.scene_claims import measure_handle_reuse, measure_parallel_tiling, measure_unordered_scheduling

CLAIMS = (
    Claim(
        "batched-tiles",
        "all tiles of a picture in one pass through the network",
        "20–40 % faster training",
        (1.20, 1.40),
        "a training step of a small vision transformer on 4 pictures of 8 tiles: a pass for each tile, or one pass",
        measure_batched_tiles,
        needs=("timm",),
        least_s=16,
    ),
    Claim(
        "channels-last",
        "tensors with channels innermost",
        "5–15 % faster training",
        (1.05, 1.15),
        "a training step of EfficientNet-lite0 in either layout",
        measure_channels_last,
        needs=("timm",),
        least_s=12,
    ),
    Claim(
        "turbo-jpeg",
        "JPEG files decoded by libjpeg-turbo",
        "10–20 % faster training",
        (1.10, 1.20),
        "an epoch of training EfficientNet-lite0 on photos of 2000×1000: OpenCV (or Pillow), or libjpeg-turbo",
        measure_turbo_jpeg,
        needs=("timm", "simplejpeg"),
        least_s=16,
    ),
    Claim(
        "image-cache",
        "decoded pictures kept in memory",
        "15–25 % faster training",
        (1.15, 1.25),
        "the same epoch after the first: decoded again, or from memory",
        measure_image_cache,
        needs=("timm",),
        least_s=16,
    ),
    Claim(
        "evaluation-batch",
        "evaluation batches of 4 times the training batch",
        "5–10 % faster than 2 times",
        (1.05, 1.10),
        "an evaluation pass of EfficientNet-lite0: batches of 2 times the training batch, or of 4 times",
        measure_evaluation_batch,
        needs=("timm",),
        least_s=10,
    ),
    Claim(
        "path-cache",
        "paths of pictures resolved once",
        "10–20× faster training",
        (10.0, 20.0),
        "a loading pass over pictures in two folders: os.path.exists() for each folder, or a table made once",
        measure_path_cache,
        least_s=5,
    ),
    Claim(
        "head-only",
        "a head trained on cached features",
        "1–3 h → 10–15 min an experiment",
        (4.0, 18.0),
        "ten epochs: through the whole network, or features once and a head on them",
        measure_head_only,
        needs=("timm",),
        least_s=14,
    ),
    Claim(
        "cached-evaluation",
        "evaluation from cached features",
        "15 min → 2 min",
        about(7.5),
        "an evaluation: from picture files through the network, or from features on the disk through the head",
        measure_cached_evaluation,
        needs=("timm",),
        least_s=8,
    ),
    Claim(
        "handle-reuse",
        "raster files kept open",
        "opening is 30 % of tiling",
        about(1 / 0.7),
        "cutting a scene of four band files into windows: files opened for each window, or once",
        measure_handle_reuse,
        needs=("rasterio",),
        least_s=12,
    ),
    Claim(
        "parallel-tiling",
        "tiling in parallel",
        "120 s → 18 s with 6 workers",
        about(120 / 18),
        "cutting the same scene: the plain serial way, or as `unchoke tile` does on all cores",
        measure_parallel_tiling,
        needs=("rasterio",),
        least_s=12,
    ),
    Claim(
        "unordered-scheduling",
        "uneven windows through Pool.imap_unordered",
        "faster than Pool.map",
        (1.0, None),
        "compressing windows of uneven size in one process for each core: map, or imap_unordered",
        measure_unordered_scheduling,
        least_s=8,
    ),
    Claim(
        "pinned-memory",
        "batches in pinned memory",
        "copies to the device 15 % faster",
        about(1.15),
        "copying a batch to the accelerator: from ordinary memory, or from pinned memory",
        measure_pinned_memory,
        needs=("timm", ACCELERATOR),
        least_s=5,
    ),
    Claim(
        "accelerator",
        "training on an accelerator",
        "an epoch 45 min → 7 min",
        about(45 / 7),
        "training steps of EfficientNet-lite0: on the processor, or on the accelerator",
        measure_accelerator,
        needs=("timm", ACCELERATOR),
        least_s=15,
    ),
)  # fmt: skip


def choose_claims(names: Sequence[str]) -> list[Claim]:
    """The claims of these names, in the order of the list; all without names."""
    known = [claim.name for claim in CLAIMS]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"no claim is called {', '.join(map(repr, unknown))}",
            code="unknown-claim",
            why=f"there are {', '.join(known)}",
            try_="unchoke claims list",
        )
    return [claim for claim in CLAIMS if not names or claim.name in names]
