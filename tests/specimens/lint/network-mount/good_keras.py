"""Roof types from aerial crops, one folder for each type."""

import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

FOLDER = "/content/roofs/"
SIZE = (128, 128)

train = tf.keras.utils.image_dataset_from_directory(FOLDER + "train", image_size=SIZE, batch_size=64)
valid = tf.keras.utils.image_dataset_from_directory(FOLDER + "valid", image_size=SIZE, batch_size=256)
train = train.cache("train_pixels").shuffle(20).prefetch(tf.data.AUTOTUNE)
valid = valid.cache("valid_pixels").prefetch(tf.data.AUTOTUNE)

model = models.Sequential()
model.add(layers.Input((128, 128, 3)))
model.add(layers.Rescaling(1 / 255))
for width in (16, 32, 64):
    model.add(layers.Conv2D(width, 3, padding="same", activation="relu"))
    model.add(layers.MaxPooling2D())
model.add(layers.GlobalAveragePooling2D())
model.add(layers.Dense(6, activation="softmax"))
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    train,
    validation_data=valid,
    epochs=30,
    callbacks=[callbacks.BackupAndRestore("/content/drive/MyDrive/backup"), callbacks.CSVLogger("roofs.csv")],
)
