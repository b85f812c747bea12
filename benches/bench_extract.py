"""JPEG files to cached features: unchoke against the plain way, on the demo's photos, in one run.

The plain way is what a notebook does: torchvision's ImageFolder with timm's own evaluation transform, a DataLoader with two
workers, and the same timm model in eager float32. Both sides see the same files; the features are then compared picture by
picture. Passes alternate, and the median of each side is taken. Usage: python benches/bench_extract.py [FOLDER] [PASSES]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import say, unchoke, work_folder
from photos import demo_photos

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.agree import compare
from unchoke.features.encoders import load_encoder

VARIANTS = {
    "chosen": (),
    "f32": ("--precision", "f32"),
    "torch-f32": ("--engine", "torch", "--precision", "f32"),
    "int8": ("--precision", "int8"),
}


def plain_pass(photos: Path) -> tuple[np.ndarray, list[str], float]:
    """Features, sample ids and seconds of the plain way; building the model is not counted."""
    prepare_torchvision()
    from timm.data import create_transform, resolve_model_data_config
    from torchvision.datasets import ImageFolder

    model = load_encoder().module
    dataset = ImageFolder(str(photos), transform=create_transform(**resolve_model_data_config(model)))
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, num_workers=2)
    started = time.perf_counter()
    with torch.inference_mode():
        features = torch.cat([model(images) for images, _ in loader])
    seconds = time.perf_counter() - started
    ids = [str(Path(path).relative_to(photos)).replace("\\", "/") for path, _ in dataset.samples]
    return features.numpy(), ids, seconds


def our_pass(photos: Path, out: Path, *options: str) -> dict[str, Any]:
    """A fresh extraction; the seconds are those of the extract stage, decoding and writing shards included."""
    shutil.rmtree(out, ignore_errors=True)
    result, wall_s = unchoke("extract", str(photos), "--out", str(out), *options)
    return {**result, "wall_s": wall_s}


def our_features(out: Path, ids: list[str], folder: str) -> np.ndarray:
    """The shards, read with plain `np.load`, in the order of `ids`."""
    rows: dict[str, np.ndarray] = {}
    for file in sorted(Path(folder).glob("img_*.npz")):
        with np.load(file) as shard:
            rows.update(zip(shard["sample_id"].tolist(), shard["global_pool"], strict=True))
    return np.stack([rows[sample_id] for sample_id in ids]).astype(np.float32)


def main() -> None:
    work = work_folder()
    photos = demo_photos(work)
    passes = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    plain_s: list[float] = []
    ours: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for number in range(passes):
        features, ids, seconds = plain_pass(photos)
        plain_s.append(seconds)
        for name, options in VARIANTS.items():
            if name == "chosen" or number == 0:
                ours[name].append(our_pass(photos, work / f"extract-{name}", *options))
    plain_rate = len(ids) / statistics.median(plain_s)
    figures: dict[str, Any] = {"images": len(ids), "plain_images_per_s": round(plain_rate, 1)}
    for name, results in ours.items():
        seconds = statistics.median(result["seconds"] for result in results)
        agreement = compare(features, our_features(work, ids, results[-1]["folder"]))
        figures[name] = {
            "images_per_s": round(len(ids) / seconds, 1),
            "ratio": round(len(ids) / seconds / plain_rate, 2),
            "mean_cosine": round(agreement.mean_cosine, 5),
            "worst_centred": round(agreement.worst_centred, 5),
            "engine": next(choice["value"] for choice in results[-1]["choices"] if choice["name"] == "engine"),
            "whole_command_s": round(statistics.median(result["wall_s"] for result in results), 1),
        }
    figures["plain_passes_s"] = [round(seconds, 1) for seconds in plain_s]
    figures["chosen_passes_s"] = [round(result["seconds"], 2) for result in ours["chosen"]]
    say("extract", **figures)


if __name__ == "__main__":
    main()
