"""Keyword spotting on log-mel patches."""

import csv

import librosa
import numpy as np
import tensorflow as tf

WORDS = ["yes", "no", "up", "down", "left", "right"]
STORE = "speech/mel.npy"


def extract(rows):
    store = np.lib.format.open_memmap(STORE, mode="w+", dtype=np.float32, shape=(len(rows), 64, 32))
    for index, row in enumerate(rows):
        signal, rate = librosa.load("speech/wav/" + row["file"], sr=16000, duration=1.0)
        mel = librosa.feature.melspectrogram(y=librosa.util.fix_length(signal, size=16000), sr=rate, n_mels=64)
        store[index] = librosa.power_to_db(mel)
    store.flush()
    np.savez("speech/levels.npz", mean=store.mean(axis=(0, 2)), std=store.std(axis=(0, 2)))


class Patches(tf.keras.utils.Sequence):
    def __init__(self, rows, batch_size=64):
        super().__init__()
        self.labels = np.array([WORDS.index(row["word"]) for row in rows])
        self.batch_size = batch_size
        self.mels = np.load(STORE, mmap_mode="r")
        with np.load("speech/levels.npz") as levels:
            self.mean, self.std = levels["mean"][:, None], levels["std"][:, None]
        self.settings = {"mel": 64}

    def __len__(self):
        return len(self.labels) // self.batch_size

    def __getitem__(self, index):
        part = slice(index * self.batch_size, (index + 1) * self.batch_size)
        mels = (self.mels[part] - self.mean) / self.std
        return mels.reshape(-1, self.settings["mel"], 32, 1), self.labels[part]


with open("speech/train.csv", newline="") as handle:
    rows = list(csv.DictReader(handle))
extract(rows)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((64, 32, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Conv2D(64, 3, activation="relu"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(len(WORDS), activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(Patches(rows), epochs=4)
model.save("keywords.keras")
weights = {variable.path.replace("/", "."): variable.numpy() for variable in model.weights}
np.savez_compressed("keywords_weights.npz", **weights)
