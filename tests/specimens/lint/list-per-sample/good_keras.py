import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow import keras

ROOT = Path("kidney/patients")
TRAIN_IDS = [line.strip() for line in open("kidney/train_ids.txt")]
VAL_IDS = [line.strip() for line in open("kidney/val_ids.txt")]


def find_slices(ids):
    return {patient: sorted((ROOT / patient / "arterial").glob("*.npy")) for patient in ids}


def samples(ids):
    slices = find_slices(ids)

    def generate():
        for patient in ids:
            paths = slices[patient]
            middle = len(paths) // 2
            volume = np.stack([np.load(path) for path in paths[middle - 1 : middle + 2]], axis=-1)
            mask = np.load(ROOT / patient / "mask.npy").astype("float32")
            yield volume.astype("float32"), mask[..., None]

    return generate


def as_dataset(ids, batch_size):
    signature = (
        tf.TensorSpec((256, 256, 3), tf.float32),
        tf.TensorSpec((256, 256, 1), tf.float32),
    )
    dataset = tf.data.Dataset.from_generator(samples(ids), output_signature=signature)
    return dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def small_unet():
    inputs = keras.Input((256, 256, 3))
    a = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(inputs)
    b = keras.layers.Conv2D(64, 3, padding="same", activation="relu")(keras.layers.MaxPooling2D()(a))
    c = keras.layers.Concatenate()([a, keras.layers.UpSampling2D()(b)])
    return keras.Model(inputs, keras.layers.Conv2D(1, 1, activation="sigmoid")(c))


print("patients on disk:", len(os.listdir(ROOT)))
print("earlier runs:", [entry.name for entry in os.scandir("runs") if entry.is_dir()])
model = small_unet()
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="binary_crossentropy")
model.fit(as_dataset(TRAIN_IDS, 8), validation_data=as_dataset(VAL_IDS, 32), epochs=3)
