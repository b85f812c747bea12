"""Handwritten glyphs: strokes are rendered by worker processes, then a small CNN is trained."""

import json
import multiprocessing
import sys

import numpy as np
from PIL import Image, ImageDraw
from tensorflow import keras
from tensorflow.keras import layers

if sys.platform != "win32":
    multiprocessing.set_start_method("forkserver")

SIDE = 64


def render(glyph):
    canvas = Image.new("L", (SIDE, SIDE))
    pen = ImageDraw.Draw(canvas)
    for stroke in glyph["strokes"]:
        pen.line([tuple(point) for point in stroke], fill=255, width=3)
    return np.asarray(canvas), glyph["code"]


def render_all(glyphs):
    with multiprocessing.Pool() as pool:
        drawn = pool.map(render, glyphs, chunksize=256)
    pictures, codes = zip(*drawn)
    return np.stack(pictures)[..., None] / np.float32(255), np.array(codes)


def build(num_codes):
    model = keras.Sequential([
        keras.Input((SIDE, SIDE, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.Dense(num_codes, activation="softmax"),
    ])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    with open("glyphs.json") as stream:
        glyphs = json.load(stream)
    x, y = render_all(glyphs)
    build(int(y.max()) + 1).fit(x, y, batch_size=128, epochs=4, validation_split=0.1)
