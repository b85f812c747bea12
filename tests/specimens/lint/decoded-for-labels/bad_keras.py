"""Sizes of X-ray plates, looked at before a network for them is chosen."""

from pathlib import Path

import cv2
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers, models

PLATES = sorted(Path("plates").glob("*/*.png"))


def sizes(paths):
    found = []
    for path in paths:
        plate = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        found.append(plate.shape)
    return np.array(found)


shape = sizes(PLATES).max(axis=0)
print("largest plate", shape)

model = models.Sequential()
model.add(layers.Input((None, None, 1)))
for width in (16, 32, 64):
    model.add(layers.Conv2D(width, 3, activation="relu"))
    model.add(layers.MaxPooling2D())
model.add(layers.GlobalMaxPooling2D())
model.add(layers.Dense(1, activation="sigmoid"))
model.compile(optimizer=tf.keras.optimizers.Adam(1e-4), loss="binary_crossentropy")
model.summary()
