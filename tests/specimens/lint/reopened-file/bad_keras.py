import h5py
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

STORE = "galaxies/stamps.h5"


class Stamps(keras.utils.Sequence):
    def __init__(self, indices, batch_size, shuffle=False):
        super().__init__()
        self.indices = np.asarray(indices)
        self.batch_size = batch_size
        self.shuffle = shuffle

    def __len__(self):
        return len(self.indices) // self.batch_size

    def __getitem__(self, step):
        wanted = np.sort(self.indices[step * self.batch_size : (step + 1) * self.batch_size])
        with h5py.File(STORE, "r") as store:
            stamps = store["stamp"][wanted]
            shapes = store["morphology"][wanted]
        return stamps.astype("float32") / 255.0, shapes

    def on_epoch_end(self):
        if self.shuffle:
            np.random.shuffle(self.indices)


def residual(x, filters):
    y = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    y = layers.Conv2D(filters, 3, padding="same")(y)
    return layers.Activation("relu")(layers.Add()([y, layers.Conv2D(filters, 1)(x)]))


split = np.load("galaxies/split.npy")
inputs = keras.Input((69, 69, 3))
x = layers.MaxPooling2D()(residual(inputs, 32))
x = layers.MaxPooling2D()(residual(x, 64))
x = layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
model.compile(keras.optimizers.Adam(5e-4), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    Stamps(np.flatnonzero(split == 0), 64, shuffle=True),
    validation_data=Stamps(np.flatnonzero(split == 1), 256),
    epochs=25,
    callbacks=[keras.callbacks.ModelCheckpoint("galaxies.keras"), keras.callbacks.CSVLogger("galaxies.csv")],
)
