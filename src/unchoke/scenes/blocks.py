"""Which split each window is in, by where it lies: train, val, test, or a buffer between them. Pure arithmetic on rectangles.

Neighbouring windows look alike, so windows drawn one by one would let a model see its test set's surroundings. Here whole scenes
are in one split if there are enough of them, else square blocks of a scene. Scenes of one group, and scenes that show the same
ground, are divided together: what lies at one place is in one split. Windows that overlap across a border are taken out of the
split that can spare them. The result depends on the seed, not on the order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box, plan_starts
from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import hash_unit
from unchoke.core.units import format_count
from unchoke.data.quotas import OPEN, Unit, fill_quotas
from unchoke.data.splits import tie_samples
from unchoke.scenes.scene_facts import Bounds, SceneFacts, bounds_of

SIDES = ("train", "val", "test")
BUFFER = "buffer"
ENOUGH_SCENES = 6
"""From this many independent scenes on, whole scenes are divided."""
_LARGEST_UNIT_SHARE = 0.4
"""Unless one of them holds more of the windows than this: the shares could not be met."""
_WINDOWS_PER_BLOCK = 4
_OVERLAPPING_WINDOWS_PER_BLOCK = 8
"""Around a block a ring of overlapping windows is lost: the larger the block, the smaller its share."""
_BLOCKS_PER_SIDE = 3
_FEW_UNITS, _TRIES, _LITTLE_LOST = 100, 16, 0.2
_SHARED_PX = 0.01
"""Windows of scenes on one map share ground if they overlap by more than this; less is rounding."""


@dataclass(frozen=True)
class WindowPlace:
    """A window and where it lies.

    `bounds` (left, bottom, right, top) are those of the whole scene; all scenes' in one coordinate system, as `footprints` gives
    them. `split` is the one the data says; "" leaves it to be chosen.
    """

    scene_id: str
    box: Box
    group: str = ""
    scene_height: int = 0
    scene_width: int = 0
    bounds: Bounds | None = None
    split: str = ""


class _Ground(NamedTuple):
    """A window's rectangle in pixels of the ground it shares with tied scenes."""

    space: int
    top: float
    left: float
    bottom: float
    right: float


def assign_splits(
    windows: Sequence[WindowPlace],
    *,
    block_px: int,
    val_share: float = 0.15,
    test_share: float = 0.15,
    seed: int = 0,
    buffer_px: float = 0.0,
) -> list[str]:
    """A split for every window: train, val, test, or buffer for one that shares pixels with another split, or lies within
    `buffer_px` of it.

    A split that a scene was given is kept, except that train yields what a given division lacks (val, test). From train what
    touches val or test becomes buffer, and from val what touches test; windows whose split was given stay. Where few windows
    overlap much, of several divisions the one that loses least is taken; if each leaves nothing to train on, all train.
    """
    if val_share < 0 or test_share < 0 or val_share + test_share >= 1:
        raise UsageError(
            f"these shares leave nothing to train on: validation {val_share}, test {test_share}",
            code="bad-split-shares",
            why="each must be 0 or more, and together less than 1",
            try_="use 0.15 for each",
        )
    wanted = {"train": 1 - val_share - test_share, "val": val_share, "test": test_share}
    ground = _on_ground(windows, _spaces(windows))
    shared = _sharing_ground(ground, buffer_px=buffer_px)
    fixed = _fixed(windows, wanted)
    keys = _unit_keys(windows, ground, block_px=block_px)
    salts = [str(seed)]
    if len(set(keys)) <= _FEW_UNITS:  # many units come out alike and need no second try
        salts += [f"{seed}/{again}" for again in range(1, _TRIES)]
    best: list[str] = []
    best_score = (False, 0, -1)
    for salt in salts:
        sides = _without_shared(_fill(windows, keys, fixed, wanted, salt=salt), shared, fixed)
        counts = Counter(sides)
        lost = counts.pop(BUFFER, 0)
        score = ("train" in counts, len(counts), len(sides) - lost)
        if score > best_score:
            best, best_score = sides, score
        if lost <= _LITTLE_LOST * len(sides):
            break
    return best if "train" in best or any(fixed) else ["train"] * len(windows)


