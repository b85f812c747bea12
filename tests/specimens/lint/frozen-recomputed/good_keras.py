"""Transfer learning on rock thin sections: random flips and rotations come before the frozen base."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

SIZE = (224, 224)


def datasets():
    train = keras.utils.image_dataset_from_directory("rocks/train", image_size=SIZE, batch_size=32, seed=1)
    valid = keras.utils.image_dataset_from_directory("rocks/valid", image_size=SIZE, batch_size=128, shuffle=False)
    return train.prefetch(tf.data.AUTOTUNE), valid.prefetch(tf.data.AUTOTUNE), len(train.class_names)


def build(num_classes):
    augment = keras.Sequential([layers.RandomFlip("horizontal_and_vertical"), layers.RandomRotation(0.5)])
    base = keras.applications.MobileNetV2(include_top=False, weights="imagenet", pooling="avg")
    base.trainable = False
    inputs = keras.Input(SIZE + (3,))
    x = augment(inputs)
    x = keras.applications.mobilenet_v2.preprocess_input(x)
    x = base(x, training=False)
    outputs = layers.Dense(num_classes, activation="softmax")(layers.Dropout(0.2)(x))
    return keras.Model(inputs, outputs), base


def fit(model, train, valid, rate, epochs, name):
    model.compile(keras.optimizers.Adam(rate), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        train,
        validation_data=valid,
        epochs=epochs,
        callbacks=[keras.callbacks.BackupAndRestore(f"{name}_backup"), keras.callbacks.CSVLogger(f"{name}.csv")],
    )


def main():
    train, valid, num_classes = datasets()
    model, base = build(num_classes)
    fit(model, train, valid, rate=1e-3, epochs=10, name="head")
    base.trainable = True
    for layer in base.layers[:100]:
        layer.trainable = False
    fit(model, train, valid, rate=1e-5, epochs=10, name="finetune")
    model.save("rocks.keras")


if __name__ == "__main__":
    main()
