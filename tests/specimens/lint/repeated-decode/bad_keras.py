import pathlib

import tensorflow as tf
from tensorflow import keras

IMG_SIZE = 192
AUTOTUNE = tf.data.AUTOTUNE

data_dir = pathlib.Path("recycling")
class_names = sorted(item.name for item in (data_dir / "train").iterdir())
lookup = keras.layers.StringLookup(vocabulary=class_names, num_oov_indices=0)


def load(path):
    label = lookup(tf.strings.split(path, "/")[-2])
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    image = tf.image.resize(image, [IMG_SIZE, IMG_SIZE])
    return image / 255.0, label


def flip(image, label):
    return tf.image.random_flip_left_right(image), label


train_ds = (
    tf.data.Dataset.list_files(str(data_dir / "train" / "*" / "*.jpg"), shuffle=True)
    .map(load, num_parallel_calls=AUTOTUNE)
    .map(flip, num_parallel_calls=AUTOTUNE)
    .batch(32)
    .prefetch(AUTOTUNE)
)

base = keras.applications.MobileNetV2((IMG_SIZE, IMG_SIZE, 3), include_top=False, weights="imagenet")
model = keras.Sequential(
    [
        base,
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(len(class_names), activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adam(1e-4), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    train_ds,
    epochs=15,
    callbacks=[keras.callbacks.BackupAndRestore("runs/backup"), keras.callbacks.CSVLogger("runs/log.csv")],
)
