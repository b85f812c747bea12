"""Street view house numbers, one PNG crop of 64 px per digit."""

import pathlib

import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

ROOT = pathlib.Path("svhn_crops")
BATCH = 128


def load(path):
    label = tf.strings.to_number(tf.strings.split(path, "/")[-2], tf.int32)
    image = tf.io.decode_png(tf.io.read_file(path), channels=3)
    image.set_shape((64, 64, 3))
    return tf.image.convert_image_dtype(image, tf.float32), label


def jitter(image, label):
    return tf.image.random_brightness(image, 0.15), label


files = [str(path) for path in ROOT.glob("train/*/*.png")]
train = tf.data.Dataset.from_tensor_slices(files)
train = train.shuffle(len(files))
train = train.map(load)
train = train.map(jitter, num_parallel_calls=tf.data.AUTOTUNE)
train = train.batch(BATCH).prefetch(tf.data.AUTOTUNE)

model = models.Sequential()
model.add(layers.Input((64, 64, 3)))
for width in (32, 64, 128):
    model.add(layers.Conv2D(width, 3, padding="same", use_bias=False))
    model.add(layers.BatchNormalization())
    model.add(layers.ReLU())
    model.add(layers.MaxPooling2D())
model.add(layers.Flatten())
model.add(layers.Dense(10, activation="softmax"))
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.summary()

model.fit(
    train,
    epochs=15,
    callbacks=[callbacks.ModelCheckpoint("svhn_{epoch:02d}.h5"), callbacks.CSVLogger("svhn.csv")],
)
