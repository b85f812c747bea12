from multiprocessing import Pool, cpu_count
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import tensorflow as tf

VIDEOS = Path("gestures/videos")
ARRAYS = Path("gestures/arrays")
STEPS = 16


def shrink(video, out):
    reader = cv2.VideoCapture(str(video))
    frames = []
    ok, frame = reader.read()
    while ok:
        grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        frames.append(cv2.resize(grey, (96, 96), interpolation=cv2.INTER_AREA))
        ok, frame = reader.read()
    chosen = np.linspace(0, len(frames) - 1, STEPS).astype(int)
    np.save(out, np.stack(frames)[chosen])
    return len(frames)


def shrink_all():
    ARRAYS.mkdir(exist_ok=True)
    jobs = [(video, ARRAYS / f"{video.stem}.npy") for video in sorted(VIDEOS.glob("*/*.mp4"))]
    with Pool(cpu_count()) as pool:
        lengths = pool.starmap(shrink, jobs, chunksize=1)
    print("frames in all:", sum(lengths))


def build():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((STEPS, 96, 96, 1)),
            tf.keras.layers.TimeDistributed(tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu")),
            tf.keras.layers.TimeDistributed(tf.keras.layers.GlobalAveragePooling2D()),
            tf.keras.layers.LSTM(64),
            tf.keras.layers.Dense(9, activation="softmax"),
        ]
    )


def scale(clip, label):
    return tf.cast(clip[..., None], tf.float32) / 255.0, label


if __name__ == "__main__":
    shrink_all()
    table = pd.read_csv("gestures/labels.csv")
    table["code"] = table["gesture"].map({name: code for code, name in enumerate(sorted(table["gesture"].unique()))})
    arrays = np.stack(list(map(np.load, [ARRAYS / f"{clip}.npy" for clip in table["clip"].head(64)])))
    trial = tf.data.Dataset.from_tensor_slices((arrays, table["code"].head(64)))
    trial = trial.map(scale, num_parallel_calls=tf.data.AUTOTUNE)
    model = build()
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(trial.shuffle(64).batch(16).prefetch(1), epochs=3)
