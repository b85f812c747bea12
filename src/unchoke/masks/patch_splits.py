"""How large patches are, and which split each is in, so that neighbours do not leak from one split to another.

In: opened scenes and the settings. Out: the patch and its overlap in pixels, each with its reason, and a split for every patch.
Of pixels only the labels are looked at: splits that lie closer together than the labels of a scene resemble each other share more
than the world does, so they are kept apart, and the reach of labels is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.masks.patch_arrays import PatchArrays
from unchoke.masks.patches import Patch, plan_patches
from unchoke.runs.session import Session
from unchoke.scenes.blocks import assign_splits, choose_block_px, place_windows
from unchoke.scenes.scene_facts import IGNORE, SceneFacts

DEFAULT_PATCH_PX = 256
DEFAULT_OVERLAP_PX = 64
SPLITS = ("train", "val", "test")
_SMALLEST_PATCH_PX = 64
_ROUNDED_TO_PX = 32
_SMALLER_PX = (192, 128, 96, 64)
_TRAIN_SHARE = 0.35
"""If fewer of the patches would train, smaller ones are tried: those that overlap across a border are lost."""
_CERTAINLY_ENOUGH = 4000
"""With so many patches, borders take a small part only; nothing is rehearsed."""
_COARSE_PX = 512
"""At most so many cells along a side of the coarse picture of labels."""
_LEVEL = float(np.exp(-1))
_FEWEST_PAIRS = 100


def choose_sizes(session: Session, facts: Sequence[SceneFacts]) -> tuple[int, int]:
    """The side of a patch and how much neighbours share, in pixels."""
    settings = session.settings
    patch_px = settings.patch_size
    if patch_px is None:
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
    """The side of a patch: 256; what holds the largest scene if that is smaller; less if too few patches would train.

    A smaller size must leave enough to train on, and something in every split. Rehearsed with a few seeds of its own, so that the
    size does not change with the seed of a run.
    """
    largest_px = max(max(scene.grid.height, scene.grid.width) for scene in facts)
    step_px = max(_ROUNDED_TO_PX, *settings.strides)
    usual = Choice("patch_size", DEFAULT_PATCH_PX, "the usual size", {"largest_px": largest_px})
    if largest_px < DEFAULT_PATCH_PX:
        rounded = -(-max(largest_px, _SMALLEST_PATCH_PX) // step_px) * step_px
        reason = f"the largest scene is {largest_px} pixels wide or high: one patch holds it, in whole steps of {step_px}"
        usual = Choice("patch_size", rounded, reason, {"largest_px": largest_px})
    usual_px, wanted = int(usual.value), {"train": 1.0, "val": settings.val_share, "test": settings.test_share}
    shares: dict[int, float] = {}
    best_px = None
    for size_px in [usual_px, *(size for size in _SMALLER_PX if size < usual_px and size % step_px == 0)]:
        overlap_px = overlap_of(size_px, settings)
        if overlap_px >= size_px:
            break
        patches = plan_patches(facts, patch_px=size_px, overlap_px=overlap_px)
        seeds = [] if len(patches) > _CERTAINLY_ENOUGH else [replace(settings, seed=seed) for seed in range(3)]
        sizes = {"patch_px": size_px, "overlap_px": overlap_px}
        tried = [Counter(divide(facts, patches, one, **sizes)[0]) for one in seeds]
        shares[size_px] = sum(counts["train"] / counts.total() for counts in tried) / len(tried) if tried else 1.0
        every = all(counts[name] for counts in tried for name, share in wanted.items() if share > 0)
        if every and shares[size_px] >= _TRAIN_SHARE:
            best_px = size_px
            break
    if best_px is None:
        best_px = max(shares, key=lambda size: shares[size], default=usual_px)
    if best_px == usual_px:
        return usual
    reason = (
        f"of patches of {usual_px} pixels {shares[usual_px]:.0%} could train, of these {shares[best_px]:.0%}: "
        "those that overlap across the border of two splits are left out"
    )
    evidence = {**usual.evidence, "train_share": {str(size): round(share, 3) for size, share in shares.items()}}
    return Choice("patch_size", best_px, reason, evidence)


def divide(
    facts: Sequence[SceneFacts],
    patches: Sequence[Patch],
    settings: Settings,
    *,
    patch_px: int,
    overlap_px: int,
    buffer_px: int = 0,
) -> tuple[list[str], Choice]:
    """A split for every patch, and the side of blocks: whole scenes in one split if there are enough, else blocks of scenes."""
    sizes = [(scene.grid.height, scene.grid.width) for scene in facts]
    block = choose_block_px(sizes, window_px=patch_px, overlap_px=overlap_px, asked=settings.block_px)
    shares = {"val_share": settings.val_share, "test_share": settings.test_share}
    places = place_windows(facts, [(patch.scene_id, patch.box) for patch in patches])
    return assign_splits(places, block_px=int(block.value), seed=settings.seed, buffer_px=buffer_px, **shares), block


def split_patches(
    session: Session,
    facts: Sequence[SceneFacts],
    patches: Sequence[Patch],
    arrays: PatchArrays,
    *,
    patch_px: int,
    overlap_px: int,
) -> tuple[list[Patch], PatchArrays]:
    """Patches with their splits. Those too near to another split are left out; labels that reach further are reported.

    Two splits of a scene lie as far apart as its labels reach, at most half a patch: more would leave too little to train on.
    """
    reach = measure_reach(arrays, patches, {scene.scene_id: (scene.grid.height, scene.grid.width) for scene in facts})
    sizes = {"patch_px": patch_px, "overlap_px": overlap_px}
    (splits, block), buffer_px = divide(facts, patches, session.settings, **sizes), 0
    if reach is not None:
        apart_px = min(reach.pixels, patch_px // 2)
        apart, _ = divide(facts, patches, session.settings, **sizes, buffer_px=apart_px)
        if {*splits} - {"buffer"} <= {*apart}:  # else a split would be lost to the buffer
            splits, buffer_px = apart, apart_px
    counts = Counter(splits)
    session.chose(block)
    shares = ", ".join(f"{counts[name]:,} {name}" for name in SPLITS)
    near = f"within {buffer_px:,} pixels of another split" if buffer_px else "that share pixels across a border"
    left_out = f"; {format_count(counts['buffer'], 'patch', 'patches')} {near} are left out"
    reason = "blocks of scenes, or whole scenes, are in one split" + (left_out if counts["buffer"] else "")
    session.chose(Choice("splits", shares, reason, dict(counts)))
    per_scene: dict[str, set[str]] = {}
    for patch, split in zip(patches, splits, strict=True):
        per_scene.setdefault(patch.scene_id, set()).update({split} - {"buffer"})
    if reach is not None and any(len(found) > 1 for found in per_scene.values()):
        block_px = int(block.value)
        reason = "so far apart the likeness of two labels, above chance, has fallen to 1/e; blocks should be larger"
        session.chose(Choice("label_reach", reach.words, reason, {"reach_px": reach.pixels, "block_px": block_px}))
        if reach.pixels > block_px:
            session.warn(
                f"labels stay alike for {reach.words}, and blocks are {block_px:,} wide: what is scored lies among what was "
                f"trained on, and scores are too high; score on other scenes or dates, or try --block-px {2 * reach.pixels}"
            )
    if not counts["train"]:
        raise DataError(
            "no patch is left to train on",
            code="no-training-patches",
            why=f"of {format_count(len(patches), 'labelled patch', 'labelled patches')} there are {shares}",
            try_=f"--patch-size {max(_SMALLEST_PATCH_PX, patch_px // 2)}, or --overlap 0",
        )
    places = [place for place, split in enumerate(splits) if split in SPLITS]
    return [replace(patches[place], split=splits[place]) for place in places], arrays.keep(np.array(places, np.int64))


@dataclass(frozen=True)
class LabelReach:
    """At `pixels` the likeness of two labels, above chance, has fallen to 1/e; `at_least`: it has not at the longest distance."""

    pixels: int
    at_least: bool = False

    @property
    def words(self) -> str:
        return f"{'over' if self.at_least else 'about'} {self.pixels:,} pixels"


def measure_reach(arrays: PatchArrays, patches: Sequence[Patch], sizes: Mapping[str, tuple[int, int]]) -> LabelReach | None:
    """Over all scenes; `sizes` are their heights and widths. None where every label is the same, or there is no pair.

    Of every scene the label of each n-th pixel is put into a coarse picture, and pairs of its cells, further and further apart
    along rows and columns, are compared.
    """
    step_px = max(1, -(-max(max(size) for size in sizes.values()) // _COARSE_PX))
    coarse = {
        scene_id: np.full((-(-sizes[scene_id][0] // step_px), -(-sizes[scene_id][1] // step_px)), IGNORE, np.uint8)
        for scene_id in dict.fromkeys(patch.scene_id for patch in patches)
    }
    for place, patch in enumerate(patches):
        (height, width), box, mask = sizes[patch.scene_id], patch.box, arrays.masks(np.array([place]))[0]
        rows = np.arange(-(-box.top // step_px) * step_px, min(box.bottom, height), step_px)
        columns = np.arange(-(-box.left // step_px) * step_px, min(box.right, width), step_px)
        coarse[patch.scene_id][np.ix_(rows // step_px, columns // step_px)] = mask[np.ix_(rows - box.top, columns - box.left)]
    pictures = list(coarse.values())
    counts = np.sum([np.bincount(one.ravel(), minlength=IGNORE + 1)[:IGNORE] for one in pictures], axis=0)
    shares = counts / max(1, counts.sum())
    chance = float((shares**2).sum())
    if chance >= 1 or not counts.any():
        return None
    longest = max(max(one.shape) for one in pictures) // 2
    likeness = [(0, 1.0)]
    for lag in sorted({*range(1, 9), *(round(8 * 1.25**n) for n in range(1, 24))}):
        same = pairs = 0
        for one in pictures if lag <= longest else []:
            for first, second in ((one[lag:], one[:-lag]), (one[:, lag:], one[:, :-lag])):
                known = (first != IGNORE) & (second != IGNORE)
                pairs += int(known.sum())
                same += int(((first == second) & known).sum())
        if pairs >= _FEWEST_PAIRS:
            likeness.append((lag, (same / pairs - chance) / (1 - chance)))
    for (near, high), (far, low) in pairwise(likeness):
        if low < _LEVEL:
            share = (high - _LEVEL) / max(high - low, 1e-9)
            return LabelReach(max(1, round((near + share * (far - near)) * step_px)))
    return LabelReach(likeness[-1][0] * step_px, at_least=True) if len(likeness) > 1 else None
