"""How large patches are, and which side each is on, so that neighbours do not leak from one side to another.

In: opened scenes and the settings. Out: the patch and its overlap in pixels, each with its reason, and a split for every patch.
Of pixels only the labels are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.masks.label_reach import LabelReach, measure_reach
from unchoke.masks.patch_arrays import LabelledPatches
from unchoke.masks.patches import Patch, plan_patches, with_splits
from unchoke.runs.session import Session
from unchoke.scenes.blocks import assign_splits, choose_block_px, place_windows
from unchoke.scenes.scene_facts import SceneFacts

DEFAULT_PATCH_PX = 256
DEFAULT_OVERLAP_PX = 64
SPLITS = ("train", "val", "test")
_SMALLEST_PATCH_PX = 64
_ROUNDED_TO_PX = 32
_SMALLER_PX = (192, 128, 96, 64)
_TRAIN_SHARE = 0.35
"""Where fewer of the patches would train, smaller ones are tried: those that overlap across a border are lost."""
_CERTAINLY_ENOUGH = 4000
"""With so many patches, borders take a small part only; nothing is rehearsed."""


@dataclass(frozen=True)
class Division:
    """A split for each patch, and the side of the blocks it came from."""

    splits: list[str]
    block: Choice

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.splits)


def choose_sizes(session: Session, facts: Sequence[SceneFacts]) -> tuple[int, int]:
    """The side of a patch and how much neighbours share, in pixels."""
    settings = session.settings
    if settings.patch_size is not None:
        patch_px = settings.patch_size
    else:
        choice = choose_patch_px(facts, settings)
        session.chose(choice)
        patch_px = int(choice.value)
    overlap_px = overlap_of(patch_px, settings)
    if overlap_px >= patch_px:
        raise UsageError(
            f"patches of {patch_px} pixels cannot share {overlap_px}",
            code="bad-overlap",
            why="neighbours would never move on",
            try_=f"--overlap {patch_px // 4}",
        )
    return patch_px, overlap_px


def overlap_of(patch_px: int, settings: Settings) -> int:
    """What neighbouring patches share: as asked; else 64 pixels, or a quarter of a smaller patch."""
    return min(DEFAULT_OVERLAP_PX, patch_px // 4) if settings.overlap is None else settings.overlap


def choose_patch_px(facts: Sequence[SceneFacts], settings: Settings) -> Choice:
    """The side of a patch: 256; what holds the largest scene where that is smaller; less where too few patches would train."""
    largest_px = max(max(scene.grid.height, scene.grid.width) for scene in facts)
    step_px = max(_ROUNDED_TO_PX, *settings.strides)
    usual = Choice("patch_size", DEFAULT_PATCH_PX, "the usual size", {"largest_px": largest_px})
    if largest_px < DEFAULT_PATCH_PX:
        rounded = -(-max(largest_px, _SMALLEST_PATCH_PX) // step_px) * step_px
        reason = f"the largest scene is {largest_px} pixels wide or high: one patch holds it, in whole steps of {step_px}"
        usual = Choice("patch_size", rounded, reason, {"largest_px": largest_px})
    return _that_divides(facts, settings, usual, step_px=step_px)


def _that_divides(facts: Sequence[SceneFacts], settings: Settings, usual: Choice, *, step_px: int) -> Choice:
    """`usual`, or the next smaller size that leaves enough to train on, and something on every side.

    Rehearsed with a few seeds of its own, so that the size does not change with the seed of a run.
    """
    tried: dict[int, list[Counter[str]]] = {}
    for size_px in [int(usual.value), *(size for size in _SMALLER_PX if size < usual.value and size % step_px == 0)]:
        overlap_px = overlap_of(size_px, settings)
        if overlap_px >= size_px:
            break
        patches = plan_patches(facts, patch_px=size_px, overlap_px=overlap_px)
        seeds = [] if len(patches) > _CERTAINLY_ENOUGH else [replace(settings, seed=seed) for seed in range(3)]
        tried[size_px] = [divide(facts, patches, one, patch_px=size_px, overlap_px=overlap_px).counts for one in seeds]
        if all(_has_every_side(counts, settings) for counts in tried[size_px]) and _train_share(tried[size_px]) >= _TRAIN_SHARE:
            return usual if size_px == usual.value else _smaller(usual, size_px, tried)
    best = max(tried, key=lambda size: _train_share(tried[size]), default=int(usual.value))
    return usual if best == usual.value else _smaller(usual, best, tried)


def _train_share(rehearsed: Sequence[Counter[str]]) -> float:
    """The mean share of patches that train; all of them where nothing was rehearsed."""
    return sum(counts["train"] / counts.total() for counts in rehearsed) / len(rehearsed) if rehearsed else 1.0


def _has_every_side(counts: Counter[str], settings: Settings) -> bool:
    wanted = {"train": 1.0, "val": settings.val_share, "test": settings.test_share}
    return all(counts[name] for name, share in wanted.items() if share > 0)


def _smaller(usual: Choice, size_px: int, tried: dict[int, list[Counter[str]]]) -> Choice:
    shares = {size: round(_train_share(counts), 3) for size, counts in tried.items()}
    reason = (
        f"of patches of {usual.value} pixels {shares[int(usual.value)]:.0%} could train, of these {shares[size_px]:.0%}: "
        "those that overlap across the border of two sides are left out"
    )
    return Choice("patch_size", size_px, reason, {**usual.evidence, "train_share": {str(size): shares[size] for size in shares}})


def divide(
    facts: Sequence[SceneFacts],
    patches: Sequence[Patch],
    settings: Settings,
    *,
    patch_px: int,
    overlap_px: int,
    buffer_px: int = 0,
) -> Division:
    """A split for every patch: whole scenes go to one side where there are enough, else blocks of scenes, a buffer apart."""
    sizes = [(scene.grid.height, scene.grid.width) for scene in facts]
    block = choose_block_px(sizes, window_px=patch_px, overlap_px=overlap_px, asked=settings.block_px)
    shares = {"val_share": settings.val_share, "test_share": settings.test_share}
    places = place_windows(facts, [(patch.scene_id, patch.box) for patch in patches])
    splits = assign_splits(places, block_px=int(block.value), seed=settings.seed, buffer_px=buffer_px, **shares)
    return Division(splits, block)


def split_patches(
    session: Session, facts: Sequence[SceneFacts], kept: LabelledPatches, *, patch_px: int, overlap_px: int
) -> LabelledPatches:
    """Patches with their splits; those too near to another side are left out, and that is said, as is where labels reach further.

    Two sides of a scene lie as far apart as its labels reach, at most half a patch: more would leave too little to train on.
    """
    reach = measure_reach(kept.arrays, kept.patches, {scene.scene_id: (scene.grid.height, scene.grid.width) for scene in facts})
    sizes = {"patch_px": patch_px, "overlap_px": overlap_px}
    divided, buffer_px = divide(facts, kept.patches, session.settings, **sizes), 0
    if reach is not None:
        apart_px = min(reach.pixels, patch_px // 2)
        apart = divide(facts, kept.patches, session.settings, **sizes, buffer_px=apart_px)
        if set(divided.counts) - {"buffer"} <= set(apart.counts):  # else a side would be lost to the buffer
            divided, buffer_px = apart, apart_px
    counts = divided.counts
    session.chose(divided.block)
    shares = ", ".join(f"{counts[name]:,} {name}" for name in SPLITS)
    near = f"within {buffer_px:,} pixels of another side" if buffer_px else "that share pixels across a border"
    left_out = f"; {format_count(counts['buffer'], 'patch', 'patches')} {near} are left out"
    reason = "blocks of scenes, or whole scenes, go to one side" + (left_out if counts["buffer"] else "")
    session.chose(Choice("splits", shares, reason, dict(counts)))
    if reach is not None and _tears_scenes(kept.patches, divided.splits):
        _tell_reach(session, reach, int(divided.block.value))
    if not counts["train"]:
        raise DataError(
            "no patch is left to train on",
            code="no-training-patches",
            why=f"of {format_count(len(kept.patches), 'labelled patch', 'labelled patches')} there are {shares}",
            try_=f"--patch-size {max(_SMALLEST_PATCH_PX, patch_px // 2)}, or --overlap 0",
        )
    with_sides = LabelledPatches(with_splits(kept.patches, divided.splits), kept.arrays)
    return with_sides.chosen([split in SPLITS for split in divided.splits])


def _tears_scenes(patches: Sequence[Patch], splits: Sequence[str]) -> bool:
    """Whether some scene has patches on several sides."""
    sides: dict[str, set[str]] = {}
    for patch, split in zip(patches, splits, strict=True):
        if split in SPLITS:
            sides.setdefault(patch.scene_id, set()).add(split)
    return any(len(own) > 1 for own in sides.values())


def _tell_reach(session: Session, reach: LabelReach, block_px: int) -> None:
    """How far labels reach beside how large blocks are; where blocks are smaller, that figures flatter."""
    reason = "so far apart the likeness of two labels, above chance, has fallen to 1/e; blocks should be larger"
    session.chose(Choice("label_reach", reach.words, reason, {"reach_px": reach.pixels, "block_px": block_px}))
    if reach.pixels > block_px:
        session.warn(
            f"labels stay alike for {reach.words}, and blocks of {block_px:,} go to one side: what is judged lies among what was "
            f"trained on, and figures flatter; judge on other scenes or dates, or try --block-px {2 * reach.pixels}"
        )
