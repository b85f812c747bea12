"""Does a learning curve foretell what twice the photos bring?

Of a run's training photos half are taken as if they were all; the curve of that half says what twice as many would bring, and all
of them say what they did, on the same photos of val and test. In several draws.

    unchoke demo && python benches/bench_curve.py unchoke-demo/workspace
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np
from common import say

from unchoke.data.manifest import load_manifest
from unchoke.features.feature_store import FeatureStore
from unchoke.runs.lookup import find_run
from unchoke.training.data import Problem
from unchoke.training.evaluate import place_features
from unchoke.training.heads.heads import load_head
from unchoke.training.scoring.learning_curve import RidgeRefit, measure_curve

DRAWS = 8


def open_features(workspace: str) -> tuple[FeatureStore, Problem]:
    """The cached features of the latest run of classes, and what was learnt."""
    found = find_run("latest", out=workspace)
    head, extra = load_head(found.head_file)
    manifest = load_manifest(found.workspace.manifest_file).query("split != ''")
    ids, splits = manifest["sample_id"].tolist(), manifest["split"].to_numpy()
    placement = place_features(found, extra["fingerprint"], ids)
    store = FeatureStore(placement, dim=int(extra["encoder"]["dim"]), num_augmented=int(extra["num_augmented"]))
    targets = np.array([head.names.index(label) for label in manifest["label"]])
    positions = {split: np.flatnonzero(splits == split) for split in ("train", "val", "test")}
    return store, Problem("classification", head.names, targets, positions, ids)


def main() -> None:
    store, problem = open_features(sys.argv[1])
    train = problem.positions("train")
    judged = np.sort(np.concatenate([problem.positions(split) for split in ("val", "test")]))
    alone, rows = [""] * len(problem.targets), []
    whole = RidgeRefit(store, problem, judged)(train).argmax(axis=1) == problem.targets[judged]
    for seed in range(DRAWS):
        half = np.sort(np.random.default_rng(seed).permutation(train)[: len(train) // 2])
        known = replace(problem, splits={**problem.splits, "train": half})
        began_s = time.process_time()
        curve = measure_curve(RidgeRefit(store, known, judged), known, alone, seed=seed)
        foretold = curve.next_gain
        rows.append(
            {
                "foretold": foretold and [round(limit, 4) for limit in (foretold.value, foretold.low, foretold.high)],
                "came": round(float(whole.mean()) - curve.points[-1].value, 4),
                "cpu_s": round(time.process_time() - began_s, 2),
            }
        )
    began_s = time.process_time()
    curve = measure_curve(RidgeRefit(store, problem, judged), problem, alone, seed=0)
    say("curve", draws=rows, whole=curve.to_dict(), cpu_s=round(time.process_time() - began_s, 2))


if __name__ == "__main__":
    main()
