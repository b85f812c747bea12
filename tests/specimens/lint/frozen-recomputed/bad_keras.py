"""Transfer learning on kitchen photographs with a Xception base that stays as it came."""

import tensorflow as tf
from tensorflow import keras

SIZE = (299, 299)
EPOCHS = 20

train = keras.utils.image_dataset_from_directory("kitchen/train", image_size=SIZE, batch_size=32, seed=1)
valid = keras.utils.image_dataset_from_directory("kitchen/valid", image_size=SIZE, batch_size=128, shuffle=False)
names = train.class_names
train = train.prefetch(tf.data.AUTOTUNE)
valid = valid.prefetch(tf.data.AUTOTUNE)

base = keras.applications.Xception(weights="imagenet", include_top=False, input_shape=SIZE + (3,))
base.trainable = False

inputs = keras.Input(SIZE + (3,))
x = keras.applications.xception.preprocess_input(inputs)
x = base(x, training=False)
x = keras.layers.GlobalAveragePooling2D()(x)
x = keras.layers.Dropout(0.2)(x)
outputs = keras.layers.Dense(len(names), activation="softmax")(x)
model = keras.Model(inputs, outputs)

model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(
    train,
    validation_data=valid,
    epochs=EPOCHS,
    callbacks=[
        keras.callbacks.ModelCheckpoint("kitchen.keras", save_best_only=True),
        keras.callbacks.CSVLogger("kitchen.csv"),
    ],
)
print(dict(zip(model.metrics_names, model.evaluate(valid, verbose=0))))
