"""Keyword spotting on log-mel patches."""

import csv
import os

import librosa
import numpy as np
import tensorflow as tf

WORDS = ["yes", "no", "up", "down", "left", "right"]
FEATURES = "speech/features"


def extract(rows):
    os.makedirs(FEATURES, exist_ok=True)
    for row in rows:
        signal, rate = librosa.load("speech/wav/" + row["file"], sr=16000, duration=1.0)
        mel = librosa.feature.melspectrogram(y=librosa.util.fix_length(signal, size=16000), sr=rate, n_mels=64)
        np.savez_compressed(os.path.join(FEATURES, row["file"] + ".npz"), mel=librosa.power_to_db(mel))


class Patches(tf.keras.utils.Sequence):
    def __init__(self, rows, batch_size=64):
        super().__init__()
        self.rows = rows
        self.batch_size = batch_size

    def __len__(self):
        return len(self.rows) // self.batch_size

    def __getitem__(self, index):
        part = self.rows[index * self.batch_size : (index + 1) * self.batch_size]
        mels = [np.load(os.path.join(FEATURES, row["file"] + ".npz"))["mel"] for row in part]
        labels = [WORDS.index(row["word"]) for row in part]
        return np.stack(mels)[..., None].astype("float32"), np.array(labels)


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