def choose_block_px(sizes: Sequence[tuple[int, int]], *, window_px: int, overlap_px: int = 0, asked: int | None = None) -> Choice:
    """The side of a block, from the (height, width) of every scene: about 4 windows, 8 if they overlap, fewer in small scenes."""
    if asked is not None:
        return Choice("block_px", asked, "as asked")
    step_px = window_px - overlap_px
    most = _OVERLAPPING_WINDOWS_PER_BLOCK if overlap_px else _WINDOWS_PER_BLOCK
    counts = [min(len(plan_starts(length, window_px, overlap_px)) for length in size) for size in sizes]
    divisible = [count for count in counts if count >= _BLOCKS_PER_SIDE]
    windows = min(most, min(divisible) // _BLOCKS_PER_SIDE) if divisible else 1
    reason = f"{format_count(windows, 'window')} a side: neighbours go to one side together"
    if not divisible:
        reason += "; the scenes are too small for larger blocks"
    elif windows < most:
        reason += f", and the smaller scenes still have {_BLOCKS_PER_SIDE}×{_BLOCKS_PER_SIDE} blocks"
    return Choice("block_px", windows * step_px, reason, {"window_px": window_px, "overlap_px": overlap_px, "scenes": len(sizes)})


def place_windows(facts: Sequence[SceneFacts], windows: Iterable[tuple[str, Box]]) -> list[WindowPlace]:
    """Where each window (the id of its scene, its box) lies."""
    bounds = dict(zip((one.scene_id for one in facts), footprints(facts), strict=True))
    scenes = {one.scene_id: (one.scene, one.grid) for one in facts}
    places = []
    for scene_id, box in windows:
        scene, grid = scenes[scene_id]
        places.append(WindowPlace(scene_id, box, scene.group, grid.height, grid.width, bounds[scene_id], scene.split))
    return places


def footprints(facts: Sequence[SceneFacts]) -> list[Bounds | None]:
    """Bounds of every scene in one coordinate system: their own if all share it, else degrees. None without one."""
    systems = {one.grid.crs for one in facts if one.grid.crs}
    if len(systems) <= 1:
        return [bounds_of(one.grid) if one.grid.crs else None for one in facts]
    from rasterio.warp import transform_bounds

    grids = [one.grid for one in facts]
    return [Bounds(*transform_bounds(grid.crs, "EPSG:4326", *bounds_of(grid))) if grid.crs else None for grid in grids]


def block_of(window: WindowPlace, *, block_px: int) -> str:
    """The block of its own scene that a window begins in, as ``row-column``."""
    return f"{window.box.top // block_px}-{window.box.left // block_px}"


def _spaces(windows: Sequence[WindowPlace]) -> dict[str, int]:
    """A number per scene, equal for scenes that are tied by group or by ground, directly or through others."""
    scenes = {window.scene_id: window for window in windows}
    names = sorted(scenes)
    bounds = sorted((scene.bounds, name) for name, scene in scenes.items() if scene.bounds is not None)
    edges = np.array([box for box, _ in bounds], np.float64).reshape(-1, 4)
    # touching is not sharing
    first, second = _pairs(edges, slack=1e-6 * (edges[:, 2:] - edges[:, :2]).min(axis=1, initial=np.inf))
    # Each pair that overlaps is one shared "content"; a scene appears once for its group and once for every pair it is in.
    rows = [(name, scenes[name].group and f"group {scenes[name].group}") for name in names]
    for number, (one, other) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        rows += [(bounds[one][1], f"pair {number}"), (bounds[other][1], f"pair {number}")]
    tied = tie_samples([tie for _, tie in rows], [name for name, _ in rows])
    return {name: int(number) for (name, _), number in zip(rows, tied, strict=True)}


def _pairs(edges: NDArray[np.float64], *, slack: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rectangles (low x, low y, high x, high y) that overlap another by more than their `slack`, and those others."""
    import shapely

    rectangles = shapely.box(*edges.T)
    first, second = shapely.STRtree(rectangles).query(rectangles)
    common = np.minimum(edges[first, 2:], edges[second, 2:]) - np.maximum(edges[first, :2], edges[second, :2])
    sharing = (first != second) & (common > slack[first, None]).all(axis=1)
    return first[sharing], second[sharing]


def _on_ground(windows: Sequence[WindowPlace], spaces: Mapping[str, int]) -> list[_Ground]:
    """Every window in the coordinates of its space: pixels from its upper left corner; without bounds, pixels of the scene."""
    scenes = {window.scene_id: window for window in windows}
    members: dict[int, list[WindowPlace]] = defaultdict(list)
    for name, scene in scenes.items():
        members[spaces[name]].append(scene)
    origins = {space: _origin(inside) for space, inside in members.items()}
    return [_place(window, spaces[window.scene_id], origins[spaces[window.scene_id]]) for window in windows]


def _origin(scenes: Sequence[WindowPlace]) -> tuple[float, float, float, float] | None:
    """Left, top, and the size of the finest pixel (width, height) of a space; None if a scene in it has no place on the map."""
    bounds = [scene.bounds for scene in scenes if scene.bounds is not None]
    if len(bounds) < len(scenes) or not all(scene.scene_width and scene.scene_height for scene in scenes):
        return None
    pixel_widths = [(box[2] - box[0]) / scene.scene_width for box, scene in zip(bounds, scenes, strict=True)]
    pixel_heights = [(box[3] - box[1]) / scene.scene_height for box, scene in zip(bounds, scenes, strict=True)]
    return min(box[0] for box in bounds), max(box[3] for box in bounds), min(pixel_widths), min(pixel_heights)


def _place(window: WindowPlace, space: int, origin: tuple[float, float, float, float] | None) -> _Ground:
    bounds = window.bounds
    box = window.box.within(window.scene_height, window.scene_width) if window.scene_height else window.box
    if origin is None or bounds is None:
        return _Ground(space, box.top, box.left, box.bottom, box.right)
    left, top, pixel_width, pixel_height = origin
    across = (bounds[2] - bounds[0]) / window.scene_width / pixel_width
    down = (bounds[3] - bounds[1]) / window.scene_height / pixel_height
    x, y = (bounds[0] - left) / pixel_width, (top - bounds[3]) / pixel_height
    # Rounded, so that scenes on one grid agree about where a block begins.
    edges = (y + box.top * down, x + box.left * across, y + box.bottom * down, x + box.right * across)
    return _Ground(space, *(round(edge, 3) for edge in edges))


def _fixed(windows: Sequence[WindowPlace], wanted: Mapping[str, float]) -> list[str]:
    """The side each window was given for good; "" where it is open. Train is open while val or test is lacking altogether."""
    given = {window.split for window in windows} - {""}
    lacking = given and any(wanted[side] > 0 and side not in given for side in SIDES[1:])
    return ["" if lacking and window.split == "train" else window.split for window in windows]


def _unit_keys(windows: Sequence[WindowPlace], ground: Sequence[_Ground], *, block_px: int) -> list[str]:
    """What is divided as a whole: the scenes of a space where there are enough spaces, else a block of a space."""
    names: dict[int, str] = {}
    for window, place in zip(windows, ground, strict=True):
        names[place.space] = min(names.get(place.space, window.scene_id), window.scene_id)
    counts = Counter(place.space for place in ground)
    whole = len(counts) >= ENOUGH_SCENES and max(counts.values()) <= _LARGEST_UNIT_SHARE * len(windows)
    if whole:
        return [names[place.space] for place in ground]
    return [f"{names[place.space]}/{place.top // block_px:.0f}/{place.left // block_px:.0f}" for place in ground]


def _fill(
    windows: Sequence[WindowPlace], keys: Sequence[str], fixed: Sequence[str], wanted: Mapping[str, float], *, salt: str
) -> list[str]:
    """A side for every window: as fixed, else that of its unit, which fills the shares in hash order."""
    given = {window.split for window in windows} - {""}
    lacking = [side for side in SIDES[1:] if wanted[side] > 0 and side not in given]
    # all splits with a share receive windows; of a given division that lacks some, train and those
    sides = ["train", *lacking] if given and lacking else [side for side in SIDES if wanted[side] > 0]
    total = sum(wanted[side] for side in sides)
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for key, side in zip(keys, fixed, strict=True):
        votes[key][side] += 1
    units = []
    for key, counts in sorted(votes.items()):  # a unit follows the split that most of its fixed windows are in
        leaders = sorted((-count, sides.index(side)) for side, count in counts.items() if side in sides)
        units.append(Unit("", counts.total(), (hash_unit(salt, key), key), leaders[0][1] if leaders else OPEN))
    filled = fill_quotas(units, [wanted[side] / total for side in sides], train=0)
    side_of = {key: sides[number] for key, number in zip(sorted(votes), filled, strict=True)}
    return [side or side_of[key] for key, side in zip(keys, fixed, strict=True)]


def _sharing_ground(ground: Sequence[_Ground], *, buffer_px: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Windows that share ground with another or lie closer than `buffer_px`, and those others; each pair both ways."""
    members: dict[int, list[int]] = defaultdict(list)
    for number, place in enumerate(ground):
        members[place.space].append(number)
    found = [(np.empty(0, np.intp), np.empty(0, np.intp))]
    for numbers in members.values():
        rectangles = [(ground[one].left, ground[one].top, ground[one].right, ground[one].bottom) for one in numbers]
        edges = np.array(rectangles, np.float64) + buffer_px / 2 * np.array([-1, -1, 1, 1])
        first, second = _pairs(edges, slack=np.full(len(edges), _SHARED_PX))
        found.append((np.array(numbers)[first], np.array(numbers)[second]))
    return np.concatenate([first for first, _ in found]), np.concatenate([second for _, second in found])


def _without_shared(sides: Sequence[str], shared: tuple[NDArray[np.intp], NDArray[np.intp]], fixed: Sequence[str]) -> list[str]:
    """Take windows that share ground with a more precious side out: from train first, then from val."""
    side, is_open = np.array(sides), np.array([not given for given in fixed])
    first, second = shared
    result = list(sides)
    for giving, precious in (("train", ("val", "test")), ("val", ("test",))):
        lost = first[(side[first] == giving) & is_open[first] & np.isin(side[second], precious)]
        for number in lost.tolist():
            result[number] = BUFFER
    return result
