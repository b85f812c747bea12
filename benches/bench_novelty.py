"""Photos of a class that no model was trained on: how well scores of novelty tell them from test photos of known classes.

    python benches/bench_novelty.py WORKSPACE

For each class of a workspace with cached features (`unchoke demo photos`): trained without it, scored on it and on test. Beside
the novelty of `predict`: maximum softmax and energy of the linear head that is trained on the same features, one less the cosine
of the nearest training photo.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from bench_curate import Photos
from common import say

from unchoke.core.remembered import load_remembered
from unchoke.core.workspace import Workspace
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.head_trainer import solve_head
from unchoke.training.heads.novelty import fit_novelty


def auroc(new: np.ndarray, known: np.ndarray) -> float:
    """How often a new photo has the higher score."""
    ranks = np.concatenate([new, known]).argsort().argsort() + 1
    return float((ranks[: len(new)].sum() - len(new) * (len(new) + 1) / 2) / (len(new) * len(known)))


def scores(feats: np.ndarray, targets: np.ndarray, splits: np.ndarray, held: int) -> dict[str, np.ndarray]:
    """Each score of every photo, by what was trained without one class."""
    numbers = np.searchsorted(np.unique(targets[targets != held]), targets)
    known = {split: np.flatnonzero((splits == split) & (targets != held)) for split in ("train", "val", "test")}
    names = tuple(str(one) for one in np.unique(targets[targets != held]))
    numbers = np.where(targets == held, 0, numbers)
    problem = Problem("classification", names, numbers, known, [str(row) for row in range(len(feats))])
    source = ArraySource(feats)
    head = solve_head(source, problem, seed=0)
    logits = torch.from_numpy(head.predict(source, np.arange(len(feats)), device=torch.device("cpu")))
    novelty = fit_novelty(source, problem)
    assert novelty is not None
    rows = torch.nn.functional.normalize(
        torch.from_numpy((feats - feats[known["train"]].mean(axis=0, dtype=np.float32)).astype(np.float32))
    )
    return {
        "novelty": novelty.score(feats),
        "softmax": 1 - logits.softmax(dim=1).amax(dim=1).numpy(),
        "energy": -logits.logsumexp(dim=1).numpy(),
        "nearest": 1 - (rows @ rows[known["train"]].T).amax(dim=1).numpy(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace")
    given = parser.parse_args()
    workspace = Path(given.workspace)
    photos = Photos(workspace.name, workspace.parent, load_remembered(Workspace(workspace))["data"])
    splits = photos.table["split"].to_numpy()
    found: dict[str, list[tuple[float, float]]] = {}
    for held in range(len(photos.names)):
        new, known = photos.targets == held, photos.targets != held
        for name, one in scores(photos.feats, photos.targets, splits, held).items():
            limit = np.quantile(one[known & (splits == "val")], 0.95)
            pair = auroc(one[new], one[known & (splits == "test")]), float((one[new] > limit).mean())
            found.setdefault(name, []).append(pair)
    for name, pairs in found.items():
        areas, rejected = zip(*pairs, strict=True)
        say(
            "bench_novelty",
            score=name,
            classes=len(pairs),
            auroc=round(float(np.mean(areas)), 3),
            least=round(min(areas), 3),
            rejected_at_95_kept=round(float(np.mean(rejected)), 3),
        )


if __name__ == "__main__":
    main()
