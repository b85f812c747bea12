"""Sheet music symbols: drawn by a pool of spawned processes, then classified by a small CNN."""

import json
import multiprocessing

import numpy as np
from PIL import Image, ImageDraw
from tensorflow import keras
from tensorflow.keras import layers

SIDE = 48
METHODS = multiprocessing.get_all_start_methods()


def draw(symbol):
    canvas = Image.new("L", (SIDE, SIDE))
    pen = ImageDraw.Draw(canvas)
    for curve in symbol["curves"]:
        pen.line([tuple(point) for point in curve], fill=255, width=2)
    return np.asarray(canvas), symbol["kind"]


def draw_all(symbols):
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        drawn = list(pool.imap_unordered(draw, symbols, chunksize=256))
    pictures, kinds = zip(*drawn)
    return np.stack(pictures)[..., None] / np.float32(255), np.array(kinds)


def build(num_kinds):
    model = keras.Sequential([
        keras.Input((SIDE, SIDE, 1)),
        layers.Conv2D(24, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(48, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(num_kinds, activation="softmax"),
    ])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main():
    if "forkserver" in METHODS:
        multiprocessing.set_start_method("forkserver", force=True)
    with open("symbols.json") as stream:
        symbols = json.load(stream)
    x, y = draw_all(symbols)
    build(int(y.max()) + 1).fit(x, y, batch_size=128, epochs=4, validation_split=0.1)


if __name__ == "__main__":
    main()
