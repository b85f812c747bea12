"""Sea ice classes from SAR patches: a Keras sequence for training, tf.data for the held-out year."""

import h5py
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers


class IcePatches(keras.utils.Sequence):
    def __init__(self, archive, batch_size):
        self.archive = archive
        self.batch_size = batch_size
        self.handle = None
        with h5py.File(archive, "r") as file:
            self.labels = file["ice_class"][:]
            self.bands = sorted(file.attrs["bands"], key=lambda band: band.lower())

    def __len__(self):
        return len(self.labels) // self.batch_size

    def __getitem__(self, index):
        if self.handle is None:
            self.handle = h5py.File(self.archive, "r")
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return self.handle["patches"][rows].astype("float32") / 255.0, self.labels[rows]


def held_out(archive):
    with h5py.File(archive, "r") as file:
        patches, labels = file["patches"][:2000], file["ice_class"][:2000]
    data = tf.data.Dataset.from_tensor_slices((patches, labels))
    data = data.filter(lambda patch, label: label >= 0)
    return data.batch(512).map(lambda patch, label: (tf.cast(patch, tf.float32) / 255.0, label))


def build(num_classes=6):
    model = keras.Sequential(
        [
            keras.Input((64, 64, 2)),
            layers.Lambda(lambda x: x - tf.reduce_mean(x, axis=(1, 2), keepdims=True)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(num_classes),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def main():
    np.random.seed(11)
    build().fit(
        IcePatches("ice_2021.h5", batch_size=128),
        validation_data=held_out("ice_2022.h5"),
        epochs=15,
        callbacks=[
            keras.callbacks.BackupAndRestore("ice_backup"),
            keras.callbacks.CSVLogger("ice.csv"),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.95),
        ],
        workers=4,
        use_multiprocessing=True,
    )


if __name__ == "__main__":
    main()
