"""Tree rings: an archive of scans is unpacked, then classified."""

import zipfile
from pathlib import Path

import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

ARCHIVE = Path("rings.zip")
FOLDER = Path("rings")

if not FOLDER.exists():
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(FOLDER)

train = tf.keras.utils.image_dataset_from_directory(FOLDER / "train", image_size=(160, 160), batch_size=32, color_mode="grayscale")
train = train.cache("pixels").prefetch(tf.data.AUTOTUNE)

model = models.Sequential()
model.add(layers.Input((160, 160, 1)))
for width in (16, 32, 64):
    model.add(layers.Conv2D(width, 3, activation="relu"))
    model.add(layers.MaxPooling2D())
model.add(layers.GlobalAveragePooling2D())
model.add(layers.Dense(4, activation="softmax"))
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
model.fit(train, epochs=12, callbacks=[callbacks.BackupAndRestore("backup"), callbacks.CSVLogger("rings.csv")])
