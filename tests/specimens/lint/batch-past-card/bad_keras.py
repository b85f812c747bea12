"""Skin lesions (HAM10000) with EfficientNet-B4, the whole network trained."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

# card: RTX 2070, 8 GB
print(tf.config.list_physical_devices("GPU"))

IMG = 380
CLASSES = 7

train = keras.utils.image_dataset_from_directory(
    "ham10000/train",
    label_mode="categorical",
    image_size=(IMG, IMG),
    batch_size=64,
    seed=42,
).prefetch(tf.data.AUTOTUNE)
valid = keras.utils.image_dataset_from_directory(
    "ham10000/valid",
    label_mode="categorical",
    image_size=(IMG, IMG),
    batch_size=96,
    shuffle=False,
).prefetch(tf.data.AUTOTUNE)

inputs = keras.Input((IMG, IMG, 3))
x = layers.RandomFlip()(inputs)
x = keras.applications.EfficientNetB4(include_top=False, weights="imagenet", pooling="avg")(x)
x = layers.Dropout(0.4)(x)
model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
model.compile(
    optimizer=keras.optimizers.Adam(1e-4),
    loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
    metrics=["accuracy", keras.metrics.AUC(multi_label=True)],
)

model.fit(
    train,
    validation_data=valid,
    epochs=12,
    callbacks=[keras.callbacks.ModelCheckpoint("ham_{epoch:02d}.keras"), keras.callbacks.CSVLogger("ham.csv")],
)
