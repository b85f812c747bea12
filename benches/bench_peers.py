"""What other tools make of the same photos, split, weights and minutes: fastai, AutoGluon MultiModal, a timm loop, scikit-learn.

Runs with the interpreter of an environment in which the tool is installed (not the product's), on the split of a workspace, from
the weights of an exported run, so that all begin from the same network. `sklearn` is the best on val of logistic regressions on
the run's own cached features, plain or balanced, once more on train and val. fastai and the plain loop are told how many epochs
fit, from the time their first steps take; AutoGluon keeps to its own limit. One JSON line for each seed: accuracy and balanced
accuracy on the test photos that the run scored, with 95 % intervals, and the seconds from before anything is loaded; `unchoke`
reads what the workspace's latest run answered.

    unchoke runs export latest exported --out WORKSPACE
    OTHER/bin/python benches/bench_peers.py unchoke|sklearn|timm|fastai|autogluon WORKSPACE exported --minutes 5 --seeds 0,1,2
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

_SIDE, _BATCH, _TIMED = 224, 64, 4
_SPARE_S = 10.0
_STRENGTHS = tuple(10.0**power for power in range(-4, 2))
_DRAWS = 1000


class Task:
    """Photos and labels of each split, the network, its weights, and the time there is."""

    def __init__(self, workspace: Path, exported: Path, minutes: float, seed: int) -> None:
        import pandas as pd

        table = pd.read_csv(workspace / "manifest.csv", dtype=str, keep_default_na=False)
        self.splits = {
            split: table.loc[table["split"] == split, ["sample_id", "path", "label"]].reset_index(drop=True)
            for split in ("train", "val", "test")
        }
        self.workspace, self.seed, self.began = workspace, seed, time.perf_counter()
        self.limit_s = 60 * minutes - _SPARE_S
        run = max(workspace.glob("experiments/exp_*/record.json"), key=lambda file: file.stat().st_mtime)
        self.network = json.loads(run.read_text())["encoder"]["name"]
        scored = pd.read_csv(run.parent / "predictions.csv", dtype=str, keep_default_na=False).set_index("sample_id")["predicted"]
        self.answered, test = scored, self.splits["test"]
        self.splits["test"] = test[test["sample_id"].isin(scored.index)].reset_index(drop=True)
        self.weights = next(exported.rglob("*encoder*.safetensors"), None)

    @property
    def left_s(self) -> float:
        return self.limit_s - (time.perf_counter() - self.began)


def declare_operators() -> Any:
    """torchvision's operators, where its binary does not match torch: nothing here calls them, but its import wants them."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def read_unchoke(task: Task) -> list[str]:
    return [str(answer) for answer in task.answered[task.splits["test"]["sample_id"]]]


def train_sklearn(task: Task) -> list[str]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features = cached_features(task)
    rows = {split: np.stack([features[one] for one in table["sample_id"]]) for split, table in task.splits.items()}
    labels = {split: table["label"].to_numpy() for split, table in task.splits.items()}

    def fitted(strength: float, weights: str | None, *splits: str) -> Any:
        model = LogisticRegression(C=strength, class_weight=weights, max_iter=500, random_state=task.seed)
        return make_pipeline(StandardScaler(), model).fit(
            np.concatenate([rows[split] for split in splits]), np.concatenate([labels[split] for split in splits])
        )

    def val_loss(choice: tuple[float, str | None]) -> float:
        model = fitted(*choice, "train")
        return float(log_loss(labels["val"], model.predict_proba(rows["val"]), labels=list(model.classes_)))

    best = min(((strength, weights) for strength in _STRENGTHS for weights in (None, "balanced")), key=val_loss)
    return [str(answer) for answer in fitted(*best, "train", "val").predict(rows["test"])]


def cached_features(task: Task) -> dict[str, Any]:
    """Sample → features, those the workspace's newest shards hold."""
    shards = sorted((task.workspace / "features").rglob("*.npz"), key=lambda file: file.stat().st_mtime)
    found: dict[str, Any] = {}
    for file in (one for one in shards if one.parent == shards[-1].parent):
        with np.load(file) as shard:
            (rows,) = (shard[name] for name in shard.files if name != "sample_id")
            found |= dict(zip(shard["sample_id"].astype(str), rows.reshape(len(rows), -1).astype(np.float32), strict=True))
    return found


