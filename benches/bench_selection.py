"""What should pick the strength of a linear head, and how much should rare classes count? Over random splits of cached features.

For every way of weighing classes a head is solved along all strengths (`training/heads/linear_path.py`) on 70 % of the photos;
15 % pick the strength by the number of right answers, by balanced accuracy or by log loss; the rest judge. Groups stay whole.

    unchoke fit PHOTOS --out WORKSPACE          # caches the features
    python benches/bench_selection.py WORKSPACE [WORKSPACE…] [--splits 8]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from bench_quality import features_of
from common import say
from numpy.typing import NDArray

from unchoke.training.data import ArraySource, Problem, fit_standardiser
from unchoke.training.heads.heads import ClassWeights, HeadConfig
from unchoke.training.heads.linear_path import STRENGTHS, LinearPath
from unchoke.training.sampling import Rows, Scaler
from unchoke.training.scoring.selection import DeviceTargets

CPU = torch.device("cpu")
WEIGHTS: tuple[ClassWeights, ...] = ("none", "gentle", "tempered", "balanced")
Logits = NDArray[np.float32]


def accuracy(logits: Logits, truth: NDArray[Any], _: NDArray[Any]) -> float:
    return float((logits.argmax(axis=1) == truth).mean())


def balanced(logits: Logits, truth: NDArray[Any], _: NDArray[Any]) -> float:
    right = logits.argmax(axis=1) == truth
    return float(np.mean([right[truth == one].mean() for one in np.unique(truth)]))


def negative_loss(logits: Logits, truth: NDArray[Any], weights: NDArray[Any]) -> float:
    logs = torch.from_numpy(logits).log_softmax(dim=1).numpy()[np.arange(len(truth)), truth]
    return float((logs * weights[truth]).sum() / weights[truth].sum())


PICKERS: dict[str, Callable[[Logits, NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": accuracy,
    "balanced accuracy": balanced,
    "log loss": negative_loss,
}


def draw_sides(groups: NDArray[Any], split: int) -> NDArray[np.int64]:
    """A number from 0 to 19 for each photo, the same for all of a group."""
    names, places = np.unique(groups, return_inverse=True)
    numbers = np.random.default_rng(split).permutation(len(names)) % 20
    return numbers[places]


def one_split(feats: NDArray[np.float16], truth: NDArray[np.int64], sides: NDArray[np.int64]) -> dict[str, tuple[float, float]]:
    parts = {"train": sides < 14, "val": (sides >= 14) & (sides < 17), "test": sides >= 17}
    splits = {name: np.flatnonzero(where).astype(np.int64) for name, where in parts.items()}
    names = tuple(str(number) for number in range(truth.max() + 1))
    problem = Problem("classification", names, truth, splits, [str(number) for number in range(len(truth))])
    source, task = ArraySource(feats), DeviceTargets.of(problem, device=CPU)
    rows = Rows(source, splits["train"], Scaler.on(CPU, fit_standardiser(source, splits["train"])))
    shown = {name: rows.scaler(torch.from_numpy(feats[splits[name]])) for name in ("val", "test")}
    commonest = np.eye(len(names), dtype=np.float32)[[np.bincount(truth[splits["train"]]).argmax()] * len(splits["test"])]
    found = {"commonest": (accuracy(commonest, truth[splits["test"]], truth), balanced(commonest, truth[splits["test"]], truth))}
    for weighting in WEIGHTS:
        config = HeadConfig(solver="lbfgs", epochs=len(STRENGTHS), class_weights=weighting)
        path = LinearPath(rows, task, config)
        logits: dict[str, list[Logits]] = {"val": [], "test": []}
        for step in range(len(STRENGTHS)):
            path.run_epoch(step)
            for name, scaled in shown.items():
                logits[name].append(path.outputs(scaled).numpy())
        counted, test = task.class_weights(weighting).numpy(), truth[splits["test"]]
        for picker, score in PICKERS.items():
            best = int(np.argmax([score(one, truth[splits["val"]], counted) for one in logits["val"]]))
            picked = logits["test"][best]
            found[f"{weighting}, by {picker}"] = (accuracy(picked, test, counted), balanced(picked, test, counted))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspaces", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for workspace in args.workspaces:
        table = pd.read_csv(workspace / "manifest.csv", dtype=str, keep_default_na=False)
        cached = features_of(workspace)
        feats = np.stack([cached[name] for name in table["sample_id"]])
        truth = pd.Categorical(table["label"]).codes.astype(np.int64)
        alone = table["group"].where(table["group"] != "", table["sample_id"])
        rows = [one_split(feats, truth, draw_sides(alone.to_numpy(), split)) for split in range(args.splits)]
        means = {way: np.round(100 * np.mean([row[way] for row in rows], axis=0), 1).tolist() for way in rows[0]}
        say("selection", workspace=workspace.name, photos=len(truth), splits=args.splits, accuracy_and_balanced=means)


if __name__ == "__main__":
    main()
