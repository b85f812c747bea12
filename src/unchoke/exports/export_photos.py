"""The model of a run about photos, ready to be written and compared: classes, values, tiles, blends.

In: a run in its workspace. Out: a `PhotoExport`: the model, facts, photos to fit int8 to, and the comparison of the shipped
script with the run itself, photo by photo: a model is handed over only after it answered for the photos the run was judged on.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.events import ignore
from unchoke.core.units import format_count
from unchoke.data.manifest import load_manifest
from unchoke.exports.agreement import Answers, ModelAgreement, ModelSpeed, compare, measure_each_s
from unchoke.exports.example_script import load_script
from unchoke.exports.whole_model import PhotoModel
from unchoke.pixels.image import decode_image, read_bytes
from unchoke.runs.lookup import FoundRun
from unchoke.training.load_model import AssembledModel, assemble
from unchoke.training.open_models import OpenOptions, answer_here, cut_chunks, open_model
from unchoke.training.scoring.figures import probabilities
from unchoke.training.scoring.predictions import load_predictions

_MAX_CHECKED = 1000
"""Of more test photos this many are compared, at even distances."""
_CALIBRATION_PHOTOS = 128
_TIMED_BY_PREDICT, _TIMED_EACH = 64, 12
TRIED_SIZES = ((33, 33), (47, 33), (160, 120), (640, 480), (500, 750), (1024, 333), (3000, 2000), (6000, 33), (6000, 4000))
"""Width and height, beside those of the test photos."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PhotoExport:
    """A model of photos on its way out; the photos of `split` that the run was judged on, with its own predictions of them."""

    found: FoundRun
    assembled: AssembledModel
    weights: str | Path | None
    split: str
    paths: list[str]
    rows: pd.DataFrame
    train_paths: list[str]

    @classmethod
    def of(cls, found: FoundRun, weights: str | Path | None) -> PhotoExport:
        """Refused where the photos it was judged on (test, or val where there is no test) are gone, or no file can be made."""
        refuse_away(found)
        assert found.workspace is not None, "it was refused"
        table = load_predictions(found.folder / "predictions.csv")
        split = next((split for split in ("test", "val") if (table["split"] == split).any()), None)
        manifest = load_manifest(found.workspace.manifest_file)
        if split is None or manifest is None:
            raise judged_on_nothing(found.record.run, "photos")
        rows = table[table["split"] == split]
        rows = rows.iloc[spread(range(len(rows)), _MAX_CHECKED)]
        known = dict(zip(manifest["sample_id"], manifest["path"], strict=True))
        lost = [sample_id for sample_id in rows["sample_id"] if sample_id not in known or not Path(known[sample_id]).is_file()]
        if lost:
            raise DataError(
                f"photos the run was judged on are gone: {list_some(lost)}",
                code="photos-gone",
                why="a file is handed over only after it answered for them",
                try_="put the files back where manifest.csv says they are",
            )
        train = manifest[manifest["split"] == "train"]["path"] if "split" in manifest else manifest["path"]
        paths, train_paths = [str(known[sample_id]) for sample_id in rows["sample_id"]], [str(path) for path in train]
        return cls(found, assemble(found, weights=weights), weights, split, paths, rows, train_paths)

    @property
    def model(self) -> PhotoModel:
        return self.assembled.model

    @property
    def compared_on(self) -> str:
        """``27 test photos``"""
        return format_count(len(self.paths), f"{self.split} photo")

    def facts(self) -> dict[str, Any]:
        """What is written into the file besides what every file says."""
        assembled = self.assembled
        shown = {"jpeg_cover_px": assembled.cover_px, "least_px": list(assembled.least_px)}
        several = {"thresholds": list(assembled.thresholds)} if assembled.thresholds else {}
        return {"names": list(assembled.names), **several, **shown, "weights": list(assembled.weights)}

    def samples(self) -> list[NDArray[Any]]:
        """Photos of the train split, each a batch of one."""
        paths = spread(self.train_paths, _CALIBRATION_PHOTOS)
        return [decode_image(read_bytes(path), cover_px=self.assembled.cover_px)[None] for path in paths]

    def compare(self, built: Path) -> ModelAgreement:
        """The shipped script in `built` beside the run in plain torch: on photos as files, and on one of them in many sizes."""
        script, is_class, names = load_script(built), self.model.kind != "regression", self.assembled.names
        cuts = self.assembled.thresholds
        resized = {f"{width}x{height}.ppm": _resized(self.paths[0], (width, height)) for width, height in TRIED_SIZES}
        theirs = _rows(script.predict(script.read_pixels(path)[None])[0] for path in self.paths)
        other = _rows(script.predict(script.read_pixels(io.BytesIO(data))[None])[0] for data in resized.values())
        scale: Answers | float = 1.0
        if not is_class:
            deviations = self.rows[[f"truth/{name}" for name in names]].to_numpy(np.float64).std(axis=0)
            scale = np.where(deviations > 0, deviations, 1.0)
        columns = [f"{'p' if is_class else 'predicted'}/{name}" for name in names]
        recorded = None  # of very many classes the run did not keep all probabilities when it was judged
        if set(columns) <= set(self.rows.columns):
            recorded = compare(self.rows[columns].to_numpy(np.float64), theirs, is_class=is_class, scale=scale, cuts=cuts)
        plain = answer_plainly(self.found, self.paths, self.weights)
        plain_resized = answer_plainly(self.found, list(resized), self.weights, resized)
        return ModelAgreement(
            split=self.split,
            unit="photo",
            num_compared=len(theirs),
            photos=compare(plain, theirs, is_class=is_class, scale=scale, cuts=cuts),
            sizes=[list(size) for size in TRIED_SIZES],
            other_sizes=compare(plain_resized, other, is_class=is_class, scale=scale, cuts=cuts),
            recorded=recorded,
            speed=self._speed(script),
        )

    def _speed(self, script: Any) -> ModelSpeed:
        def by_torch(path: str) -> None:
            with torch.inference_mode():
                self.model(torch.from_numpy(script.read_pixels(path)[None]))

        some, many = spread(self.paths, _TIMED_EACH), spread(self.paths, _TIMED_BY_PREDICT)
        model = open_model(self.found, many, OpenOptions(None, self.weights, None, ignore))
        times = []
        for _ in range(2):  # a first pass warms up
            begun = time.perf_counter()
            for _answer in answer_here(model, cut_chunks(many, model.chunk)):
                pass
            times.append(time.perf_counter() - begun)
        engines = dict.fromkeys(f"{engine.name} {engine.precision}" for engine in model.engines)
        file_s = measure_each_s(lambda path: script.predict(script.read_pixels(path)[None]), some)
        return ModelSpeed(file_s, min(times) / len(many), ", ".join(engines) or "torch", measure_each_s(by_torch, some))


