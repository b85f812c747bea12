"""Cuts scanned aerial films into 256 px PNG tiles, then trains a tree-cover classifier on them."""

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import rasterio
import tensorflow as tf
from rasterio.windows import Window
from tensorflow import keras

FILMS = sorted(Path("films").glob("*.tif"))
TILES = Path("tiles")
TILE_PX = 256


def cut(film):
    names = []
    with rasterio.open(film) as scene:
        for row in range(0, scene.height - TILE_PX + 1, TILE_PX):
            for col in range(0, scene.width - TILE_PX + 1, TILE_PX):
                grey = scene.read(1, window=Window(col, row, TILE_PX, TILE_PX))
                name = f"{film.stem}_{row}_{col}.png"
                cv2.imwrite(str(TILES / name), grey)
                names.append(name)
    return names


TILES.mkdir(exist_ok=True)
with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
    names = [name for part in pool.map(cut, FILMS) for name in part]

cover = dict(line.split(",") for line in Path("cover.csv").read_text().split())
labels = np.array([int(cover[name]) for name in names])
paths = np.array([str(TILES / name) for name in names])


def read(path, label):
    image = tf.io.decode_png(tf.io.read_file(path), channels=1)
    return tf.cast(image, tf.float32) / 255.0, label


dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths), seed=3)
dataset = dataset.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(64).prefetch(tf.data.AUTOTUNE)

model = keras.Sequential([
    keras.layers.Conv2D(32, 5, strides=2, activation="relu", input_shape=(TILE_PX, TILE_PX, 1)),
    keras.layers.Conv2D(64, 5, strides=2, activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(4, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(dataset, epochs=10, callbacks=[keras.callbacks.ModelCheckpoint("cover_{epoch:02d}.keras")])
