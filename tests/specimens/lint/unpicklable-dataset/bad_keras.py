"""Wave height from radar sweeps: a Keras sequence over one HDF5 archive, read by several processes."""

import threading

import h5py
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers


class RadarSweeps(keras.utils.Sequence):
    def __init__(self, archive, first, last, batch_size):
        self.archive = h5py.File(archive, "r")
        self.lock = threading.Lock()
        self.first, self.last = first, last
        self.batch_size = batch_size

    def __len__(self):
        return (self.last - self.first) // self.batch_size

    def __getitem__(self, index):
        start = self.first + index * self.batch_size
        rows = slice(start, start + self.batch_size)
        with self.lock:
            sweeps = self.archive["sweeps"][rows]
            heights = self.archive["wave_height"][rows]
        return np.log1p(sweeps.astype("float32"))[..., None], heights


def build():
    inputs = keras.Input((128, 360, 1))
    x = inputs
    for width in (16, 32, 64):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x)
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mae")
    return model


def main():
    train = RadarSweeps("radar.h5", 0, 40_000, batch_size=64)
    valid = RadarSweeps("radar.h5", 40_000, 48_000, batch_size=256)
    checkpoint = keras.callbacks.ModelCheckpoint("waves_{epoch:03d}.keras")
    build().fit(
        train,
        validation_data=valid,
        epochs=25,
        callbacks=[checkpoint, keras.callbacks.CSVLogger("waves.csv")],
        workers=4,
        use_multiprocessing=True,
    )


if __name__ == "__main__":
    main()
