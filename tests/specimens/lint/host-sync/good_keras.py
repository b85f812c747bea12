"""River gauge forecast with a custom training step (quantile loss)."""

import csv
import os

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

QUANTILES = tf.constant([0.1, 0.5, 0.9])
HISTORY, AHEAD = 120, 24


def windows(series, batch, training):
    ds = keras.utils.timeseries_dataset_from_array(
        series[:-AHEAD], series[HISTORY + AHEAD - 1 :], HISTORY, batch_size=batch, shuffle=training
    )
    return ds.prefetch(tf.data.AUTOTUNE)


def build(gauges):
    inputs = keras.Input((HISTORY, gauges))
    h = layers.GRU(64)(inputs)
    h = layers.Dense(gauges * 3)(h)
    return keras.Model(inputs, layers.Reshape((gauges, 3))(h))


def pinball(target, quantiles):
    off = target[..., None] - quantiles
    return tf.reduce_mean(tf.maximum(QUANTILES * off, (QUANTILES - 1) * off))


series = np.load("gauges.npy").astype("float32")
scale = float(series.std())
series = (series - series.mean(0)) / scale
cut = int(0.85 * len(series))
train_ds = windows(series[:cut], 64, True)
valid_ds = windows(series[cut:], 512, False)

model = build(series.shape[1])
optimizer = keras.optimizers.Adam(5e-4)
train_loss, valid_loss = keras.metrics.Mean(), keras.metrics.Mean()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = pinball(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_loss.update_state(loss)
    return loss


for epoch in range(30):
    train_loss.reset_state()
    valid_loss.reset_state()
    for step, (x, y) in enumerate(train_ds):
        loss = train_step(x, y)
        if step % 200 == 0:
            print(f"  step {step}: {float(loss):.4f}")

    for x, y in valid_ds:
        valid_loss.update_state(pinball(y, model(x, training=False)))

    row = [epoch, train_loss.result().numpy(), valid_loss.result().numpy()]
    print("epoch %d: train %.4f, valid %.4f" % tuple(row))
    with open("gauges_log.csv", "a", newline="") as log:
        csv.writer(log).writerow(row)
    model.save("gauges.part.keras")
    os.replace("gauges.part.keras", "gauges.keras")
