"""Turbine blade ice detection on one-minute power / wind / temperature windows."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

BATCH = 128
EVAL_BATCH = 1024
MINUTES = 60


def arrays(split):
    return np.load(f"ice/{split}_x.npy").astype("float32"), np.load(f"ice/{split}_y.npy").astype("float32")


def jitter(x, y):
    return x + tf.random.normal(tf.shape(x), stddev=0.01), y


def training_set(x, y):
    return (
        tf.data.Dataset.from_tensor_slices((x, y))
        .shuffle(len(x))
        .map(jitter, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def evaluation_set(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(EVAL_BATCH).prefetch(tf.data.AUTOTUNE)


def build(channels):
    inputs = keras.Input((MINUTES, channels))
    normalise = layers.Normalization()
    h = normalise(inputs)
    for width in (32, 64, 64):
        h = layers.SeparableConv1D(width, 5, padding="same", activation="relu")(h)
        h = layers.MaxPooling1D(2)(h)
    h = layers.GlobalAveragePooling1D()(h)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(h))
    model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
    return model, normalise


x_train, y_train = arrays("train")
x_val, y_val = arrays("val")
x_test, y_test = arrays("test")

model, normalise = build(x_train.shape[-1])
# the adaptation reads the training windows once, in the training batch size
normalise.adapt(tf.data.Dataset.from_tensor_slices(x_train).batch(BATCH))

model.fit(
    training_set(x_train, y_train),
    validation_data=evaluation_set(x_val, y_val),
    epochs=20,
    callbacks=[
        keras.callbacks.ModelCheckpoint("ice.keras", monitor="val_auc", mode="max", save_best_only=True),
        keras.callbacks.CSVLogger("ice.csv"),
    ],
)
print("test:", model.evaluate(evaluation_set(x_test, y_test), return_dict=True))
scores = model.predict(x_test, batch_size=4 * BATCH)
np.save("ice_scores.npy", scores)
