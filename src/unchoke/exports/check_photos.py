"""The comparison before a model of photos is handed over: the shipped script beside the run, photo by photo.

In: the folder with the script, the photos the run was judged on, and how the run answers. Out: a `ModelAgreement`. How a run
is opened is not known here.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unchoke.exports.agreement import Answers, ModelAgreement, ModelSpeed, compare, measure_each_s
from unchoke.exports.example_script import load_script
from unchoke.exports.judged_photos import JudgedPhotos, spread
from unchoke.exports.whole_model import PhotoModel
from unchoke.pixels.image import decode_image, read_bytes

TRIED_SIZES = ((33, 33), (47, 33), (160, 120), (640, 480), (500, 750), (1024, 333), (3000, 2000), (6000, 33), (6000, 4000))
"""Width and height, beside those of the test photos."""
TIMED = 12


class RunAnswers(Protocol):
    """The run itself at work."""

    def plain(self, paths: Sequence[str], contents: Mapping[str, bytes]) -> Answers:
        """What it answers in float32 torch; `contents` are files that exist in memory only."""
        ...

    def usual_s(self, paths: Sequence[str]) -> tuple[float, str]:
        """Seconds for a photo as `predict` answers, and by which engine."""
        ...


@dataclass(frozen=True, eq=False)
class PhotoCheck:
    """What is compared."""

    model: PhotoModel
    names: Sequence[str]
    photos: JudgedPhotos
    run: RunAnswers

    def compare(self, built: Path) -> ModelAgreement:
        """The shipped script beside the run in plain torch: on photos as files, and on one of them in many sizes."""
        script, is_class, paths = load_script(built), self.model.is_class, self.photos.paths
        resized = {f"{width}x{height}.ppm": _resized(paths[0], (width, height)) for width, height in TRIED_SIZES}
        theirs = _rows(script.predict(script.read_pixels(path)[None])[0] for path in paths)
        other = _rows(script.predict(script.read_pixels(io.BytesIO(data))[None])[0] for data in resized.values())
        scale = 1.0 if is_class else self._spread()
        recorded = self._recorded()
        return ModelAgreement(
            split=self.photos.split,
            unit="photo",
            num_compared=len(theirs),
            photos=compare(self.run.plain(paths, {}), theirs, is_class=is_class, scale=scale),
            sizes=[list(size) for size in TRIED_SIZES],
            other_sizes=compare(self.run.plain(list(resized), resized), other, is_class=is_class, scale=scale),
            recorded=None if recorded is None else compare(recorded, theirs, is_class=is_class, scale=scale),
            speed=self._speed(lambda path: script.predict(script.read_pixels(path)[None]), script.read_pixels),
        )

    def _speed(self, answer: Callable[[str], object], read: Callable[[str], NDArray[np.uint8]]) -> ModelSpeed:
        import torch

        def by_torch(path: str) -> None:
            with torch.inference_mode():
                self.model(torch.from_numpy(read(path)[None]))

        some = spread(self.photos.paths, TIMED)
        predict_s, engine = self.run.usual_s(self.photos.paths)
        return ModelSpeed(measure_each_s(answer, some), predict_s, engine, measure_each_s(by_torch, some))

    def _recorded(self) -> Answers | None:
        """What the run said of the same photos when it was judged; None where there are too many classes to have kept that."""
        prefix = "p/" if self.model.is_class else "predicted/"
        columns = [f"{prefix}{name}" for name in self.names]
        rows = self.photos.rows
        return rows[columns].to_numpy(np.float64) if set(columns) <= set(rows.columns) else None

    def _spread(self) -> Answers:
        truth = self.photos.rows[[f"truth/{name}" for name in self.names]].to_numpy(np.float64)
        deviations = truth.std(axis=0)
        return np.where(deviations > 0, deviations, 1.0)


def _rows(answers: Iterable[NDArray[np.float32]]) -> Answers:
    return np.stack(list(answers)).astype(np.float64)


def _resized(path: str, size: tuple[int, int]) -> bytes:
    """The photo in another size, as a file that every decoder reads to the same pixels."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(decode_image(read_bytes(path))).resize(size).save(file, "PPM")
    return file.getvalue()
