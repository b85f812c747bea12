from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow import keras

ROOT = Path("kidney/patients")
TRAIN_IDS = [line.strip() for line in open("kidney/train_ids.txt")]
VAL_IDS = [line.strip() for line in open("kidney/val_ids.txt")]


def read_volume(folder):
    slices = [np.load(path) for path in sorted(folder.iterdir()) if path.suffix == ".npy"]
    middle = len(slices) // 2
    return np.stack(slices[middle - 1 : middle + 2], axis=-1).astype("float32")


def samples(ids):
    def generate():
        for patient in ids:
            volume = read_volume(ROOT / patient / "arterial")
            mask = np.load(ROOT / patient / "mask.npy").astype("float32")
            yield volume, mask[..., None]

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


model = small_unet()
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="binary_crossentropy")
model.fit(as_dataset(TRAIN_IDS, 8), validation_data=as_dataset(VAL_IDS, 32), epochs=3)