def train_timm(task: Task) -> list[str]:
    """AdamW with a warm-up and a cosine, crops and mirrors, the best epoch on val: the loop most people would write."""
    import timm
    import torch
    from PIL import Image
    from safetensors.torch import load_file
    from timm.data import create_transform, resolve_model_data_config
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, Dataset

    names = sorted(set(task.splits["train"]["label"]))
    model = timm.create_model(task.network, num_classes=len(names))
    left_out = model.load_state_dict(load_file(str(task.weights)), strict=False)
    head = {f"{model.default_cfg['classifier']}.{part}" for part in ("weight", "bias")}
    assert set(left_out.missing_keys) <= head, left_out.missing_keys
    config = resolve_model_data_config(model)

    class Photos(Dataset):  # type: ignore[type-arg]
        def __init__(self, split: str, *, training: bool) -> None:
            self.table, self.show = task.splits[split], create_transform(**config, is_training=training)

        def __len__(self) -> int:
            return len(self.table)

        def __getitem__(self, place: int) -> Any:
            with Image.open(self.table["path"][place]) as image:
                return self.show(image.convert("RGB")), names.index(self.table["label"][place])

    train = DataLoader(Photos("train", training=True), _BATCH, shuffle=True, drop_last=len(task.splits["train"]) > _BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)

    def step(images: Any, labels: Any) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels, label_smoothing=0.1).backward()
        optimizer.step()

    def answers(split: str) -> Any:
        model.eval()
        with torch.inference_mode():
            return torch.cat([model(images) for images, _ in DataLoader(Photos(split, training=False), _BATCH)])

    started, before = time.perf_counter(), {name: value.clone() for name, value in model.state_dict().items()}
    for number, (images, labels) in enumerate(train):
        step(images, labels)
        if number + 1 == _TIMED:
            break
    batch_s = (time.perf_counter() - started) / min(_TIMED, len(train))
    model.load_state_dict(before)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    judged = (len(task.splits["val"]) + len(task.splits["test"])) / _BATCH / 3
    epochs = max(1, math.floor(task.left_s / (batch_s * (len(train) + judged))))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-4, total_steps=epochs * len(train))
    truth, best = torch.tensor([names.index(label) for label in task.splits["val"]["label"]]), (math.inf, before)
    for _ in range(epochs):
        model.train()
        for images, labels in train:
            step(images, labels)
            schedule.step()
        loss = float(F.cross_entropy(answers("val"), truth))
        if loss < best[0]:
            best = loss, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best[1])
    return [names[int(place)] for place in answers("test").argmax(dim=1)]


def train_fastai(task: Task) -> list[str]:
    import pandas as pd
    from fastai.vision.all import ImageDataLoaders, Normalize, Resize, accuracy, aug_transforms, vision_learner
    from safetensors.torch import load_file
    from timm import get_pretrained_cfg

    table = pd.concat([task.splits["train"].assign(is_valid=False), task.splits["val"].assign(is_valid=True)])
    config = get_pretrained_cfg(task.network)
    loaders = ImageDataLoaders.from_df(
        table,
        path="/",
        fn_col="path",
        label_col="label",
        valid_col="is_valid",
        item_tfms=Resize(_SIDE),
        batch_tfms=[*aug_transforms(), Normalize.from_stats(list(config.mean), list(config.std))],
        bs=_BATCH,
        num_workers=0,
    )
    learner = vision_learner(loaders, task.network, pretrained=False, metrics=accuracy)
    left_out = learner.model[0].model.load_state_dict(load_file(str(task.weights)), strict=False)
    assert not left_out.missing_keys, left_out.missing_keys
    learner.freeze()
    with learner.no_bar(), learner.no_logging():
        learner.fine_tune(_epochs_that_fit(learner, loaders, task))
        answers, _ = learner.get_preds(dl=loaders.test_dl(task.splits["test"]["path"].tolist()))
    return [str(loaders.vocab[int(place)]) for place in answers.argmax(dim=1)]


