"""What brings how much on frozen features: the scale of features, val photos in training, mirrored photos, further encoders.

Every set is a workspace after `unchoke extract DATA --cut blocks --precision f32`, one for each encoder, and perhaps one more of
the same photos mirrored (same names, another folder). Over random splits (70 % train, 15 % val, 15 % test, groups kept whole) a
linear head is solved along its penalties, as `fit` does it: accuracy and log loss on test, means over the splits.

    python benches/bench_brings.py leaves=work0,work1,work2 --mirrored leaves=mirrored0 --splits 6
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from bench_quality import features_of
from common import say
from numpy.typing import NDArray

from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.head_trainer import refit_head, solve_head
from unchoke.training.scoring.figures import fit_temperature, log_losses, softmax

CPU = torch.device("cpu")


def load(workspace: Path, like: pd.DataFrame | None = None) -> tuple[pd.DataFrame, NDArray[np.float16]]:
    """The manifest and the features of each of its samples."""
    found = features_of(workspace)
    table = pd.read_csv(workspace / "manifest.csv", dtype=str, keep_default_na=False) if like is None else like
    table = table[table["sample_id"].isin(found.keys())].reset_index(drop=True)
    return table, np.stack([found[name].reshape(-1) for name in table["sample_id"]])


def draw(table: pd.DataFrame, seed: int) -> dict[str, NDArray[np.int64]]:
    """A random split that keeps groups whole."""
    units = table["group"].where(table["group"] != "", table["sample_id"]).to_numpy()
    names = np.random.default_rng(seed).permutation(np.unique(units))
    place = dict(zip(names, np.arange(len(names)) / len(names), strict=True))
    share = np.array([place[unit] for unit in units])
    sides = {"train": share < 0.7, "val": (share >= 0.7) & (share < 0.85), "test": share >= 0.85}
    return {side: np.flatnonzero(inside) for side, inside in sides.items()}


def answer(feats: NDArray[Any], problem: Problem, *, refit: bool, tta: bool = False) -> NDArray[np.float32]:
    """Probabilities for the test split, calibrated on val."""
    source, val, test = ArraySource(feats), problem.positions("val"), problem.positions("test")
    views = range(source.num_views if tta else 1)
    head = solve_head(source, problem, seed=0)
    outputs = np.mean([head.logits(source.rows(val, view)) for view in views], axis=0)
    temperature = fit_temperature(outputs, problem.targets[val])[0]
    head = refit_head(source, problem, head, device=CPU) if refit else head
    return softmax(np.mean([head.logits(source.rows(test, view)) for view in views], axis=0) / temperature)


def one_split(problem: Problem, encoders: list[NDArray[np.float16]], mirrored: NDArray[np.float16] | None) -> dict[str, Any]:
    """The answers of every way for one split."""
    first, train = encoders[0], problem.positions("train")
    deviation = first[train].astype(np.float32).std(axis=0)
    own_scale = first.astype(np.float32) / np.where(deviation > 1e-6, deviation, 1)
    ways = {
        "each feature by its own deviation": answer(own_scale, problem, refit=False),
        "none by less than half of them (what is used)": answer(first, problem, refit=False),
        "the same, val trained on in the end (what is used)": answer(first, problem, refit=True),
    }
    if mirrored is not None:
        both = np.stack([first, mirrored], axis=1)
        ways["the same, mirrored photos trained on and averaged"] = answer(both, problem, refit=True, tta=True)
    total = ways["the same, val trained on in the end (what is used)"]
    for count, feats in enumerate(encoders[1:], start=2):
        total = total + answer(feats, problem, refit=True)
        ways[f"{count} encoders averaged"] = total / count
    return ways


def measure(name: str, workspaces: list[Path], mirrored: Path | None, num_splits: int) -> dict[str, dict[str, float]]:
    table, first = load(workspaces[0])
    encoders = [first, *(load(workspace, table)[1] for workspace in workspaces[1:])]
    flipped = None if mirrored is None else load(mirrored, table)[1]
    names, targets = np.unique(table["label"], return_inverse=True)
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(num_splits):
        sides = draw(table, seed)
        problem = Problem("classification", tuple(names), targets.astype(np.int64), sides, table["sample_id"].tolist())
        truth = targets[sides["test"]]
        for way, shares in one_split(problem, encoders, flipped).items():
            losses = log_losses(np.log(np.maximum(shares, 1e-9)), truth)
            found.setdefault(way, []).append((100 * float((shares.argmax(axis=1) == truth).mean()), float(losses.mean())))
    means = {way: np.mean(rows, axis=0) for way, rows in found.items()}
    return {f"{name}: {way}": {"accuracy": round(one[0], 1), "log_loss": round(one[1], 3)} for way, one in means.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="NAME=WORKSPACE[,WORKSPACE of another encoder…]")
    parser.add_argument("--mirrored", action="append", default=[], help="NAME=WORKSPACE")
    parser.add_argument("--splits", type=int, default=6)
    args = parser.parse_args()
    flipped = dict(one.split("=", 1) for one in args.mirrored)
    for one in args.sets:
        name, _, places = one.partition("=")
        mirrored = Path(flipped[name]) if name in flipped else None
        say("brings", **measure(name, [Path(place) for place in places.split(",")], mirrored, args.splits))


if __name__ == "__main__":
    main()
