"""What other tools make of the same photos, split and minutes: fastai's `fine_tune` and AutoGluon MultiModal.

Runs with the interpreter of an environment in which the tool is installed (not the product's), on the split of a workspace and
with the encoder's weights of an exported run, so that all begin from the same network. fastai is told how many epochs fit, from
the time its first steps take; AutoGluon keeps to its own time limit. Test accuracy and balanced accuracy, and the seconds from
before anything is loaded.

    unchoke runs export latest exported --out WORKSPACE
    OTHER/bin/python benches/other_tools.py fastai WORKSPACE exported --minutes 5
    OTHER/bin/python benches/other_tools.py autogluon WORKSPACE exported --minutes 5
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

NETWORK = "tf_efficientnet_lite0"
_SIDE, _BATCH, _TIMED = 224, 64, 4
_SPARE_S = 10.0


def declare_operators() -> Any:
    """torchvision's operators, where its binary does not match torch: nothing here calls them, but its import wants them."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def splits(workspace: Path) -> dict[str, Any]:
    """Paths and labels of each side of the split."""
    import pandas as pd

    table = pd.read_csv(workspace / "manifest.csv", dtype=str, keep_default_na=False)
    return {
        side: table.loc[table["split"] == side, ["path", "label"]].reset_index(drop=True) for side in ("train", "val", "test")
    }


def train_fastai(sides: dict[str, Any], weights: Path, minutes: float, began: float) -> list[str]:
    import pandas as pd
    from fastai.vision.all import ImageDataLoaders, Normalize, Resize, accuracy, aug_transforms, vision_learner
    from safetensors.torch import load_file

    table = pd.concat([sides["train"].assign(is_valid=False), sides["val"].assign(is_valid=True)])
    loaders = ImageDataLoaders.from_df(
        table,
        path="/",
        fn_col="path",
        label_col="label",
        valid_col="is_valid",
        item_tfms=Resize(_SIDE),
        batch_tfms=[*aug_transforms(), Normalize.from_stats([0.498] * 3, [0.502] * 3)],
        bs=_BATCH,
        num_workers=0,
    )
    learner = vision_learner(loaders, NETWORK, pretrained=False, metrics=accuracy)
    left_out = learner.model[0].model.load_state_dict(load_file(weights), strict=False)
    assert not left_out.missing_keys, left_out.missing_keys
    learner.freeze()
    epochs = _epochs_that_fit(learner, loaders, minutes, began)
    learner.fine_tune(epochs)
    judged = loaders.test_dl(sides["test"]["path"].tolist())
    answers, _ = learner.get_preds(dl=judged)
    return [str(loaders.vocab[int(place)]) for place in answers.argmax(dim=1)]


def _epochs_that_fit(learner: Any, loaders: Any, minutes: float, began: float) -> int:
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
    left_s = 60 * minutes - _SPARE_S - (time.perf_counter() - began)
    return max(1, math.floor(left_s / epoch_s - 0.6))


def train_autogluon(sides: dict[str, Any], weights: Path, minutes: float, began: float) -> list[str]:
    _offer_weights(weights)
    from autogluon.multimodal import MultiModalPredictor

    with tempfile.TemporaryDirectory() as folder:
        predictor = MultiModalPredictor(label="label", problem_type="multiclass", path=str(Path(folder) / "model"), verbosity=1)
        predictor.fit(
            sides["train"],
            tuning_data=sides["val"],
            time_limit=60 * minutes - _SPARE_S - (time.perf_counter() - began),
            hyperparameters={
                "model.names": ["timm_image"],
                "model.timm_image.checkpoint_name": NETWORK,
                "env.num_gpus": 0,
                "env.num_workers": 0,
                "env.num_workers_inference": 0,
                "optim.max_epochs": 100,
            },
        )
        return [str(answer) for answer in predictor.predict(sides["test"].drop(columns="label"))]


def _offer_weights(weights: Path) -> None:
    """Lay the weights where the hub's client finds them without a network."""
    home = Path(tempfile.mkdtemp())
    os.environ.update(HF_HOME=str(home), HF_HUB_OFFLINE="1")
    place = home / "hub" / f"models--timm--{NETWORK}.in1k"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    (place / "snapshots" / ("0" * 40)).mkdir(parents=True)
    shutil.copy(weights, place / "snapshots" / ("0" * 40) / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=["fastai", "autogluon"])
    parser.add_argument("workspace", type=Path)
    parser.add_argument("exported", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    args = parser.parse_args()
    began = time.perf_counter()
    declared = declare_operators()
    sides = splits(args.workspace)
    weights = next(args.exported.rglob("*encoder*.safetensors"))
    train = {"fastai": train_fastai, "autogluon": train_autogluon}[args.tool]
    answers, truth = train(sides, weights, args.minutes, began), sides["test"]["label"].tolist()
    right = [answer == wanted for answer, wanted in zip(answers, truth, strict=True)]
    recalls = [_share([one for one, wanted in zip(right, truth, strict=True) if wanted == name]) for name in sorted(set(truth))]
    figures = {"accuracy": _share(right), "balanced_accuracy": _share(recalls), "seconds": round(time.perf_counter() - began, 1)}
    del declared
    print(json.dumps({"tool": args.tool, "minutes": args.minutes, **figures}))


def _share(values: list[Any]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
