"""Chest X-rays with a large network, on a card that is set up first."""

import tensorflow as tf
from tensorflow.keras import callbacks, layers

for card in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(card, True)

SIZE = (320, 320)
train = tf.keras.utils.image_dataset_from_directory("xrays/train", image_size=SIZE, batch_size=16)
valid = tf.keras.utils.image_dataset_from_directory("xrays/valid", image_size=SIZE, batch_size=64)
train = train.cache("train_pixels").prefetch(tf.data.AUTOTUNE)
valid = valid.cache("valid_pixels").prefetch(tf.data.AUTOTUNE)

base = tf.keras.applications.DenseNet121(include_top=False, input_shape=(*SIZE, 3), pooling="avg")
inputs = layers.Input((*SIZE, 3))
x = tf.keras.applications.densenet.preprocess_input(inputs)
x = layers.Dropout(0.3)(base(x))
model = tf.keras.Model(inputs, layers.Dense(1, activation="sigmoid", dtype="float32")(x))
model.compile(optimizer=tf.keras.optimizers.Adam(1e-4), loss="binary_crossentropy", metrics=["AUC"])
model.fit(
    train,
    validation_data=valid,
    epochs=25,
    callbacks=[callbacks.BackupAndRestore("backup"), callbacks.CSVLogger("xrays.csv")],
)