def _epochs_that_fit(learner: Any, loaders: Any, task: Task) -> int:
    """How many epochs of the whole network fit beside one of the head, from the time of some batches."""
    learner.unfreeze()
    started = time.perf_counter()
    for number, (images, labels) in enumerate(loaders.train):
        learner.loss_func(learner.model(images), labels).backward()
        if number + 1 == _TIMED:
            break
    learner.model.zero_grad()
    batch_s = (time.perf_counter() - started) / min(_TIMED, len(loaders.train))
    learner.freeze()
    epoch_s = batch_s * (len(loaders.train) + 0.4 * len(loaders.valid))
    return max(1, math.floor(task.left_s / epoch_s - 0.6))


def train_autogluon(task: Task) -> list[str]:
    _offer_weights(task)
    from autogluon.multimodal import MultiModalPredictor

    tables = {split: table[["path", "label"]] for split, table in task.splits.items()}
    with tempfile.TemporaryDirectory() as folder:
        predictor = MultiModalPredictor(label="label", problem_type="multiclass", path=str(Path(folder) / "model"), verbosity=1)
        predictor.fit(
            tables["train"],
            tuning_data=tables["val"],
            time_limit=task.left_s,
            seed=task.seed,
            hyperparameters={
                "model.names": ["timm_image"],
                "model.timm_image.checkpoint_name": task.network,
                "env.num_gpus": 0,
                "env.num_workers": 0,
                "env.num_workers_inference": 0,
                "optim.max_epochs": 100,
            },
        )
        return [str(answer) for answer in predictor.predict(tables["test"].drop(columns="label"))]


def _offer_weights(task: Task) -> None:
    """Lay the weights where the hub's client finds them without a network."""
    from timm import get_pretrained_cfg

    home = Path(tempfile.mkdtemp())
    os.environ.update(HF_HOME=str(home), HF_HUB_OFFLINE="1")
    place = home / "hub" / f"models--{get_pretrained_cfg(task.network).hf_hub_id.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    (place / "snapshots" / ("0" * 40)).mkdir(parents=True)
    shutil.copy(str(task.weights), place / "snapshots" / ("0" * 40) / "model.safetensors")


TOOLS = {
    "unchoke": read_unchoke,
    "sklearn": train_sklearn,
    "timm": train_timm,
    "fastai": train_fastai,
    "autogluon": train_autogluon,
}


def judged(answers: list[str], truth: list[str]) -> dict[str, Any]:
    """Both accuracies with intervals of 1,000 draws of the test photos."""
    labels, right = np.array(truth), np.array(answers) == np.array(truth)
    draws = np.random.default_rng(0).integers(0, len(labels), (_DRAWS, len(labels)))

    def balanced(chosen: Any) -> float:
        return float(np.mean([right[chosen][labels[chosen] == name].mean() for name in np.unique(labels[chosen])]))

    figures = {"accuracy": lambda chosen: float(right[chosen].mean()), "balanced_accuracy": balanced}
    everything = np.arange(len(labels))
    return {
        name: [round(value, 4) for value in (figure(everything), *np.quantile([figure(draw) for draw in draws], [0.025, 0.975]))]
        for name, figure in figures.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=list(TOOLS))
    parser.add_argument("workspace", type=Path)
    parser.add_argument("exported", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seeds", default="0", help="0,1,2")
    args = parser.parse_args()
    declared = declare_operators() if args.tool in ("timm", "fastai", "autogluon") else None
    for seed in map(int, args.seeds.split(",")):
        random.seed(seed)
        np.random.seed(seed)
        if declared is not None:
            import torch

            torch.manual_seed(seed)
        task = Task(args.workspace, args.exported, args.minutes, seed)
        answers = TOOLS[args.tool](task)
        seconds = round(time.perf_counter() - task.began, 1)
        figures = judged(answers, task.splits["test"]["label"].tolist())
        about = {"tool": args.tool, "network": task.network, "seed": seed, "minutes": args.minutes, "seconds": seconds}
        print(json.dumps({**about, **figures}), flush=True)


if __name__ == "__main__":
    main()
