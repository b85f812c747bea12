"""The model of a run about photos, ready to be written and compared: classes, values, tiles, blends.

In: a run in its workspace. Out: a `PhotoExport`: the model, facts, photos to fit int8 to, and the comparison with the run itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError, list_some
from unchoke.core.events import ignore
from unchoke.core.units import format_count
from unchoke.exports.agreement import Answers, ModelAgreement
from unchoke.exports.check_photos import PhotoCheck
from unchoke.exports.judged_photos import JudgedPhotos, find_judged_photos, spread
from unchoke.exports.whole_model import PhotoModel
from unchoke.pixels.image import decode_image, read_bytes
from unchoke.runs.lookup import FoundRun
from unchoke.training.load_model import AssembledModel, assemble
from unchoke.training.open_models import OpenModel, OpenOptions, answer_here, cut_chunks, open_model
from unchoke.training.scoring.figures import softmax

_CALIBRATION_PHOTOS = 128
_TIMED_PHOTOS = 64


@dataclass(frozen=True, eq=False)
class PhotoExport:
    """A model of photos on its way out."""

    found: FoundRun
    assembled: AssembledModel
    photos: JudgedPhotos
    weights: str | Path | None

    @classmethod
    def of(cls, found: FoundRun, weights: str | Path | None) -> PhotoExport:
        """Refused where the photos it was judged on are gone, or no file can be made of it."""
        return cls(found, photos=find_judged_photos(found), assembled=assemble(found, weights=weights), weights=weights)

    @property
    def model(self) -> PhotoModel:
        return self.assembled.model

    @property
    def compared_on(self) -> str:
        """``27 test photos``"""
        return format_count(len(self.photos.paths), f"{self.photos.split} photo")

    def facts(self) -> dict[str, Any]:
        """What is written into the file besides what every file says."""
        assembled = self.assembled
        shown = {"jpeg_cover_px": assembled.cover_px, "least_px": list(assembled.least_px)}
        return {"names": list(assembled.names), **shown, "weights": list(assembled.weights)}

    def samples(self) -> list[NDArray[Any]]:
        """Photos of the train side, each a batch of one."""
        paths = spread(self.photos.train_paths, _CALIBRATION_PHOTOS)
        return [decode_image(read_bytes(path), cover_px=self.assembled.cover_px)[None] for path in paths]

    def compare(self, built: Path) -> ModelAgreement:
        """The files in `built` beside the run."""
        return PhotoCheck(self.model, self.assembled.names, self.photos, RunAtWork(self.found, self.weights)).compare(built)


@dataclass(frozen=True, eq=False)
class RunAtWork:
    """The run itself at work."""

    found: FoundRun
    weights: str | Path | None

    def plain(self, paths: Sequence[str], contents: Mapping[str, bytes]) -> Answers:
        """What `predict` answers with plain torch; `contents` are files that exist in memory only."""

        def read(path: str) -> bytes:
            return contents[path] if path in contents else read_bytes(path)

        model = open_model(self.found, paths, OpenOptions(None, self.weights, None, ignore, read=read, plain=True))
        parts = []
        for answer in answer_here(model, cut_chunks(paths, model.chunk), read):
            if answer.broken:
                raise DataError(
                    f"photos the run was judged on cannot be read: {list_some(list(answer.broken))}",
                    code="unreadable-photos",
                    why=next(iter(answer.broken.values())),
                    try_="put them back as they were",
                )
            parts.append(_said(model, answer.outputs))
        return np.concatenate(parts)

    def usual_s(self, paths: Sequence[str]) -> tuple[float, str]:
        """As `predict` does it, many at a time; a first pass warms up."""
        paths = spread(paths, _TIMED_PHOTOS)
        model = open_model(self.found, paths, OpenOptions(None, self.weights, None, ignore))
        times = []
        for _ in range(2):
            begun = time.perf_counter()
            for _answer in answer_here(model, cut_chunks(paths, model.chunk)):
                pass
            times.append(time.perf_counter() - begun)
        engines = dict.fromkeys(f"{engine.name} {engine.precision}" for engine in model.engines)
        return min(times) / len(paths), ", ".join(engines) or "torch"


def _said(model: OpenModel, outputs: NDArray[np.float32]) -> Answers:
    said = softmax(outputs / model.temperature) if model.kind == "classification" else outputs
    return said.astype(np.float64)
