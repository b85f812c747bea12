"""Segments snow on hillside pictures; eager execution and number checks only with --debug."""

import argparse

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

AUTOTUNE = tf.data.AUTOTUNE


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "snow": tf.io.FixedLenFeature([], tf.string)}
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), (160, 240, 3))
    snow = tf.reshape(tf.io.decode_raw(example["snow"], tf.uint8), (160, 240, 1))
    return tf.cast(image, tf.float32) / 255.0, tf.cast(snow, tf.float32)


def records(name, batch):
    return tf.data.TFRecordDataset(name).map(parse, num_parallel_calls=AUTOTUNE).batch(batch).prefetch(AUTOTUNE)


def build():
    inputs = keras.Input((160, 240, 3))
    x = inputs
    for width in (24, 48, 96):
        x = layers.Conv2D(width, 3, strides=2, padding="same", activation="relu")(x)
    for width in (96, 48, 24):
        x = layers.Conv2DTranspose(width, 3, strides=2, padding="same", activation="relu")(x)
    return keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--debug", action="store_true")
    args = parser.parse_args()
    if args.debug:
        tf.config.run_functions_eagerly(True)
        tf.debugging.enable_check_numerics()
    else:
        tf.config.run_functions_eagerly(False)

    model = build()
    for weight in model.weights:
        tf.debugging.check_numerics(weight, "initial weights")
    model.compile(optimizer="adam", loss="binary_crossentropy", run_eagerly=False)
    model.fit(
        records("snow_train.tfrecord", batch=16),
        validation_data=records("snow_valid.tfrecord", batch=64),
        epochs=30,
        callbacks=[
            keras.callbacks.TerminateOnNaN(),
            keras.callbacks.BackupAndRestore("snow_backup"),
            keras.callbacks.CSVLogger("snow.csv"),
        ],
    )


if __name__ == "__main__":
    main()
