"""Several labels: `fit --multi-label` against scikit-learn's one-vs-rest logistic regression on the same features and splits.

One, two or three of the demo's photos side by side, each photo used once: 14 labels. Three random splits. scikit-learn has
standardised features, the penalty that val likes best (of eight), and is trained once more with val, as the default head is.
Thresholds of both are chosen on val by F1. It prints one JSON line.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from photos import demo_photos
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

import unchoke
from unchoke.core.events import ignore
from unchoke.data.manifest import load_manifest
from unchoke.data.several_labels import label_matrix
from unchoke.features.feature_store import FeatureStore
from unchoke.runs.lookup import find_run
from unchoke.training.evaluate import place_features
from unchoke.training.heads.heads import load_head
from unchoke.training.scoring.label_scores import choose_cuts
from unchoke.training.scoring.scores import score

SEEDS, SIDE = (0, 1, 2), (200, 260)
PENALTIES = 10.0 ** np.arange(-4, 4)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = side_by_side(Path(folder))
        found = [measure(table, Path(folder) / f"out{seed}", seed) for seed in SEEDS]
    print(json.dumps({"bench": "multi_label", "labels": 14, "splits": found}))


def side_by_side(work: Path) -> Path:
    files = sorted(demo_photos(work).rglob("*.jpg"))
    draw = random.Random(0)
    draw.shuffle(files)
    target = work / "side_by_side"
    target.mkdir()
    rows = []
    while files:
        part = [files.pop() for _ in range(min(len(files), draw.choice((1, 2, 2, 3))))]
        whole = Image.new("RGB", (SIDE[0] * len(part), SIDE[1]))
        for place, file in enumerate(part):
            whole.paste(Image.open(file).convert("RGB").resize(SIDE), (SIDE[0] * place, 0))
        name = f"{len(rows):04d}.jpg"
        whole.save(target / name, quality=90)
        rows.append((name, "|".join(sorted({file.parent.name for file in part}))))
    with (target / "labels.csv").open("w", newline="") as opened:
        csv.writer(opened).writerows([("path", "label"), *rows])
    return target / "labels.csv"


def measure(table: Path, out: Path, seed: int) -> dict[str, Any]:
    run = unchoke.fit(table, multi_label=True, seed=seed, out=out, on_event=ignore).run
    found = find_run(run, out=out)
    figures = found.record.metrics["test"]
    manifest = load_manifest(found.workspace.manifest_file)
    head, extra = load_head(found.head_file)
    store = FeatureStore(place_features(found, extra["fingerprint"], manifest["sample_id"].tolist()), dim=head.dim)
    rows = {split: np.flatnonzero(manifest["split"] == split) for split in ("train", "val", "test")}
    feats, marks = store.rows(np.arange(len(manifest))).astype(np.float32), label_matrix(manifest["label"].tolist(), head.names)

    def learn(penalty: float, parts: tuple[str, ...]) -> tuple[Any, StandardScaler]:
        where = np.concatenate([rows[part] for part in parts])
        scaler = StandardScaler().fit(feats[where])
        model = OneVsRestClassifier(LogisticRegression(C=penalty, max_iter=1000))
        return model.fit(scaler.transform(feats[where]), marks[where]), scaler

    def answers(model: Any, scaler: StandardScaler, split: str) -> np.ndarray:
        chances = model.predict_proba(scaler.transform(feats[rows[split]])).astype(np.float64).clip(1e-9, 1 - 1e-9)
        return np.log(chances / (1 - chances)).astype(np.float32)

    tried = {penalty: answers(*learn(penalty, ("train",)), "val") for penalty in PENALTIES}
    best = max(tried, key=lambda one: average_precision_score(marks[rows["val"]], tried[one], average="macro"))
    cuts = choose_cuts(tried[best], marks[rows["val"]])
    logits = answers(*learn(best, ("train", "val")), "test")
    theirs = score("multi_label", head.names, logits, marks[rows["test"]], seed=seed, cuts=cuts).values
    names = ("mean_ap", "macro_f1", "micro_f1", "log_loss")
    ours = {name: [round(float(getattr(figures[name], end)), 4) for end in ("value", "low", "high")] for name in names}
    row = {"seed": seed, "unchoke": ours, "one_vs_rest": {name: round(float(theirs[name].value or 0), 4) for name in names}}
    print(row, file=sys.stderr)
    return row


if __name__ == "__main__":
    main()
