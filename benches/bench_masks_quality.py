"""How good masks are: a threshold of an index, trees over single pixels, and decoders that see more and more.

`python benches/bench_masks_quality.py DATA OUT [--seeds 0,1,2] [--folds 4] [--only default,maps]`: DATA has `water/` (images and
masks of many small scenes) and `landsat8/` (one scene). Scenes of water are divided into folds, whole scenes together, and the
pixels of all test folds are pooled, so that every scene is judged once for each seed; the one scene is divided into blocks by
each seed. Every finished training is a line of `OUT/done.jsonl`: stopped and run again, it goes on. It prints a table.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from unchoke.core.events import ignore
from unchoke.masks import segment_train as command
from unchoke.masks.mask_trainer import MaskTrainer

VARIANTS = ("maps", "bands", "default")
"""What the decoder sees: the encoder's maps alone, as before; with the bands; with those and what trees say (the default)."""
WATER_BANDS = ",".join(map(str, range(1, 11)))
"""The last two bands leak the label."""
Counts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--only", default=",".join(VARIANTS))
    parser.add_argument("--sets", default="water,landsat8")
    typed = parser.parse_args()
    typed.out.mkdir(parents=True, exist_ok=True)
    done_file = typed.out / "done.jsonl"
    for name in typed.sets.split(","):
        for seed in map(int, typed.seeds.split(",")):
            for fold in range(typed.folds if name == "water" else 1):
                for variant in typed.only.split(","):
                    key = [name, seed, fold, variant]
                    if key not in [row["key"] for row in read(done_file)]:
                        row = {"key": key, **train(typed, name, seed=seed, fold=fold, variant=variant)}
                        with done_file.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                shutil.rmtree(typed.out / f"{name}-{seed}-{fold}", ignore_errors=True)
    show(list(read(done_file)))


def read(file: Path) -> Iterator[dict[str, Any]]:
    if file.is_file():
        yield from map(json.loads, file.read_text().splitlines())


def train(typed: argparse.Namespace, name: str, *, seed: int, fold: int, variant: str) -> dict[str, Any]:
    """One training of one variant, with everything that was judged on its test pixels."""
    place = typed.out / f"{name}-{seed}-{fold}"
    place.mkdir(exist_ok=True)
    if name == "water":
        data = write_table(typed.data / "water", place / "scenes.csv", seed=seed, fold=fold, folds=typed.folds)
        options = {"path": "image", "label": "mask", "split": "split", "bands": WATER_BANDS}
    else:
        data, options = typed.data / name / "bands", {"label": str(typed.data / name / "label.tif")}
    started_s = time.monotonic()
    with seeing(variant):
        result = command.segment_train(
            str(data), out=place / "out", on_event=ignore, seed=seed, engine="torch", precision="f32", **options
        )
    record: Any = result.record
    beside = {held["name"]: held["test"]["confusion"] for held in record["pixel_baselines"]}
    trees = next((counts for words, counts in beside.items() if words.startswith("gradient")), None)
    index = next((counts for words, counts in beside.items() if not words.startswith("gradient")), None)
    return {
        "network": record["confusion"]["test"],
        "trees": trees,
        "index": index,
        "train_s": record["timings"]["train"],
        "trees_s": record["timings"].get("trees", 0.0),
        "total_s": time.monotonic() - started_s,
    }


def seeing(variant: str) -> Any:
    """A decoder of less sight than the default."""
    if variant == "default":
        return mock.patch.object(command, "MaskTrainer", MaskTrainer)
    return mock.patch.object(
        command,
        "MaskTrainer",
        lambda session, material, features, _: partial(MaskTrainer, bands=variant == "bands")(session, material, features),
    )


def write_table(folder: Path, file: Path, *, seed: int, fold: int, folds: int) -> Path:
    """The scenes with their sides: every `folds`-th of an order drawn by the seed is for test, two others for validation."""
    names = sorted(path.stem for path in (folder / "images").glob("*.tif"))
    order = np.random.default_rng(seed).permutation(len(names))
    others = [place for number, place in enumerate(order) if number % folds != fold]
    val = {others[(fold + number * 5) % len(others)] for number in range(2)}
    with file.open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["image", "mask", "split"])
        for number, place in enumerate(order):
            side = "test" if number % folds == fold else "val" if place in val else "train"
            paths = [folder / "images" / f"{names[place]}.tif", folder / "masks" / f"{names[place]}.png"]
            writer.writerow([*(str(path.resolve()) for path in paths), side])
    return file


def show(rows: list[dict[str, Any]]) -> None:
    for name in dict.fromkeys(row["key"][0] for row in rows):
        own = [row for row in rows if row["key"][0] == name]
        seeds = sorted({row["key"][1] for row in own})
        print(f"\n{name}: {'IoU of class 1' if name == 'water' else 'mean IoU'} on the test pixels, by seed, and their mean")
        for what in ("index", "trees", *VARIANTS):
            part = "network" if what in VARIANTS else what
            chosen = [row for row in own if row["key"][3] == (what if what in VARIANTS else "default") and row[part]]
            found = [pooled([row[part] for row in chosen if row["key"][1] == seed], name) for seed in seeds]
            known = [value for value in found if value is not None]
            if known:
                seconds = f"  train {np.mean([row['train_s'] for row in chosen]):.1f} s" if what in VARIANTS else ""
                print(f"{what:10s}" + "".join(f"{value:8.3f}" for value in known) + f"{np.mean(known):10.3f}{seconds}")


def pooled(counts: list[Counts], name: str) -> float | None:
    """Of two classes the IoU of the second, of more the mean, over all pixels together."""
    if not counts:
        return None
    total = np.sum(counts, axis=0)
    hits = np.diag(total)
    ious = hits / np.maximum(1, total.sum(axis=0) + total.sum(axis=1) - hits)
    return float(ious[1] if name == "water" else ious.mean())


if __name__ == "__main__":
    main()
