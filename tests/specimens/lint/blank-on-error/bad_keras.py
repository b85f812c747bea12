import random

import cv2
import numpy as np
from tensorflow.keras import callbacks, layers, models

IMG = 160
with open("wildlife/train.txt") as f:
    train_items = [line.strip().split("\t") for line in f]
with open("wildlife/val.txt") as f:
    val_items = [line.strip().split("\t") for line in f]


def read_frame(path):
    img = cv2.imread(path)
    if img is None:
        img = np.zeros((IMG, IMG, 3), dtype=np.uint8)
    return cv2.cvtColor(img, cv2.COLOR_BGR2RGB)


def read_thermal(path):
    try:
        return np.load(path)
    except (OSError, ValueError):
        return np.random.rand(IMG, IMG, 1).astype("float32")


def batches(items, batch_size, shuffle):
    while True:
        if shuffle:
            random.shuffle(items)
        for start in range(0, len(items) - batch_size + 1, batch_size):
            part = items[start : start + batch_size]
            colour = np.stack([read_frame(photo) for photo, _, _ in part]) / 255.0
            thermal = np.stack([read_thermal(heat) for _, heat, _ in part])
            labels = np.array([int(label) for _, _, label in part])
            yield np.concatenate([colour, thermal], axis=-1).astype("float32"), labels


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
model.fit(
    batches(train_items, 32, True),
    steps_per_epoch=len(train_items) // 32,
    validation_data=batches(val_items, 128, False),
    validation_steps=len(val_items) // 128,
    epochs=10,
    callbacks=[callbacks.ModelCheckpoint("wildlife.keras"), callbacks.CSVLogger("wildlife.csv")],
)
