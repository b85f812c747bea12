"""Which side each window is on, by where it lies: train, val, test, or between them. Pure arithmetic on rectangles.

Neighbouring windows look alike, so windows drawn one by one would let a model see its test set's surroundings. Here whole scenes
go to one side where there are enough of them, else square blocks of a scene. Scenes of one group, and scenes that show the same
ground, are divided together: what lies at one place is on one side. Windows that overlap across a border are taken out of the
side that can spare them. The result depends on the seed, not on the order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from unchoke.core.boxes import Box, plan_starts
from unchoke.core.choices import Choice
from unchoke.core.errors import UsageError
from unchoke.core.fingerprint import hash_unit
from unchoke.core.units import format_count
from unchoke.photos.quotas import OPEN, Unit, fill_quotas
from unchoke.photos.ties import tie_samples
from unchoke.scenes.scene_facts import Grid, SceneFacts

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

Bounds = tuple[float, float, float, float]


@dataclass(frozen=True)
class Placed:
    """A window and where it lies.

    `bounds` (left, bottom, right, top) are those of the whole scene; all scenes' in one coordinate system, as `footprints` gives
    them. `split` is the side the data says; "" leaves it to be chosen.
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
    windows: Sequence[Placed], *, block_px: int, val_share: float = 0.15, test_share: float = 0.15, seed: int = 0
) -> list[str]:
    """A side for every window: train, val, test, or buffer for one that shares pixels with another side.

    A split that a scene was given is kept, except that train yields what a given division lacks (val, test). From train what
    touches val or test becomes buffer, and from val what touches test; windows whose side was given stay. Where few windows
    overlap much, of several divisions the one that loses least is taken; if each leaves nothing to train on, all train.
    """
    _refuse_shares(val_share, test_share)
    wanted = {"train": 1 - val_share - test_share, "val": val_share, "test": test_share}
    spaces = _spaces(windows)
    ground = _on_ground(windows, spaces)
    fixed = _fixed(windows, wanted)
    keys = _unit_keys(windows, ground, block_px=block_px)
    tries = (_without_shared(_fill(windows, keys, fixed, wanted, salt=salt), ground, fixed) for salt in _salts(seed, keys))
    best = _least_lost(tries)
    return best if "train" in best or any(fixed) else ["train"] * len(windows)


def _salts(seed: int, keys: Sequence[str]) -> Iterator[str]:
    """What the divisions that are tried are drawn by; many units need no second try, they come out alike."""
    yield str(seed)
    if len(set(keys)) <= _FEW_UNITS:
        yield from (f"{seed}/{again}" for again in range(1, _TRIES))


def _least_lost(tries: Iterable[list[str]]) -> list[str]:
    """The first division that loses few windows to the borders, or else the one with most sides and most windows left."""
    best: list[str] = []
    best_score = (False, 0, -1)
    for sides in tries:
        counts = Counter(sides)
        lost = counts.pop(BUFFER, 0)
        score = ("train" in counts, len(counts), len(sides) - lost)
        if score > best_score:
            best, best_score = sides, score
        if lost <= _LITTLE_LOST * len(sides):
            return best
    return best


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


def footprints(facts: Sequence[SceneFacts]) -> list[Bounds | None]:
    """Bounds of every scene in one coordinate system: their own if all share it, else degrees. None without one."""
    systems = {one.grid.crs for one in facts if one.grid.crs}
    return [_footprint(one.grid, reproject=len(systems) > 1) if one.grid.crs else None for one in facts]


def block_of(window: Placed, *, block_px: int) -> str:
    """The block of its own scene that a window begins in, as ``row-column``."""
    return f"{window.box.top // block_px}-{window.box.left // block_px}"


def _footprint(grid: Grid, *, reproject: bool) -> Bounds:
    a, b, c, d, e, f = grid.transform
    corners = [(a * x + b * y + c, d * x + e * y + f) for x, y in product((0, grid.width), (0, grid.height))]
    xs, ys = zip(*corners, strict=True)
    bounds = (min(xs), min(ys), max(xs), max(ys))
    if not reproject:
        return bounds
    from rasterio.warp import transform_bounds

    left, bottom, right, top = transform_bounds(grid.crs, "EPSG:4326", *bounds)
    return left, bottom, right, top


def _spaces(windows: Sequence[Placed]) -> dict[str, int]:
    """A number per scene, equal for scenes that are tied by group or by ground, directly or through others."""
    scenes = {window.scene_id: window for window in windows}
    names = sorted(scenes)
    # Each pair that overlaps is one shared "content"; a scene appears once for its group and once for every pair it is in.
    rows = [(name, scenes[name].group and f"group {scenes[name].group}") for name in names]
    for number, (first, second) in enumerate(_overlapping([(name, scenes[name].bounds) for name in names])):
        rows += [(first, f"pair {number}"), (second, f"pair {number}")]
    tied = tie_samples([tie for _, tie in rows], [name for name, _ in rows])
    return {name: int(number) for (name, _), number in zip(rows, tied, strict=True)}


def _overlapping(scenes: Iterable[tuple[str, Bounds | None]]) -> Iterator[tuple[str, str]]:
    """Pairs of scenes whose bounds share ground, by a sweep from left to right. Touching is not sharing."""
    ordered = sorted((bounds, name) for name, bounds in scenes if bounds is not None)
    open_scenes: list[tuple[Bounds, str]] = []
    for bounds, name in ordered:
        slack = 1e-6 * min(bounds[2] - bounds[0], bounds[3] - bounds[1])
        open_scenes = [other for other in open_scenes if other[0][2] > bounds[0] + slack]
        for other, other_name in open_scenes:
            if min(bounds[3], other[3]) - max(bounds[1], other[1]) > slack:
                yield other_name, name
        open_scenes.append((bounds, name))


