import h5py
import numpy as np
import rasterio
from tensorflow import keras
from tensorflow.keras import layers

STORE = "galaxies/stamps.h5"


class Stamps(keras.utils.Sequence):
    def __init__(self, indices, batch_size, shuffle=False):
        super().__init__()
        self.indices = np.asarray(indices)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.store = None

    def __len__(self):
        return len(self.indices) // self.batch_size

    def __getitem__(self, step):
        if self.store is None:
            self.store = h5py.File(STORE, "r")
        wanted = np.sort(self.indices[step * self.batch_size : (step + 1) * self.batch_size])
        return self.store["stamp"][wanted].astype("float32") / 255.0, self.store["morphology"][wanted]

    def on_epoch_end(self):
        if self.shuffle:
            np.random.shuffle(self.indices)


class SkyPlates(keras.utils.Sequence):
    """One small georeferenced file a sample."""

    def __init__(self, paths, labels):
        super().__init__()
        self.paths, self.labels = paths, labels

    def __len__(self):
        return len(self.paths) // 8

    def __getitem__(self, step):
        plates = []
        for path in self.paths[step * 8 : step * 8 + 8]:
            with rasterio.open(path) as plate:
                plates.append(plate.read().transpose(1, 2, 0))
        return np.stack(plates), self.labels[step * 8 : step * 8 + 8]


with h5py.File(STORE, "r") as store:
    count, height, width, bands = store["stamp"].shape
    print(count, "stamps", sorted(store))

split = np.load("galaxies/split.npy")
inputs = keras.Input((height, width, bands))
x = layers.Conv2D(64, 3, activation="relu")(inputs)
x = layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
model.compile(keras.optimizers.Adam(5e-4), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    Stamps(np.flatnonzero(split == 0), 64, shuffle=True),
    validation_data=Stamps(np.flatnonzero(split == 1), 256),
    epochs=25,
    callbacks=[keras.callbacks.ModelCheckpoint("galaxies.keras"), keras.callbacks.CSVLogger("galaxies.csv")],
)