def answer_plainly(
    found: FoundRun, paths: Sequence[str], weights: str | Path | None, contents: Mapping[str, bytes] | None = None
) -> Answers:
    """What `predict` answers in float32 by plain torch; `contents` are files that exist in memory only."""

    def read(path: str) -> bytes:
        return contents[path] if contents and path in contents else read_bytes(path)

    model = open_model(found, paths, OpenOptions(None, weights, None, ignore, read=read, plain=True))
    parts = []
    for answer in answer_here(model, cut_chunks(paths, model.chunk), read):
        if answer.broken:
            raise DataError(
                f"photos the run was judged on cannot be read: {list_some(list(answer.broken))}",
                code="unreadable-photos",
                why=next(iter(answer.broken.values())),
                try_="put them back as they were",
            )
        outputs = answer.outputs
        is_class = model.kind != "regression"
        parts.append((probabilities(model.kind, outputs, model.temperature) if is_class else outputs).astype(np.float64))
    return np.concatenate(parts)


def refuse_away(found: FoundRun) -> None:
    """Refuse a run that is not in the workspace it was trained in."""
    if found.workspace is None:
        raise UsageError(
            f"{found.record.run} is away from its photos",
            code="photos-gone",
            why="a file is handed over only after it answered for the photos the run was tested on",
            try_="unchoke export in the workspace where it was trained",
        )


def judged_on_nothing(run: str, what: str) -> DataError:
    """There is nothing to compare a file on."""
    return DataError(
        f"{run} was judged on no {what}",
        code="nothing-to-compare",
        why="a file is handed over only after it answered for some of them",
        try_="train with a test or val split",
    )


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most this many of them, at even distances."""
    return [items[place] for place in np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int))]


def _rows(answers: Iterable[NDArray[np.float32]]) -> Answers:
    return np.stack(list(answers)).astype(np.float64)


def _resized(path: str, size: tuple[int, int]) -> bytes:
    """The photo in another size, as a file that every decoder reads to the same pixels."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(decode_image(read_bytes(path))).resize(size).save(file, "PPM")
    return file.getvalue()
