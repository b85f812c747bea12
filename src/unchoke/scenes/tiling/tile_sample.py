"""A few windows of the user's scenes to measure on: which scenes, which strips, and how `unchoke tile` would make their tiles.

In: a session whose settings describe scenes. Out: strips from the middle of some of them. No tile is made here; what has to be
measured first (constants of scenes, how to write) is kept where `unchoke tile` finds it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unchoke.core.boxes import Box
from unchoke.core.findings import Finding
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling.tile_choices import Recipe, choose_masks, choose_recipe
from unchoke.scenes.tiling.tile_scenes import find_scenes, measure_scales
from unchoke.scenes.tiling.tiles import Strip, TileSpec, plan_strips

_MOST_SCENES = 4


@dataclass(frozen=True)
class Sampled:
    """Windows of one scene that lie beside each other, as the strips that `unchoke tile` would read."""

    spec: TileSpec
    strips: tuple[Strip, ...]

    @property
    def boxes(self) -> list[Box]:
        return [window.box for strip in self.strips for window in strip.windows]


def sample_windows(session: Session, *, windows: int, workers: int, folder: Path) -> tuple[list[Sampled], list[Finding]]:
    """Windows from the middle of a few scenes, spread over the list of them; and what was found on the way.

    Tiles made of them would go to `folder`.
    """
    kept = session.workspace.root / "tiles"
    pool = HandlePool()
    try:
        found = find_scenes(session, pool=pool, threads=workers)
        found.facts = _spread(found.facts, min(windows, _MOST_SCENES))
        scales = measure_scales(session, found, pool=pool, threads=workers, file=kept / "scales.json")
        recipe = choose_recipe(session, found.facts, scales, pool=pool, workers=workers, root=kept)
    finally:
        pool.close()
    specs = _specs(session, found.facts, scales, recipe, folder)
    share = -(-windows // len(specs))
    return [Sampled(spec, take_strips(spec, share, workers=workers)) for spec in specs], found.findings


def _spread(items: Sequence[SceneFacts], count: int) -> list[SceneFacts]:
    """`count` items at even distances, the first among them; all, where there are no more."""
    return [items[number * len(items) // count] for number in range(count)] if len(items) > count else list(items)


def _specs(
    session: Session, facts: Sequence[SceneFacts], scales: Mapping[str, SceneScale], recipe: Recipe, folder: Path
) -> list[TileSpec]:
    """How `unchoke tile` makes the tiles of each scene; none is skipped as empty, so that both ways make the same ones."""
    masks = choose_masks(session, facts)
    return [
        TileSpec(
            facts=one,
            scale=scales[one.scene_id],
            folder=str(folder / one.scene_id),
            size_px=recipe.tile_px,
            overlap_px=recipe.overlap_px,
            edges=session.settings.edges,
            mask=masks[one.scene_id],
            compress=recipe.compress,
            store=session.settings.store,
        )
        for one in facts
    ]


def take_strips(spec: TileSpec, windows: int, *, workers: int = 1) -> tuple[Strip, ...]:
    """Strips from the middle of a scene, with so many windows in all (fewer where it has no more), evenly for all workers.

    From the middle, because the rims of a scene are often empty, which any way of tiling is quick at.
    """
    strips = plan_strips(spec.facts, spec)
    needed = -(-windows // max(len(strip.windows) for strip in strips))
    count = min(len(strips), -(-needed // workers) * workers)
    first = (len(strips) - count) // 2
    taken: list[Strip] = []
    for place, strip in enumerate(strips[first : first + count]):
        left = windows - sum(len(one.windows) for one in taken)
        taken.append(_first_windows(strip, -(-left // (count - place))))
    return tuple(strip for strip in taken if strip.windows)


def _first_windows(strip: Strip, count: int) -> Strip:
    """The strip, or as much of it as holds its first windows."""
    if not 0 < count < len(strip.windows):
        return strip if count else replace(strip, windows=())
    windows = strip.windows[:count]
    top, left = min(window.box.top for window in windows), min(window.box.left for window in windows)
    bottom, right = max(window.box.bottom for window in windows), max(window.box.right for window in windows)
    return replace(strip, windows=windows, box=Box(top, left, bottom - top, right - left).common(strip.box) or strip.box)
