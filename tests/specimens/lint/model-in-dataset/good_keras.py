"""Faces by age, from embeddings of a network that stays as it is."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

FACES = np.load("faces.npy", mmap_mode="r")
AGES = np.load("ages.npy")
embedder = tf.keras.models.load_model("embedder.keras")


def embed(faces, batch=64):
    parts = [embedder.predict(faces[start : start + batch] / 255.0, verbose=0) for start in range(0, len(faces), batch)]
    return np.concatenate(parts)


features = embed(FACES)
np.save("features.npy", features)
head = models.Sequential([layers.Input((512,)), layers.Dense(64, activation="relu"), layers.Dense(1)])
head.compile(optimizer="adam", loss="mae")
head.fit(
    features,
    AGES,
    batch_size=256,
    epochs=30,
    callbacks=[callbacks.BackupAndRestore("backup"), callbacks.CSVLogger("ages.csv")],
)
