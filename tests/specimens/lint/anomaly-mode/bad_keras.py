"""Segments river ice on webcam pictures with a small encoder-decoder."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

tf.debugging.enable_check_numerics()

AUTOTUNE = tf.data.AUTOTUNE


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "ice": tf.io.FixedLenFeature([], tf.string)}
    example = tf.io.parse_single_example(record, features)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), (192, 256, 3))
    ice = tf.reshape(tf.io.decode_raw(example["ice"], tf.uint8), (192, 256, 1))
    return tf.cast(image, tf.float32) / 255.0, tf.cast(ice, tf.float32)


def dice_loss(target, guess):
    overlap = tf.reduce_sum(target * guess, axis=(1, 2, 3))
    area = tf.reduce_sum(target + guess, axis=(1, 2, 3))
    return 1.0 - (2.0 * overlap + 1.0) / (area + 1.0)


def build():
    inputs = keras.Input((192, 256, 3))
    x, skips = inputs, []
    for width in (16, 32, 64):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    for width, skip in zip((64, 32, 16), reversed(skips)):
        x = layers.Concatenate()([layers.UpSampling2D()(x), skip])
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))


train = tf.data.TFRecordDataset("ice_train.tfrecord").map(parse, num_parallel_calls=AUTOTUNE)
train = train.shuffle(1000).batch(16).prefetch(AUTOTUNE)

model = build()
model.compile(optimizer="adam", loss=dice_loss, metrics=["accuracy"], run_eagerly=True)
model.fit(
    train,
    epochs=30,
    callbacks=[keras.callbacks.ModelCheckpoint("ice_{epoch:02d}.keras"), keras.callbacks.CSVLogger("ice.csv")],
)
