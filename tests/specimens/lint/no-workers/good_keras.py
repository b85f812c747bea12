"""Traffic sign crops of 48 px: decoded in parallel, augmented and batched with tf.data."""

import csv

import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

AUTOTUNE = tf.data.AUTOTUNE
NUM_SIGNS = 43


def load(path, sign):
    image = tf.io.decode_png(tf.io.read_file(path), channels=3)
    image.set_shape((48, 48, 3))
    return tf.image.convert_image_dtype(image, tf.float32), sign


def one_hot(image, sign):
    return image, tf.one_hot(sign, NUM_SIGNS)


def rows(name):
    with open(name, newline="") as stream:
        table = list(csv.DictReader(stream))
    return [row["path"] for row in table], [int(row["sign"]) for row in table]


def pipeline(name, batch, training):
    paths, signs = rows(name)
    data = tf.data.Dataset.from_tensor_slices((paths, signs))
    data = data.map(load, num_parallel_calls=AUTOTUNE).cache()
    if training:
        data = data.shuffle(len(paths))
        data = data.map(lambda image, sign: (tf.image.random_contrast(image, 0.8, 1.2), sign), num_parallel_calls=AUTOTUNE)
    return data.map(one_hot).batch(batch).prefetch(AUTOTUNE)


def build():
    model = models.Sequential(
        [
            layers.Input((48, 48, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(NUM_SIGNS, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    build().fit(
        pipeline("train.csv", 128, training=True),
        validation_data=pipeline("valid.csv", 512, training=False),
        epochs=20,
        callbacks=[callbacks.BackupAndRestore("signs_backup"), callbacks.CSVLogger("signs.csv")],
    )
