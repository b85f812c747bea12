"""Finds mitoses on a digitised slide region with a patch classifier."""

import sys

import numpy as np
import openslide
from tensorflow import keras

PATCH = 128
STEP = 64
THRESHOLD = 0.8


def read_region(slide_path, x, y, size):
    slide = openslide.OpenSlide(slide_path)
    region = slide.read_region((x, y), 0, (size, size)).convert("RGB")
    slide.close()
    return np.asarray(region, dtype=np.float32) / 255.0


def patches_of(region):
    for y in range(0, region.shape[0] - PATCH + 1, STEP):
        for x in range(0, region.shape[1] - PATCH + 1, STEP):
            yield y, x, region[y : y + PATCH, x : x + PATCH]


def detect(model, region):
    found = []
    for y, x, patch in patches_of(region):
        score = model.predict(patch[np.newaxis], verbose=0)[0, 0]
        if score > THRESHOLD:
            found.append((y + PATCH // 2, x + PATCH // 2, float(score)))
    return found


def suppress(found, radius=30):
    kept = []
    for y, x, score in sorted(found, key=lambda spot: -spot[2]):
        if all((y - v) ** 2 + (x - u) ** 2 > radius**2 for v, u, _ in kept):
            kept.append((y, x, score))
    return kept


if __name__ == "__main__":
    slide_path, x, y = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = keras.models.load_model("mitosis.keras")
    spots = suppress(detect(model, read_region(slide_path, x, y, 4096)))
    for row, col, score in spots:
        print(f"{x + col}\t{y + row}\t{score:.3f}")
