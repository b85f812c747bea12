"""Ripeness of mango / papaya on the sorting belt, 5 stages.

datasets + Trainer around a small Swin. Stage is the folder name:
    belt/<day>/<stage>/<lane>_<time>.jpg
"""
import argparse
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import evaluate
import multiprocessing as mp
import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features
from datasets import Image as HFImage
from PIL import Image
from torchvision.transforms import ColorJitter, Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor, CenterCrop
from transformers import AutoImageProcessor, AutoModelForImageClassification, Trainer, TrainingArguments

mp.set_start_method("spawn", force=True)

STAGES = ["green", "breaker", "turning", "ripe", "overripe"]
CKPT = "pretrained/swin-tiny-patch4-window7-224"
metric = evaluate.load("accuracy")


def list_days(root):
    days = sorted(d for d in Path(root).iterdir() if d.is_dir())
    with ThreadPoolExecutor(8) as ex:
        files = list(ex.map(lambda d: sorted(d.glob("*/*.jpg")), days))
    return dict(zip([d.name for d in days], files))


def load_split(paths):
    images, labels = [], []
    for p in paths:
        with Image.open(p) as im:
            images.append(im.convert("RGB"))
        labels.append(STAGES.index(p.parent.name))
    feats = Features({"image": HFImage(), "label": ClassLabel(names=STAGES)})
    return Dataset.from_dict({"image": images, "label": labels}, features=feats), images


def contact_sheet(images, out="sheet.jpg"):
    tiles = [np.array(im.resize((160, 160))) for im in images[:24]]
    rows = [np.hstack(tiles[k:k + 6]) for k in range(0, 24, 6)]
    cv2.imwrite(out, np.vstack(rows))


def collate(batch):
    return {
        "pixel_values": torch.stack([b["pixel_values"] for b in batch]),
        "labels": torch.tensor([b["label"] for b in batch]),
    }


def accuracy(pred):
    return metric.compute(predictions=pred.predictions.argmax(-1), references=pred.label_ids)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("root")
    ap.add_argument("--warm", help="weights from last season")
    args = ap.parse_args()

    random.seed(8)
    days = list_days(args.root)
    names = list(days)
    test_days = names[-3:]  # last days of the season, fruit is riper then
    train_paths = [p for d in names[:-3] for p in days[d]]
    test_paths = [p for d in test_days for p in days[d]]
    random.shuffle(train_paths)
    print(Counter(p.parent.name for p in train_paths))

    train_ds, train_images = load_split(train_paths)
    test_ds, _ = load_split(test_paths)
    contact_sheet(train_images)

    proc = AutoImageProcessor.from_pretrained(CKPT)
    norm = Normalize(proc.image_mean, proc.image_std)
    aug = Compose([RandomResizedCrop(224, scale=(0.6, 1.0)), RandomHorizontalFlip(), ColorJitter(0.1, 0.1), ToTensor(), norm])
    plain = Compose([CenterCrop(224), ToTensor(), norm])

    def prep_train(b):
        b["pixel_values"] = [aug(im) for im in b["image"]]
        return b

    def prep_test(b):
        b["pixel_values"] = [plain(im) for im in b["image"]]
        return b

    train_ds = train_ds.with_transform(prep_train)
    test_ds = test_ds.with_transform(prep_test)

    model = AutoModelForImageClassification.from_pretrained(
        CKPT,
        num_labels=len(STAGES),
        id2label=dict(enumerate(STAGES)),
        label2id={s: i for i, s in enumerate(STAGES)},
        ignore_mismatched_sizes=True,
    )
    if args.warm:
        state = torch.load(args.warm, map_location="cpu")
        missing = model.load_state_dict(state, strict=False)
        print("not in the file:", missing.missing_keys)
    model = torch.compile(model)

    targs = TrainingArguments(
        output_dir="runs/ripeness",
        num_train_epochs=10,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        learning_rate=5e-5,
        warmup_ratio=0.1,
        weight_decay=0.02,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=50,
        report_to="tensorboard",
        remove_unused_columns=False,
        seed=8,
    )
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=train_ds,
        eval_dataset=test_ds,
        data_collator=collate,
        compute_metrics=accuracy,
    )
    trainer.train()
    print(trainer.evaluate())

    # for the box next to the belt, it builds the plain Swin and loads this
    torch.save(model.state_dict(), "ripeness_belt.pt")

    pred = trainer.predict(test_ds)
    wrong = np.flatnonzero(pred.predictions.argmax(-1) != pred.label_ids)
    with open("wrong.txt", "w") as fh:
        for k in wrong:
            fh.write(f"{test_paths[k]}\t{STAGES[pred.predictions[k].argmax()]}\n")


if __name__ == "__main__":
    main()
