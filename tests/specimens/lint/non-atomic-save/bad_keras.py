"""GAN for synthetic partial discharge patterns (phase-resolved, 64 x 64)."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

NOISE = 100
EPOCHS = 300
BATCH = 128

patterns = np.load("prpd_patterns.npy").astype("float32")[..., None] / 127.5 - 1.0
dataset = tf.data.Dataset.from_tensor_slices(patterns).shuffle(10_000).batch(BATCH, drop_remainder=True).prefetch(2)

generator = keras.Sequential([
    keras.Input((NOISE,)),
    layers.Dense(8 * 8 * 128),
    layers.Reshape((8, 8, 128)),
    layers.Conv2DTranspose(128, 4, strides=2, padding="same", activation="leaky_relu"),
    layers.Conv2DTranspose(64, 4, strides=2, padding="same", activation="leaky_relu"),
    layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="tanh"),
])
discriminator = keras.Sequential([
    keras.Input((64, 64, 1)),
    layers.Conv2D(64, 4, strides=2, padding="same", activation="leaky_relu"),
    layers.Conv2D(128, 4, strides=2, padding="same", activation="leaky_relu"),
    layers.Flatten(),
    layers.Dropout(0.3),
    layers.Dense(1),
])
bce = keras.losses.BinaryCrossentropy(from_logits=True)
g_opt, d_opt = keras.optimizers.Adam(2e-4, 0.5), keras.optimizers.Adam(2e-4, 0.5)


@tf.function
def train_step(real):
    noise = tf.random.normal((BATCH, NOISE))
    with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
        fake = generator(noise, training=True)
        on_real, on_fake = discriminator(real, training=True), discriminator(fake, training=True)
        g_loss = bce(tf.ones_like(on_fake), on_fake)
        d_loss = bce(tf.ones_like(on_real), on_real) + bce(tf.zeros_like(on_fake), on_fake)
    g_grad = g_tape.gradient(g_loss, generator.trainable_variables)
    d_grad = d_tape.gradient(d_loss, discriminator.trainable_variables)
    g_opt.apply_gradients(zip(g_grad, generator.trainable_variables))
    d_opt.apply_gradients(zip(d_grad, discriminator.trainable_variables))


for epoch in range(EPOCHS):
    for real in dataset:
        train_step(real)
    generator.save("prpd_generator.keras")
    discriminator.save_weights("prpd_discriminator.weights.h5")
    print("finished epoch", epoch + 1)
