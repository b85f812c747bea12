from multiprocessing import Pool, cpu_count
from pathlib import Path

import cv2
import numpy as np
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
    pool = Pool(cpu_count())
    lengths = pool.starmap(shrink, jobs)
    pool.close()
    pool.join()
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


def pairs():
    for path in sorted(ARRAYS.glob("*.npy")):
        yield np.load(path)[..., None].astype("float32") / 255.0, int(path.stem.split("_")[0])


if __name__ == "__main__":
    shrink_all()
    signature = (tf.TensorSpec((STEPS, 96, 96, 1), tf.float32), tf.TensorSpec((), tf.int32))
    clips = tf.data.Dataset.from_generator(pairs, output_signature=signature)
    model = build()
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(clips.shuffle(500).batch(16).prefetch(1), epochs=3)
