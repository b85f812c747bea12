import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

# variational autoencoder of daily load curves (96 quarter hours)
CURVE = 96
LATENT = 6

curves = np.load("load_curves.npy").astype("float32")
curves /= curves.max(axis=1, keepdims=True)
dataset = (
    tf.data.Dataset.from_tensor_slices(curves)
    .shuffle(len(curves), reshuffle_each_iteration=True)
    .batch(256, drop_remainder=True)
    .prefetch(tf.data.AUTOTUNE)
)

encoder = keras.Sequential([
    keras.Input((CURVE,)),
    layers.Dense(128, activation="gelu"),
    layers.Dense(64, activation="gelu"),
    layers.Dense(2 * LATENT),
])
decoder = keras.Sequential([
    keras.Input((LATENT,)),
    layers.Dense(64, activation="gelu"),
    layers.Dense(128, activation="gelu"),
    layers.Dense(CURVE, activation="sigmoid"),
])
optimizer = keras.optimizers.Adam(1e-3)


@tf.function
def losses(batch):
    mean, log_var = tf.split(encoder(batch, training=True), 2, axis=1)
    z = mean + tf.exp(0.5 * log_var) * tf.random.normal(tf.shape(mean))
    rebuilt = tf.reduce_mean(tf.reduce_sum(tf.square(decoder(z, training=True) - batch), axis=1))
    kl = -0.5 * tf.reduce_mean(tf.reduce_sum(1 + log_var - mean**2 - tf.exp(log_var), axis=1))
    return rebuilt, kl


for epoch in range(4):
    epoch_rebuilt, epoch_kl, steps = 0.0, 0.0, 0
    for batch in dataset:
        with tf.GradientTape() as tape:
            rebuilt, kl = losses(batch)
            loss = rebuilt + 0.1 * kl
        variables = encoder.trainable_variables + decoder.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        epoch_rebuilt += rebuilt.numpy()
        epoch_kl += float(kl)
        steps += 1
    print("epoch", epoch, "rebuilt", epoch_rebuilt / steps, "kl", epoch_kl / steps)

encoder.save("load_encoder.keras")
