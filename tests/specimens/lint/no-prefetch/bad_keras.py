"""Clouds or none: patches of satellite pictures, decoded in the pipeline."""

import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

FILES = tf.io.gfile.glob("patches/*/*.png")
BATCH = 64


def load(path):
    pixels = tf.io.decode_png(tf.io.read_file(path), channels=3)
    pixels.set_shape((96, 96, 3))
    label = tf.strings.regex_full_match(path, ".*/cloud/.*")
    return tf.image.convert_image_dtype(pixels, tf.float32), tf.cast(label, tf.int32)


train = tf.data.Dataset.from_tensor_slices(FILES).shuffle(len(FILES))
train = train.map(load, num_parallel_calls=tf.data.AUTOTUNE)
train = train.batch(BATCH)

model = models.Sequential()
model.add(layers.Input((96, 96, 3)))
for width in (16, 32, 64):
    model.add(layers.Conv2D(width, 3, padding="same", activation="relu"))
    model.add(layers.MaxPooling2D())
model.add(layers.Flatten())
model.add(layers.Dense(1, activation="sigmoid"))
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
model.fit(train, epochs=3, callbacks=[callbacks.ModelCheckpoint("clouds_{epoch:02d}.keras"), callbacks.CSVLogger("clouds.csv")])
