import json
from collections import defaultdict

import keras
import numpy as np
import pandas as pd

ANNOTATIONS = "shelf/instances.json"


def boxes_by_image():
    with open(ANNOTATIONS) as handle:
        everything = json.load(handle)
    boxes = defaultdict(list)
    for item in everything["annotations"]:
        boxes[item["image_id"]].append(item["bbox"])
    return boxes


class ShelfCounts(keras.utils.PyDataset):
    """Prepared 384 x 384 arrays in one mapped file, counts of products as the target."""

    def __init__(self, ids, boxes, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.ids = list(ids)
        self.boxes = boxes
        self.pixels = np.load("shelf/pixels.npy", mmap_mode="r")
        self.shops = pd.read_parquet("shelf/shops.parquet").set_index("image_id")["shop"]
        self.batch_size = batch_size

    def __len__(self):
        return len(self.ids) // self.batch_size

    def light(self, image_id):
        with open(f"shelf/sensors/{image_id:06d}.json") as handle:
            return json.load(handle)["lux"]

    def __getitem__(self, index):
        ids = self.ids[index * self.batch_size : (index + 1) * self.batch_size]
        counts = np.array([len(self.boxes[image_id]) for image_id in ids], dtype="float32")
        weights = np.array([0.5 if self.light(image_id) < 20 else 1.0 for image_id in ids])
        weights[(self.shops.loc[ids] == "test kitchen").to_numpy()] = 0.1
        return self.pixels[ids].astype("float32") / 255.0, counts, weights


def count_network():
    inputs = keras.Input((384, 384, 3))
    x = inputs
    for filters in (16, 32, 64, 128):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    density = keras.layers.Conv2D(1, 1, activation="softplus")(x)
    return keras.Model(inputs, keras.layers.Lambda(keras.ops.sum, arguments={"axis": (1, 2, 3)})(density))


boxes = boxes_by_image()
model = count_network()
model.compile(optimizer=keras.optimizers.AdamW(1e-3), loss="huber", metrics=["mae"])
model.fit(
    ShelfCounts(range(0, 8000), boxes, 16),
    validation_data=ShelfCounts(range(8000, 9000), boxes, 64),
    epochs=12,
    callbacks=[keras.callbacks.BackupAndRestore("shelf/backup"), keras.callbacks.CSVLogger("shelf/log.csv")],
)
