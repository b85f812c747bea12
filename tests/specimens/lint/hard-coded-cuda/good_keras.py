"""Next-word suggestion for a veterinary note-taking tool."""

import pathlib

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

VOCABULARY = 12_000
LENGTH = 40

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
DEVICE = "/GPU:0" if gpus else "/CPU:0"

lines = pathlib.Path("notes.txt").read_text(encoding="utf-8").splitlines()
held_out = max(1, len(lines) // 10)

# the string lookup has no kernel for the GPU
with tf.device("/CPU:0"):
    vectorize = layers.TextVectorization(max_tokens=VOCABULARY, output_sequence_length=LENGTH + 1)
    vectorize.adapt(tf.data.Dataset.from_tensor_slices(lines[held_out:]).batch(512))


def shifted(batch):
    tokens = vectorize(batch)
    return tokens[:, :-1], tokens[:, 1:]


def dataset(texts, batch, training):
    ds = tf.data.Dataset.from_tensor_slices(texts)
    if training:
        ds = ds.shuffle(20_000)
    return ds.batch(batch).map(shifted, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def build():
    inputs = keras.Input((LENGTH,), dtype="int64")
    h = layers.Embedding(VOCABULARY, 128, mask_zero=True)(inputs)
    h = layers.GRU(256, return_sequences=True)(h)
    return keras.Model(inputs, layers.Dense(VOCABULARY)(h))


with tf.device(DEVICE):
    model = build()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0))

if gpus:
    with tf.device("/GPU:0"):
        model(tf.zeros((1, LENGTH), tf.int64))

model.fit(
    dataset(lines[held_out:], 64, True),
    validation_data=dataset(lines[:held_out], 256, False),
    epochs=10,
    callbacks=[keras.callbacks.BackupAndRestore("backup"), keras.callbacks.CSVLogger("log.csv", append=True)],
)
