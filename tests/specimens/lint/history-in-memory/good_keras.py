"""Bearing fault classes from envelope spectra; two phases, each logged as it goes."""

import json

import matplotlib.pyplot as plt
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

BINS, FAULTS = 512, 10


def spectra(split):
    return np.load(f"bearing/{split}_spectra.npy").astype("float32"), np.load(f"bearing/{split}_fault.npy")


class JsonLines(keras.callbacks.Callback):
    """Appends each epoch's numbers to a file."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        row = {"epoch": epoch, **{name: float(value) for name, value in (logs or {}).items()}}
        with open(self.path, "a") as f:
            f.write(json.dumps(row) + "\n")


def build():
    return keras.Sequential([
        keras.Input((BINS,)),
        layers.Reshape((BINS, 1)),
        layers.Conv1D(32, 9, strides=2, activation="relu"),
        layers.Conv1D(64, 9, strides=2, activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(FAULTS, activation="softmax"),
    ])


train_x, train_y = spectra("train")
val_x, val_y = spectra("val")
model = build()
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

# a first look at whether the rate is sane
first = model.fit(train_x[:2000], train_y[:2000], batch_size=64, epochs=3, verbose=0)
print("first losses:", first.history["loss"])

history = model.fit(
    train_x,
    train_y,
    batch_size=64,
    validation_data=(val_x, val_y),
    epochs=60,
    callbacks=[
        keras.callbacks.CSVLogger("bearing_phase1.csv", append=True),
        keras.callbacks.ModelCheckpoint("bearing.keras", monitor="val_accuracy", save_best_only=True),
    ],
)

model.optimizer.learning_rate = 1e-4
tuned = model.fit(
    train_x,
    train_y,
    batch_size=64,
    validation_data=(val_x, val_y),
    epochs=20,
    callbacks=[JsonLines("bearing_phase2.jsonl"), keras.callbacks.BackupAndRestore("bearing_backup")],
)

plt.plot(history.history["val_accuracy"] + tuned.history["val_accuracy"])
plt.savefig("bearing.png")
