import json

import keras
import numpy as np

ANNOTATIONS = "shelf/instances.json"


def boxes_of(image_id):
    with open(ANNOTATIONS) as handle:
        everything = json.load(handle)
    return [item["bbox"] for item in everything["annotations"] if item["image_id"] == image_id]


class ShelfCounts(keras.utils.PyDataset):
    """Prepared 384 x 384 arrays in one mapped file, counts of products as the target."""

    def __init__(self, ids, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.ids = list(ids)
        self.pixels = np.load("shelf/pixels.npy", mmap_mode="r")
        self.batch_size = batch_size

    def __len__(self):
        return len(self.ids) // self.batch_size

    def __getitem__(self, index):
        ids = self.ids[index * self.batch_size : (index + 1) * self.batch_size]
        counts = np.array([len(boxes_of(image_id)) for image_id in ids], dtype="float32")
        return self.pixels[ids].astype("float32") / 255.0, counts


def count_network():
    inputs = keras.Input((384, 384, 3))
    x = inputs
    for filters in (16, 32, 64, 128):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.ReLU()(x)
    density = keras.layers.Conv2D(1, 1, activation="softplus")(x)
    return keras.Model(inputs, keras.layers.Lambda(keras.ops.sum, arguments={"axis": (1, 2, 3)})(density))


model = count_network()
model.compile(optimizer=keras.optimizers.AdamW(1e-3), loss="huber", metrics=["mae"])
model.fit(
    ShelfCounts(range(0, 8000), 16, workers=4),
    validation_data=ShelfCounts(range(8000, 9000), 64),
    epochs=12,
    callbacks=[keras.callbacks.BackupAndRestore("shelf/backup"), keras.callbacks.CSVLogger("shelf/log.csv")],
)
