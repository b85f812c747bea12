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
WEIGHTS = "runs/birdsong.weights.h5"


def prepare(names):
    os.makedirs(SPECTRA, exist_ok=True)
    for name in names:
        stored = os.path.join(SPECTRA, name + ".npy")
        if os.path.isfile(stored) and os.path.getsize(stored) > 0:
            continue
        signal, rate = librosa.load(os.path.join(AUDIO, name + ".wav"), sr=22050)
        mel = librosa.power_to_db(librosa.feature.melspectrogram(y=signal, sr=rate, n_mels=128))
        np.save(stored, librosa.util.fix_length(mel, size=FRAMES, axis=1).astype("float32"))


class Clips(tf.keras.utils.Sequence):
    def __init__(self, rows, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.rows = rows
        self.batch_size = batch_size
        self.has_noise = {row["clip"]: os.path.exists(os.path.join(AUDIO, row["clip"] + ".noise")) for row in rows}

    def __len__(self):
        return len(self.rows) // self.batch_size

    def __getitem__(self, index):
        rows = self.rows[index * self.batch_size : (index + 1) * self.batch_size]
        x = np.stack([np.load(os.path.join(SPECTRA, row["clip"] + ".npy")) for row in rows])[..., None]
        y = np.array([int(row["species"]) for row in rows])
        weight = np.array([0.5 if self.has_noise[row["clip"]] else 1.0 for row in rows])
        return x, y, weight


def read_rows(table):
    with open(table) as handle:
        return list(csv.DictReader(handle))


train_rows, val_rows = read_rows("birdsong/train.csv"), read_rows("birdsong/val.csv")
prepare(row["clip"] for row in train_rows + val_rows)
model = tf.keras.Sequential(
    [
        layers.Input((128, FRAMES, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(4),
        layers.GlobalAveragePooling2D(),
        layers.Dense(SPECIES, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
if os.path.exists(WEIGHTS):
    model.load_weights(WEIGHTS)
model.fit(
    Clips(train_rows, 32),
    validation_data=Clips(val_rows, 128),
    epochs=30,
    callbacks=[
        tf.keras.callbacks.ModelCheckpoint(WEIGHTS, save_weights_only=True),
        tf.keras.callbacks.CSVLogger("runs/birdsong.csv", append=True),
    ],
)
