"""Faces by age, from embeddings of a network that stays as it is."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

FACES = np.load("faces.npy", mmap_mode="r")
AGES = np.load("ages.npy")
embedder = tf.keras.models.load_model("embedder.keras")


class Embedded(tf.keras.utils.PyDataset):
    def __init__(self, faces, ages, batch, **kwargs):
        super().__init__(**kwargs)
        self.faces, self.ages, self.batch = faces, ages, batch

    def __len__(self):
        return len(self.faces) // self.batch

    def __getitem__(self, index):
        rows = slice(index * self.batch, (index + 1) * self.batch)
        vectors = embedder.predict(self.faces[rows] / 255.0, verbose=0)
        return vectors, self.ages[rows]


head = models.Sequential([layers.Input((512,)), layers.Dense(64, activation="relu"), layers.Dense(1)])
head.compile(optimizer="adam", loss="mae")
data = Embedded(FACES, AGES, 64, workers=4)
head.fit(data, epochs=30, callbacks=[callbacks.BackupAndRestore("backup"), callbacks.CSVLogger("ages.csv")])
