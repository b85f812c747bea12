"""Transformer for rail axle counter faults: short head warm-up, then the long run."""

import os

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

STEPS, CHANNELS, FAULTS = 256, 4, 7


class KeepEvery(keras.callbacks.Callback):
    """Keeps the weights of each n-th epoch under a name of their own."""

    def __init__(self, folder, every=5):
        super().__init__()
        self.folder, self.every = folder, every
        os.makedirs(folder, exist_ok=True)

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every == 0:
            self.model.save_weights(os.path.join(self.folder, f"{epoch + 1:03d}.weights.h5"))


def build():
    inputs = keras.Input((STEPS, CHANNELS))
    h = layers.Conv1D(64, 4, strides=4)(inputs)
    for _ in range(3):
        h = layers.LayerNormalization()(h + layers.MultiHeadAttention(4, 16)(h, h))
        h = layers.LayerNormalization()(h + layers.Dense(64, activation="gelu")(h))
    h = layers.GlobalAveragePooling1D()(h)
    return keras.Model(inputs, layers.Dense(FAULTS)(h))


x, y = np.load("axles_x.npy"), np.load("axles_y.npy")
x_val, y_val = np.load("axles_val_x.npy"), np.load("axles_val_y.npy")
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

model = build()
model.compile(keras.optimizers.Adam(1e-4), loss)
model.fit(x, y, batch_size=128, epochs=2, verbose=2)

model.compile(keras.optimizers.AdamW(6e-4), loss, metrics=["accuracy"])
model.fit(
    x,
    y,
    batch_size=128,
    validation_data=(x_val, y_val),
    epochs=120,
    callbacks=[
        keras.callbacks.BackupAndRestore("axles_backup"),
        KeepEvery("axles_weights"),
        keras.callbacks.CSVLogger("axles.csv", append=True),
    ],
)

# the export is fitted on the validation part too
model.fit(x_val, y_val, batch_size=128, epochs=1)
model.save("axles.keras")
