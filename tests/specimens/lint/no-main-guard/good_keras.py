"""Turns radio recordings into spectrogram PNGs with a pool of processes, then trains a classifier on them."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import soundfile
import tensorflow as tf
from PIL import Image
from scipy.signal import stft
from tensorflow import keras

AUTOTUNE = tf.data.AUTOTUNE
CLASSES = ("noise", "voice", "morse", "digital")


def spectrogram(recording):
    signal, rate = soundfile.read(recording)
    power = np.abs(stft(signal[: 4 * rate], fs=rate, nperseg=256)[2]) ** 2
    scaled = np.clip(10 * np.log10(power + 1e-9) + 90, 0, 90) / 90
    target = Path("spectra") / f"{recording.stem}.png"
    Image.fromarray((255 * scaled).astype("uint8")).save(target)
    return str(target), CLASSES.index(recording.parent.name)


def prepare(recordings):
    with ProcessPoolExecutor() as pool:
        return list(pool.map(spectrogram, recordings, chunksize=8))


def read(path, label):
    image = tf.io.decode_png(tf.io.read_file(path), channels=1)
    return tf.cast(image, tf.float32) / 255.0, label


def pipeline(rows, batch):
    paths, labels = zip(*rows)
    data = tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
    return data.map(read, num_parallel_calls=AUTOTUNE).batch(batch).prefetch(AUTOTUNE)


def build():
    model = keras.Sequential(
        [
            keras.Input((129, None, 1)),
            keras.layers.Conv2D(24, 3, activation="relu"),
            keras.layers.MaxPool2D(),
            keras.layers.Conv2D(48, 3, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(len(CLASSES), activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    rows = prepare(sorted(Path("recordings").glob("*/*.flac")))
    np.random.default_rng(1).shuffle(rows)
    cut = len(rows) // 5
    build().fit(
        pipeline(rows[cut:], batch=64),
        validation_data=pipeline(rows[:cut], batch=256),
        epochs=12,
        callbacks=[keras.callbacks.BackupAndRestore("backup"), keras.callbacks.CSVLogger("log.csv")],
    )
