import csv
import os

import librosa
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

AUDIO = "birdsong/clips"
SPECTRA = "birdsong/spectra"
SPECIES = 24
FRAMES = 256


def spectrum(name):
    stored = os.path.join(SPECTRA, name + ".npy")
    if os.path.isfile(stored):
        return np.load(stored)
    signal, rate = librosa.load(os.path.join(AUDIO, name + ".wav"), sr=22050)
    mel = librosa.power_to_db(librosa.feature.melspectrogram(y=signal, sr=rate, n_mels=128))
    mel = librosa.util.fix_length(mel, size=FRAMES, axis=1).astype("float32")
    np.save(stored, mel)
    return mel


class Clips(tf.keras.utils.Sequence):
    def __init__(self, table, batch_size, **kwargs):
        super().__init__(**kwargs)
        with open(table) as handle:
            self.rows = list(csv.DictReader(handle))
        self.batch_size = batch_size

    def __len__(self):
        return len(self.rows) // self.batch_size

    def __getitem__(self, index):
        rows = self.rows[index * self.batch_size : (index + 1) * self.batch_size]
        x = np.stack([spectrum(row["clip"]) for row in rows])[..., None]
        y = np.array([int(row["species"]) for row in rows])
        return x, y


model = tf.keras.Sequential(
    [
        layers.Input((128, FRAMES, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(4),
        layers.Conv2D(64, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(SPECIES, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(Clips("birdsong/train.csv", 32), validation_data=Clips("birdsong/val.csv", 128), epochs=4)
model.save("birdsong.keras")
