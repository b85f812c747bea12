import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.keras.utils import image_dataset_from_directory

# coffee leaf miner / rust / healthy, photos sorted into folders
IMG = (224, 224)
BATCH = 32
SEED = 7

train_ds = image_dataset_from_directory(
    "coffee/train",
    validation_split=0.2,
    subset="training",
    seed=SEED,
    image_size=IMG,
    batch_size=BATCH,
    label_mode="categorical",
)
val_ds = image_dataset_from_directory(
    "coffee/train",
    validation_split=0.2,
    subset="validation",
    seed=SEED,
    image_size=IMG,
    batch_size=BATCH,
    label_mode="categorical",
)
n_classes = len(train_ds.class_names)

train_ds = train_ds.prefetch(tf.data.AUTOTUNE)
val_ds = val_ds.prefetch(tf.data.AUTOTUNE)

augment = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomZoom(0.1)])
base = keras.applications.EfficientNetV2B0(include_top=False, pooling="avg", weights="imagenet")

inputs = keras.Input(IMG + (3,))
x = augment(inputs)
x = base(x)
x = layers.Dropout(0.3)(x)
outputs = layers.Dense(n_classes, activation="softmax")(x)
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(1e-4), "categorical_crossentropy", metrics=["accuracy"])

model.fit(
    train_ds,
    validation_data=val_ds,
    epochs=15,
    callbacks=[
        keras.callbacks.ModelCheckpoint("coffee_best.keras", monitor="val_accuracy", save_best_only=True),
        keras.callbacks.CSVLogger("coffee_log.csv"),
    ],
)
print(model.evaluate(val_ds))