def _on_ground(windows: Sequence[Placed], spaces: Mapping[str, int]) -> list[_Ground]:
    """Every window in the coordinates of its space: pixels from its upper left corner; without bounds, pixels of the scene."""
    scenes = {window.scene_id: window for window in windows}
    members: dict[int, list[Placed]] = defaultdict(list)
    for name, scene in scenes.items():
        members[spaces[name]].append(scene)
    origins = {space: _origin(inside) for space, inside in members.items()}
    return [_place(window, spaces[window.scene_id], origins[spaces[window.scene_id]]) for window in windows]


def _origin(scenes: Sequence[Placed]) -> tuple[float, float, float, float] | None:
    """Left, top, and the size of the finest pixel (width, height) of a space; None if a scene in it has no place on the map."""
    bounds = [scene.bounds for scene in scenes if scene.bounds is not None]
    if len(bounds) < len(scenes) or not all(scene.scene_width and scene.scene_height for scene in scenes):
        return None
    pixel_widths = [(box[2] - box[0]) / scene.scene_width for box, scene in zip(bounds, scenes, strict=True)]
    pixel_heights = [(box[3] - box[1]) / scene.scene_height for box, scene in zip(bounds, scenes, strict=True)]
    return min(box[0] for box in bounds), max(box[3] for box in bounds), min(pixel_widths), min(pixel_heights)


def _place(window: Placed, space: int, origin: tuple[float, float, float, float] | None) -> _Ground:
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


def _fixed(windows: Sequence[Placed], wanted: Mapping[str, float]) -> list[str]:
    """The side each window was given for good; "" where it is open. Train is open while val or test is lacking altogether."""
    given = {window.split for window in windows} - {""}
    lacking = given and any(wanted[side] > 0 and side not in given for side in SIDES[1:])
    return ["" if lacking and window.split == "train" else window.split for window in windows]


def _unit_keys(windows: Sequence[Placed], ground: Sequence[_Ground], *, block_px: int) -> list[str]:
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
    windows: Sequence[Placed], keys: Sequence[str], fixed: Sequence[str], wanted: Mapping[str, float], *, salt: str
) -> list[str]:
    """A side for every window: as fixed, else that of its unit, which fills the shares in hash order."""
    sides = _open_sides(windows, wanted)
    total = sum(wanted[side] for side in sides)
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for key, side in zip(keys, fixed, strict=True):
        votes[key][side] += 1
    units, followed = [], []
    for key in sorted(votes):
        leader = _leader(votes[key], sides)
        units.append(Unit("", sum(votes[key].values()), (hash_unit(salt, key), key), leader))
        followed.append(key)
    filled = fill_quotas(units, [wanted[side] / total for side in sides], train=0)
    side_of = {key: sides[number] for key, number in zip(followed, filled, strict=True)}
    return [side or side_of[key] for key, side in zip(keys, fixed, strict=True)]


def _open_sides(windows: Sequence[Placed], wanted: Mapping[str, float]) -> tuple[str, ...]:
    """The sides that may receive windows: all with a share; with a given division that lacks some, train and those."""
    given = {window.split for window in windows} - {""}
    lacking = [side for side in SIDES[1:] if wanted[side] > 0 and side not in given]
    if given and lacking:
        return ("train", *lacking)
    return tuple(side for side in SIDES if wanted[side] > 0)


def _leader(votes: Counter[str], sides: Sequence[str]) -> int:
    """The side most fixed windows of a unit are on, as a number; open if none is."""
    fixed = sorted((-count, sides.index(side)) for side, count in votes.items() if side in sides)
    return fixed[0][1] if fixed else OPEN


def _without_shared(sides: Sequence[str], ground: Sequence[_Ground], fixed: Sequence[str]) -> list[str]:
    """Take windows that share ground with a more precious side out: from train first, then from val."""
    result = list(sides)
    for giving, precious in (("train", ("val", "test")), ("val", ("test",))):
        index = _GroundIndex(place for place, side in zip(ground, sides, strict=True) if side in precious)
        for number, (place, side) in enumerate(zip(ground, sides, strict=True)):
            if side == giving and not fixed[number] and index.meets(place):
                result[number] = BUFFER
    return result


class _GroundIndex:
    """Rectangles by the cells they touch, so that asking what one meets looks at a few only."""

    def __init__(self, places: Iterable[_Ground]) -> None:
        kept = list(places)
        self._cell_px = max((max(place.bottom - place.top, place.right - place.left) for place in kept), default=1.0) or 1.0
        self._by_cell: dict[tuple[int, int, int], list[_Ground]] = defaultdict(list)
        for place in kept:
            for cell in self._cells(place):
                self._by_cell[cell].append(place)

    def meets(self, place: _Ground) -> bool:
        return any(_share_ground(place, other) for cell in self._cells(place) for other in self._by_cell.get(cell, ()))

    def _cells(self, place: _Ground) -> Iterator[tuple[int, int, int]]:
        rows = range(int(place.top // self._cell_px), int(place.bottom // self._cell_px) + 1)
        columns = range(int(place.left // self._cell_px), int(place.right // self._cell_px) + 1)
        return ((place.space, row, column) for row, column in product(rows, columns))


def _share_ground(one: _Ground, other: _Ground) -> bool:
    height = min(one.bottom, other.bottom) - max(one.top, other.top)
    return height > _SHARED_PX and min(one.right, other.right) - max(one.left, other.left) > _SHARED_PX


def _refuse_shares(val_share: float, test_share: float) -> None:
    if val_share < 0 or test_share < 0 or val_share + test_share >= 1:
        raise UsageError(
            f"these shares leave nothing to train on: validation {val_share}, test {test_share}",
            why="each must be 0 or more, and together less than 1",
            try_="use 0.15 for each",
        )
