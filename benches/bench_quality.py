"""How good is the model, on photos of others: the defaults and `--minutes`, beside a logistic regression and the commonest class.

For every set and seed (the seed also draws the split): `fit` as it is typed without options; scikit-learn's logistic
regression on the same cached features and the same split, its strength by val log loss, unweighted and with balanced classes;
`fit --minutes` in a workspace of its own. Test accuracy and balanced accuracy of each, and how long the minutes took. What was
done is found done.

    python benches/bench_quality.py leaves=PHOTOS skin=TABLE.csv,--images,PHOTOS,--id,image_id,--label,dx,--group,lesion_id
    python benches/bench_quality.py leaves=PHOTOS --minutes 5 --seeds 0,1,2 --work bench-out/quality
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from common import say, unchoke
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

STRENGTHS = [10.0**power for power in (-3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5)]
"""scikit-learn's C: the inverse of the penalty."""
Figures = tuple[float, float]


def features_of(workspace: Path) -> dict[str, NDArray[np.float16]]:
    """The cached features by sample."""
    found: dict[str, NDArray[np.float16]] = {}
    for shard in sorted((workspace / "features").rglob("*.npz")):
        with np.load(shard, allow_pickle=False) as arrays:
            names = [name for name in arrays.files if name != "sample_id"]
            found |= dict(zip(arrays["sample_id"].tolist(), arrays[names[0]], strict=True))
    return found


def figures(predicted: NDArray[Any], truth: NDArray[Any]) -> Figures:
    recalls = [float((predicted[truth == name] == name).mean()) for name in np.unique(truth)]
    return float((predicted == truth).mean()), mean(recalls)


def regressions(workspace: Path) -> Iterator[tuple[str, Figures]]:
    """Logistic regressions on what `fit` cached, and always answering the commonest class."""
    table = pd.read_csv(workspace / "manifest.csv", dtype=str, keep_default_na=False)
    cached = features_of(workspace)
    rows = np.stack([cached[name] for name in table["sample_id"]]).astype(np.float32)
    truth, sides = table["label"].to_numpy(), table["split"].to_numpy()
    train, val, test = (sides == side for side in ("train", "val", "test"))
    deviation = rows[train].std(axis=0)
    scaled = (rows - rows[train].mean(axis=0)) / np.where(deviation > 1e-6, deviation, 1)
    names, counts = np.unique(truth[train], return_counts=True)
    yield "commonest", figures(np.full(int(test.sum()), names[counts.argmax()]), truth[test])
    for label, weights in (("regression", None), ("regression, balanced", "balanced")):
        best: tuple[float, Any] = (np.inf, None)
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, class_weight=weights, max_iter=1000).fit(scaled[train], truth[train])
            known = np.isin(truth[val], model.classes_)
            logs = model.predict_log_proba(scaled[val][known])
            places = np.searchsorted(model.classes_, truth[val][known])
            loss = -float(np.maximum(logs[np.arange(len(places)), places], -30).mean())
            best = min(best, (loss, model), key=lambda one: one[0])
        yield label, figures(best[1].predict(scaled[test]), truth[test])


def fitted(words: list[str], workspace: Path, seed: int, *more: str) -> tuple[Figures, float]:
    result, seconds = unchoke("fit", *words, "--out", str(workspace), "--seed", str(seed), *more)
    test = result["metrics"]["test"]
    return (test["accuracy"], test["balanced_accuracy"]), seconds


def judge_set(name: str, words: list[str], seed: int, work: Path, minutes: float) -> dict[str, Any]:
    plain = work / f"{name}-{seed}"
    found, seconds = fitted(words, plain, seed)
    ways: dict[str, Figures] = {"default": found, **dict(regressions(plain))}
    ways[f"--minutes {minutes:g}"], minutes_s = fitted(words, work / f"{name}-{seed}-minutes", seed, "--minutes", f"{minutes:g}")
    figures_in_percent = {way: [round(100 * value, 1) for value in values] for way, values in ways.items()}
    row = {"set": name, "seed": seed, "default_s": round(seconds, 1), "minutes_s": round(minutes_s, 1), **figures_in_percent}
    print(row, file=sys.stderr, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="NAME=DATA[,OPTION,VALUE…]")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--work", type=Path, default=Path("bench-out/quality"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for one in args.sets:
        name, _, words = one.partition("=")
        seeds = map(int, args.seeds.split(","))
        rows += [judge_set(name, words.split(","), seed, args.work, args.minutes) for seed in seeds]
    ways = [key for key in rows[0] if isinstance(rows[0][key], list)]
    means = {
        name: {way: [round(mean(row[way][part] for row in rows if row["set"] == name), 1) for part in (0, 1)] for way in ways}
        for name in dict.fromkeys(row["set"] for row in rows)
    }
    say("quality", rows=rows, means=means)


if __name__ == "__main__":
    main()
