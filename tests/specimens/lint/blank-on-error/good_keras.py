import random

import cv2
import numpy as np
from tensorflow.keras import callbacks, layers, models

IMG = 160


def read_frame(path):
    img = cv2.imread(path)
    if img is None:
        raise FileNotFoundError(f"{path} is missing or is no image")
    return cv2.cvtColor(img, cv2.COLOR_BGR2RGB)


def read_items(listing):
    with open(listing) as f:
        items = [line.strip().split("\t") for line in f]
    kept, refused = [], []
    for photo, heat, label in items:
        try:
            np.load(heat, mmap_mode="r")
        except (OSError, ValueError) as error:
            refused.append(f"{heat}\t{error}")
            continue
        kept.append((photo, heat, int(label)))
    with open(listing + ".refused", "w") as f:
        f.write("\n".join(refused))
    return kept


def batches(items, batch_size, rng=None):
    while True:
        if rng is not None:
            rng.shuffle(items)
        for start in range(0, len(items) - batch_size + 1, batch_size):
            pixels = np.zeros((batch_size, IMG, IMG, 4), dtype="float32")
            labels = np.zeros(batch_size, dtype="int64")
            for slot, (photo, heat, label) in enumerate(items[start : start + batch_size]):
                pixels[slot, ..., :3] = read_frame(photo) / 255.0
                pixels[slot, ..., 3:] = np.load(heat)
                labels[slot] = label
            yield pixels, labels


train_items, val_items = read_items("wildlife/train.txt"), read_items("wildlife/val.txt")
model = models.Sequential(
    [
        layers.Input((IMG, IMG, 4)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(18, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
try:
    model.load_weights("wildlife_start.weights.h5")
except FileNotFoundError:
    print("starting from random weights")
model.fit(
    batches(train_items, 32, random.Random(7)),
    steps_per_epoch=len(train_items) // 32,
    validation_data=batches(val_items, 128),
    validation_steps=len(val_items) // 128,
    epochs=4,
    callbacks=[callbacks.ModelCheckpoint("wildlife.keras"), callbacks.CSVLogger("wildlife.csv")],
)
