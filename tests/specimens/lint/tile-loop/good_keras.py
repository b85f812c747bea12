"""Counts seals on aerial photographs with a patch classifier, all patches of a strip in one call."""

import sys

import numpy as np
from PIL import Image
from tensorflow import keras

PATCH = 96


def strips(photo):
    """Yield each full-width strip of patches as one array (patches, PATCH, PATCH, 3)."""
    columns = photo.shape[1] // PATCH
    for top in range(0, photo.shape[0] - PATCH + 1, PATCH):
        strip = photo[top : top + PATCH, : columns * PATCH]
        yield top, strip.reshape(PATCH, columns, PATCH, 3).swapaxes(0, 1)


def brightness(photo):
    table = []
    for top, patches in strips(photo):
        for column, patch in enumerate(patches):
            table.append((top, column * PATCH, float(patch.mean())))
    return table


def count(model, photo):
    places = []
    for top, patches in strips(photo):
        scores = model.predict(patches, batch_size=256, verbose=0)[:, 0]
        places += [(top, column * PATCH) for column in np.flatnonzero(scores > 0.5)]
    return places


def haul_out(scene_model, photo):
    thumbnail = np.asarray(Image.fromarray((255 * photo).astype("uint8")).resize((224, 224)), dtype=np.float32)
    return int(scene_model.predict(thumbnail[None] / 255.0, verbose=0).argmax())


def main(path):
    photo = np.asarray(Image.open(path).convert("RGB"), dtype=np.float32) / 255.0
    model = keras.models.load_model("seal_patches.keras")
    scene_model = keras.models.load_model("haul_out.keras")
    places = count(model, photo)
    dark = sum(mean < 0.1 for _, _, mean in brightness(photo))
    print(f"{path}: {len(places)} patches with seals, scene kind {haul_out(scene_model, photo)}, {dark} dark patches")


if __name__ == "__main__":
    main(sys.argv[1])
