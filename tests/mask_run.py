"""Scenes of three bands and a run that draws masks of them, made by hand in a second: its weights are begun, not trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from affine import Affine
from numpy.typing import NDArray

from unchoke.core.boxes import Box, plan_boxes
from unchoke.masks.stitch import StitchPlan

NAMES = ("land", "water", "cloud")
BANDS = ("red", "green", "blue")
PATCH_PX, OVERLAP_PX = 64, 16
PLACE = Affine(10, 0, 500_000, 0, -10, 5_200_000)


def make_scene(file: Path, *, seed: int = 0, height: int = 150, width: int = 220, on_map: bool = True) -> Path:
    """Blobs in three bands; without data in its upper left corner, where it lies on a map. A `.png` is a photo."""
    random = np.random.default_rng(seed)
    coarse = random.integers(500, 3000, (3, 1 + height // 16, 1 + width // 16))
    pixels = np.kron(coarse, np.ones((1, 16, 16), np.int64))[:, :height, :width] + random.integers(1, 100, (3, height, width))
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".png":
        from PIL import Image

        Image.fromarray((pixels // 16).astype(np.uint8).transpose(1, 2, 0)).save(file)
        return file
    import rasterio

    pixels[:, : height // 3, : width // 3] = 0
    place: dict[str, Any] = {"crs": "EPSG:32633", "transform": PLACE} if on_map else {}
    profile = {"driver": "GTiff", "dtype": "uint16", "count": 3, "height": height, "width": width, "nodata": 0, **place}
    with rasterio.open(file, "w", **profile) as scene:
        scene.write(pixels.astype(np.uint16))
        scene.descriptions = BANDS
    return file


@cache
def _pyramid() -> Any:
    from unchoke.features.pyramid import load_pyramid

    return load_pyramid("tf_efficientnet_lite0", num_bands=3, patch_px=PATCH_PX, strides=(4, 8, 16, 32))


def make_run(folder: Path, *, cut: str = "pyramid", bands: tuple[str, ...] = BANDS, engine: dict[str, Any] | None = None) -> Path:
    """The folder of a run of `segment train`, with a decoder that was begun and never trained."""
    from unchoke.masks.patches import BandStandard
    from unchoke.masks.segmenter import Segmenter, SegmenterConfig
    from unchoke.masks.trained_segmenter import HEAD_FILE, TrainedSegmenter

    module, spec = _pyramid()
    config = SegmenterConfig(spec, len(NAMES), cut=cut)
    network = Segmenter(config, backbone=module if cut == "none" else None, seed=3)
    frozen = {"engine": "torch", "precision": "f32", "batch": 4, "channels_last": False}
    trained = TrainedSegmenter(
        config=config,
        state=dict(network.state_dict()),
        class_names=NAMES,
        bands=bands,
        normalise="none",
        standard=BandStandard((1500.0,) * 3, (700.0,) * 3),
        overlap_px=OVERLAP_PX,
        grid="finest",
        resampling="bilinear",
        engine={} if cut == "none" else engine or frozen,
        best_epoch=1,
        val={},
    )
    trained.save(folder / HEAD_FILE, extra={})
    record = {"schema": 1, "run": folder.name, "task": {"kind": "segmentation", "names": list(NAMES)}}
    (folder / "record.json").write_text(json.dumps(record))
    return folder


def read(file: Path | str) -> NDArray[Any]:
    import rasterio

    with rasterio.open(file) as opened:
        pixels: NDArray[Any] = opened.read()
    return pixels


def stitch_in_ram(
    plan: StitchPlan, predict: Callable[[list[Box]], NDArray[np.float32]], *, batch: int = 1
) -> NDArray[np.float32]:
    """The whole picture (C, height, width) at once: what `stitch` gives in pieces."""
    sums = np.zeros((plan.num_classes, plan.height, plan.width), np.float32)
    patches = plan_boxes(plan.height, plan.width, size_px=plan.patch_px, overlap_px=plan.overlap_px, edges="padded")
    for first in range(0, len(patches), batch):
        some = patches[first : first + batch]
        for patch, value in zip(some, predict(some), strict=True):
            part = patch.within(plan.height, plan.width)
            (rows, columns), (down, across) = plan.shares(patch), part.slices_in(patch)
            sums[:, *part.slices_in(Box(0, 0, plan.height, plan.width))] += value[:, down, across] * (
                rows[down, None] * columns[across]
            )
    return sums
