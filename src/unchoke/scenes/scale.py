"""What the bands of a scene are divided by: one set of constants per scene, the same for every window of it.

A scene and a word for the way come in, constants go out; they are measured once: maxima on all pixels, percentiles on those of a
small scene or on a bounded sample of whole blocks spread evenly over a large one. Applying them is plain float32 arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.boxes import Box
from unchoke.core.errors import UsageError, list_some
from unchoke.core.units import format_count
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.raster import apply_scales, read_box
from unchoke.scenes.scan_scenes import canonical
from unchoke.scenes.scene_facts import SceneFacts

PERCENTILES = (2.0, 98.0)
SAMPLE_PX = 4 << 20
"""A scene up to this many pixels is measured whole; of a larger one, a sample is about as many."""
_SMALLEST_PIECE_PX, _LARGEST_PIECE_PX = 1 << 16, 1 << 18


@dataclass(frozen=True)
class SceneScale:
    """value = (x - low) / divide, for each band; clipped to 0..1 only where `kind` is percentile."""

    kind: str
    divide: tuple[float, ...]
    low: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for records and digests."""
        return {"kind": self.kind, "divide": list(self.divide), "low": list(self.low)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SceneScale:
        """What `to_dict` gave."""
        return cls(values["kind"], *(tuple(map(float, values[name])) for name in ("divide", "low")))


def measure_scale(facts: SceneFacts, how: str, *, pool: HandlePool, threads: int = 1) -> SceneScale:
    """The constants of a scene: `how` is none, max, max:sample, percentile[:LOW,HIGH], a number, or NAME=NUMBER for each band.

    They are measured on valid pixels and physical values: max on all (max:all is the same), the others on a sample of a large
    scene. A band without a valid pixel, or of one value, is left as it is.
    """
    num_bands = facts.num_bands
    kind, _, given = how.partition(":")
    if kind == "none":
        return SceneScale("none", (1.0,) * num_bands, (0.0,) * num_bands)
    if kind == "max":
        if given == "sample":
            highest = [values.max(axis=1) for values in _sample(facts, pool)]
        else:

            def look(box: Box) -> NDArray[np.float32] | None:
                return next((values.max(axis=1) for values in _pieces(facts, [box], pool)), None)

            found = map_ahead(look, _sample_boxes(facts), threads=threads if threads > 1 else 0, ahead=4 * threads)
            highest = [values for values in found if values is not None]
        most = np.max(highest, axis=0) if highest else np.zeros(num_bands, np.float32)
        divide = tuple(float(value) if np.isfinite(value) and value > 0 else 1.0 for value in most)
        return SceneScale("max", divide, (0.0,) * num_bands)
    if kind == "percentile":
        return _measure_percentiles(facts, _percentiles(given, how), pool)
    return SceneScale("given", _given(facts.band_names, how), (0.0,) * num_bands)


def apply_scale(
    bands_float32: NDArray[np.float32], scale: SceneScale, valid: NDArray[np.bool_], *, out: NDArray[np.float32] | None = None
) -> None:
    """Normalise (B, h, w) physical values in place, or into `out`; invalid pixels become 0."""
    out = bands_float32 if out is None else out
    source = bands_float32
    low, divide = (np.asarray(values, np.float32)[:, None, None] for values in (scale.low, scale.divide))
    if any(scale.low):
        source = np.subtract(source, low, out=out)
    if any(value != 1 for value in scale.divide):
        source = np.divide(source, divide, out=out)
    if scale.kind == "percentile":
        source = np.clip(source, 0, 1, out=out)
    if source is not out:
        out[...] = source
    if not valid.all():
        out[:, ~valid] = 0


def to_physical(stored: NDArray[Any], facts: SceneFacts) -> NDArray[np.float32]:
    """A float32 copy of (B, h, w) stored values with each band's scale and offset applied, as `read_box` does it."""
    physical = stored.astype(np.float32)
    apply_scales(facts.bands, physical)
    return physical


def sampled_share(facts: SceneFacts, how: str) -> float:
    """The share of a scene's pixels that its constants are measured on; 1 where all are read, or none need be."""
    return 1 / _times(facts) if how == "max:sample" or how.startswith("percentile") else 1.0


def sampling_text(scenes: Sequence[SceneFacts], how: str) -> str:
    """What to know of constants that were measured on a part of the pixels; nothing where all were read."""
    shares = [share for one in scenes if (share := sampled_share(one, how)) < 1]
    if not shares:
        return ""
    of = f"of {format_count(len(shares), 'large scene')} " if len(shares) < len(scenes) else ""
    above = "" if how != "max:sample" else ", so single values may lie above 1; --normalise max reads them all"
    return f"sampled: {of}{100 * min(shares):.2g} % of the pixels were read{above}"


def _times(facts: SceneFacts) -> int:
    """Every how many pieces of a scene one is sampled."""
    return max(1, round(facts.num_pixels / SAMPLE_PX))


def _measure_percentiles(facts: SceneFacts, percentiles: tuple[float, float], pool: HandlePool) -> SceneScale:
    sampled = list(_sample(facts, pool))
    if not sampled:
        return SceneScale("percentile", (1.0,) * facts.num_bands, (0.0,) * facts.num_bands)
    values = np.concatenate(sampled, axis=1)
    low, high = np.percentile(values, percentiles, axis=1, overwrite_input=True).astype(np.float32)
    span = np.where(high > low, high - low, np.float32(1))
    return SceneScale("percentile", tuple(map(float, span)), tuple(map(float, low)))


def _sample(facts: SceneFacts, pool: HandlePool) -> Iterator[NDArray[np.float32]]:
    """Valid pixels, (B, n) for each box read. Where a sample meets only nodata, other boxes are tried, in the end all of them."""
    boxes, times = _sample_boxes(facts), _times(facts)
    for first in range(times):
        found = False
        for values in _pieces(facts, boxes[first::times], pool):
            found = True
            yield values
        if found:
            return


def _pieces(facts: SceneFacts, boxes: Iterable[Box], pool: HandlePool) -> Iterator[NDArray[np.float32]]:
    """The valid pixels of each box that has some."""
    for box in boxes:
        bands, valid = read_box(facts, box, pool=pool)
        if valid.any():
            yield bands[:, valid] if not valid.all() else bands.reshape(len(bands), -1)


def _sample_boxes(facts: SceneFacts) -> list[Box]:
    """The scene in pieces of about one block, in an order whose every n-th member is spread over rows and columns alike."""
    rows, columns = _piece(facts)
    height, width = facts.grid.height, facts.grid.width
    boxes = []
    for number, top in enumerate(range(0, height, rows)):
        line = [Box(top, left, min(rows, height - top), min(columns, width - left)) for left in range(0, width, columns)]
        start = (number * 7) % len(line)  # each row begins at another place: every n-th piece does not fall into one column
        boxes += line[start:] + line[:start]
    return boxes


def _piece(facts: SceneFacts) -> tuple[int, int]:
    """Rows and columns that are decoded together anyway: whole blocks, several if they are small, part of one if it is huge."""
    rows = max(1, min(max(band.block[0] for band in facts.bands), facts.grid.height))
    columns = max(1, min(max(band.block[1] for band in facts.bands), facts.grid.width))
    if rows * columns < _SMALLEST_PIECE_PX:
        return rows * -(-_SMALLEST_PIECE_PX // (rows * columns)), columns
    if rows * columns > _LARGEST_PIECE_PX:
        side = int(_LARGEST_PIECE_PX**0.5)
        rows = min(rows, max(side, _LARGEST_PIECE_PX // columns))
        return rows, min(columns, _LARGEST_PIECE_PX // rows)
    return rows, columns


def _percentiles(given: str, how: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in given.split(",")) if given else PERCENTILES
    except ValueError:
        low, high = 0.0, 0.0
    if not 0 <= low < high <= 100:
        raise UsageError(
            f"--normalise {how} names no two percentiles",
            code="bad-normalise",
            why="the first must be lower than the second, both from 0 to 100",
            try_="--normalise percentile:2,98",
        )
    return low, high


def _given(names: Sequence[str], how: str) -> tuple[float, ...]:
    """One number for all bands, or one for each band by its name."""
    if "=" not in how:
        return (_number(how, how),) * len(names)
    pairs = (part.partition("=") for part in how.split(","))
    numbers = {canonical(name): _number(text, how) for name, _, text in pairs}
    missing = [name for name in names if canonical(name) not in numbers]
    unknown = sorted(numbers.keys() - {canonical(name) for name in names})
    if missing or unknown:
        fact = f"no number for {list_some(missing)}" if missing else f"there is no band {list_some(unknown)}"
        raise UsageError(
            f"--normalise {how} does not fit the bands",
            code="bad-normalise",
            why=f"{fact}; the bands are {list_some(list(names), limit=20)}",
            try_="--normalise " + ",".join(f"{name}=10000" for name in names[:3]),
        )
    return tuple(numbers[canonical(name)] for name in names)


def _number(text: str, how: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (value > 0 and np.isfinite(value)):
        raise UsageError(
            f"--normalise {how} holds no number to divide by",
            code="bad-normalise",
            why=f"{text!r} is not a number above 0",
            try_="--normalise 10000",
        )
    return value
