"""Trees on the bands of single pixels (scikit-learn, seconds), and what they say of every patch.

In: patches with their standardised pixels, masks and splits. Out: trees grown on the train split, and their scores of every patch
in one memory-mapped array; and, to compare with, trees of ordinary size that see means over windows too. A patch that trains is
scored by trees that have not seen its scene: a decoder that is shown the scores then learns how far to trust them elsewhere. The
same patches give the same bytes, on any number of cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, missing_extra
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.units import format_count
from unchoke.masks.patch_arrays import MappedRows, PatchArrays, build_rows, holds
from unchoke.masks.patches import Patch
from unchoke.masks.pixel_trees import NUM_LEAVES, PixelScorer, PixelTrees, find_index, flatten_tree
from unchoke.masks.prepare_patches import PatchMaterial, progress_of
from unchoke.runs.session import Session
from unchoke.scenes.scene_facts import IGNORE
from unchoke.training.checkpoints import load_checkpoint, save_tensors

VERSION = "trees and an index, version 2"
NUM_FOLDS = 4
_MOST_PIXELS, _MOST_PATCHES = 50_000, 512
_NUM_ROUNDS, _MOST_TREES, _FEWEST_ROUNDS = 40, 120, 10
_CHECKED_PIXELS = 2_000
WINDOWS_PX = (5, 15)
_BASELINE_ROUNDS, _BASELINE_LEAVES = 100, 31
"""scikit-learn's own defaults."""
_PIXEL_TREE_S = 2e-8
Predict = Callable[[NDArray[np.int64]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class PixelSample:
    """Labelled pixels of patches that train: their bands (n, bands), their classes, and the position of the patch of each."""

    bands: NDArray[np.float32]
    classes: NDArray[np.uint8]
    positions: NDArray[np.int64]

    def of(self, positions: Sequence[int]) -> PixelSample:
        """Those of some patches alone."""
        own = np.isin(self.positions, positions)
        return PixelSample(self.bands[own], self.classes[own], self.positions[own])


def sample_pixels(
    arrays: PatchArrays, patches: Sequence[Patch], features: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray
) -> PixelSample:
    """As many pixels of each patch that trains, drawn by its id; where patches are very many, of some of them."""
    train = [place for place, patch in enumerate(patches) if patch.split == "train"]
    train = sorted(train, key=lambda place: hash_int("trees", patches[place].patch_id))[:_MOST_PATCHES]
    each = -(-_MOST_PIXELS // max(1, len(train)))
    parts = []
    for place in sorted(train):
        at = np.array([place])
        mask = arrays.masks(at)[0].ravel()
        known = np.flatnonzero(mask != IGNORE)
        drawn = np.random.default_rng(hash_int("pixels", patches[place].patch_id)).permutation(known)[:each]
        drawn.sort()
        bands = features(arrays.pixels(at)[0]).reshape(-1, mask.size)[:, drawn].T.astype(np.float32)
        parts.append((bands, mask[drawn], np.full(len(drawn), place, np.int64)))
    return PixelSample(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def fold_patches(patches: Sequence[Patch], *, num_folds: int = NUM_FOLDS) -> NDArray[np.int64]:
    """The fold of every patch that trains, −1 for the others: whole scenes where there are enough, else neighbours together."""
    train = [place for place, patch in enumerate(patches) if patch.split == "train"]
    scenes = sorted({patches[place].scene_id for place in train}, key=lambda scene_id: hash_int("fold", scene_id))
    folds = np.full(len(patches), -1, np.int64)
    if len(scenes) >= num_folds:
        of_scene = {scene_id: number % num_folds for number, scene_id in enumerate(scenes)}
        folds[train] = [of_scene[patches[place].scene_id] for place in train]
    else:
        folds[train] = np.arange(len(train)) * num_folds // max(1, len(train))
    return folds


def grow_trees(sample: PixelSample, num_classes: int) -> PixelTrees | None:
    """Trees for these pixels; None where they are all of one class. Export and original are compared before anything is kept."""
    found = np.unique(sample.classes)
    if len(found) < 2:
        return None
    model = _fit(sample, len(found))
    try:
        parts = [flatten_tree(tree.nodes) for round_ in model._predictors for tree in round_]
        start = np.asarray(model._baseline_prediction, np.float64).ravel()
    except (AttributeError, ValueError, KeyError, IndexError) as error:
        raise _unreadable(str(error)) from error
    columns, thresholds, ruled_out, values = zip(*parts, strict=True)
    trees = PixelTrees(
        np.array(columns, np.int16),
        np.array(thresholds, np.float32),
        np.array(ruled_out, np.uint8),
        np.array(values, np.float64),
        start,
        tuple(found.tolist()),
        num_classes,
    )
    checked = sample.bands[:: max(1, len(sample.bands) // _CHECKED_PIXELS)]
    if not np.array_equal(trees.raw(checked.T), np.atleast_2d(model.decision_function(checked).T)):
        raise _unreadable("scores of the exported trees differ from the original's")
    return trees


def _fit(sample: PixelSample, num_classes: int) -> Any:
    rounds = _NUM_ROUNDS if num_classes == 2 else min(_NUM_ROUNDS, max(_FEWEST_ROUNDS, _MOST_TREES // num_classes))
    return _boosted(sample.bands, sample.classes, max_iter=rounds, max_leaf_nodes=NUM_LEAVES)


def _boosted(rows: NDArray[np.float32], classes: NDArray[np.uint8], **size: int) -> Any:
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise missing_extra("scikit-learn", extra="segment", purpose="the per-pixel baseline of masks") from error
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=0, categorical_features=None, **size)
    with threadpool_limits(1, user_api="openmp"):  # small trees: threads that wait for each other cost more than they bring
        return model.fit(rows, classes)


def window_means(bands_chw: NDArray[Any]) -> NDArray[np.float32]:
    """(features, h, w): the bands, and the mean of each over windows of several sizes."""
    bands = torch.from_numpy(bands_chw.astype(np.float32))[None]
    means = [F.avg_pool2d(F.pad(bands, (side // 2,) * 4, mode="replicate"), side, stride=1) for side in WINDOWS_PX]
    found: NDArray[np.float32] = torch.cat([bands, *means], dim=1)[0].numpy()
    return found


def grow_baseline(arrays: PatchArrays, patches: Sequence[Patch], num_classes: int) -> Predict | None:
    """What trees of ordinary size over bands and window means say: positions to probabilities. None for one class alone."""
    sample = sample_pixels(arrays, patches, window_means)
    known = np.unique(sample.classes)
    if len(known) < 2:
        return None
    rounds = _BASELINE_ROUNDS if len(known) == 2 else max(_FEWEST_ROUNDS, 3 * _BASELINE_ROUNDS // len(known))
    model = _boosted(sample.bands, sample.classes, max_iter=rounds, max_leaf_nodes=_BASELINE_LEAVES)

    def predict(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        pixels = arrays.pixels(positions)
        found = np.zeros((len(pixels), num_classes, *pixels.shape[2:]), np.float32)
        for place, patch in enumerate(pixels):
            rows = window_means(patch).reshape(-1, patch[0].size).T
            found[place, known] = model.predict_proba(rows).T.reshape(len(known), *patch.shape[1:])
        return found

    return predict


def baseline_seconds(num_patches: int, patch_px: int, num_classes: int) -> float:
    """How long it takes to judge the baseline, roughly, on one core."""
    trees = _BASELINE_ROUNDS if num_classes == 2 else max(_FEWEST_ROUNDS * num_classes, 3 * _BASELINE_ROUNDS)
    return num_patches * patch_px**2 * trees * _PIXEL_TREE_S


def _unreadable(fact: str) -> MachineError:
    return MachineError(
        "the trees of this scikit-learn cannot be kept as plain arrays",
        code="sklearn-unsupported",
        why=fact,
        try_="pip install 'scikit-learn>=1.5,<2'",
    )


def keep_scores(session: Session, material: PatchMaterial) -> PixelScorer | None:
    """Trees of the train split, their scores of all patches put into the material; None where one class alone was seen.

    They are the mean of one set for each fold, grown without it (what sets that saw different scenes agree on holds elsewhere
    more often), with the best index of two bands.
    """
    folder = session.workspace.root / "patches"
    key = digest([VERSION, material.digest, [_MOST_PIXELS, _NUM_ROUNDS, NUM_FOLDS]])
    trees_file = folder / f"scores-{key[:8]}-trees.pt"
    with session.stage("trees", format_count(len(material.patches), "patch", "patches")):
        if not holds(folder, "scores", key) and not _build_scores(session, folder, material, key=key, trees_file=trees_file):
            session.chose(Choice("trees", "none", "the labelled pixels of the patches that train are all of one class"))
            return None
        scorer = PixelScorer.from_dict(load_checkpoint(trees_file))
    rows = MappedRows(folder / f"scores-{key[:8]}.npy", np.arange(len(material.patches)))
    material.arrays = replace(material.arrays, score_rows=rows)
    return scorer


def _build_scores(session: Session, folder: Path, material: PatchMaterial, *, key: str, trees_file: Path) -> bool:
    """Grow the trees and write the scores; false where nothing can be grown."""
    sample, folds = sample_pixels(material.arrays, material.patches), fold_patches(material.patches)
    plain = grow_trees(sample, len(material.class_names))
    if plain is None:
        return False
    index = None  # also where bands are scaled scene by scene, so that no threshold holds for all
    if len(material.class_names) == 2 and material.normalise == "none":
        index = find_index(sample.bands, sample.classes, material.standard)
    without = _grow_without(sample, folds, plain)
    mean = PixelScorer(PixelTrees.mean(without), index)
    places = {patch.patch_id: place for place, patch in enumerate(material.patches)}

    def read(patch: Patch) -> NDArray[np.float16]:
        place = places[patch.patch_id]
        scorer = mean if folds[place] < 0 else PixelScorer(without[int(folds[place])], index)
        return scorer.scores(material.arrays.pixels(np.array([place]))[0])

    def save_trees(_: Path) -> Path:
        save_tensors(trees_file, mean.to_dict())
        return trees_file

    side = material.spec.patch_px
    tell, threads = progress_of(session, "trees", len(material.patches)), session.policy.workers
    shape, blank = (len(material.class_names), side, side), np.float16(0)
    build_rows(
        folder,
        "scores",
        material.patches,
        read,
        key=key,
        shape=shape,
        blank=blank,
        threads=threads,
        on_row=tell,
        beside=save_trees,
    )
    return True


def _grow_without(sample: PixelSample, folds: NDArray[np.int64], plain: PixelTrees) -> list[PixelTrees]:
    """For each fold the trees of the others; `plain` stands for those that would not know every class."""
    found = []
    for fold in range(NUM_FOLDS):
        trees = grow_trees(sample.of(np.flatnonzero((folds >= 0) & (folds != fold)).tolist()), plain.num_classes)
        found.append(trees if trees is not None and trees.classes == plain.classes else plain)
    return found
