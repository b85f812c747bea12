import numpy as np
from tensorflow import keras
from tensorflow.keras.callbacks import CSVLogger, EarlyStopping, ReduceLROnPlateau
from tensorflow.keras.layers import (
    Activation, BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, Input, MaxPooling2D, RandomFlip, RandomRotation,
)

# cell nuclei patches 64x64, benign / malignant
X_train, y_train = np.load("nuclei_x_train.npy"), np.load("nuclei_y_train.npy")
X_val, y_val = np.load("nuclei_x_val.npy"), np.load("nuclei_y_val.npy")
print(X_train.shape, X_val.shape, y_train.mean())


def conv_block(x, filters):
    x = Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = BatchNormalization()(x)
    x = Activation("relu")(x)
    return MaxPooling2D()(x)


inp = Input((64, 64, 3))
x = RandomFlip()(inp)
x = RandomRotation(0.25)(x)
for f in (32, 64, 128, 256):
    x = conv_block(x, f)
x = GlobalAveragePooling2D()(x)
out = Dense(1, activation="sigmoid")(x)

model = keras.Model(inp, out)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy", keras.metrics.AUC()])

callbacks = [
    EarlyStopping(monitor="val_loss", patience=12, restore_best_weights=True),
    ReduceLROnPlateau(monitor="val_loss", factor=0.3, patience=5, verbose=1),
    CSVLogger("nuclei.csv"),
]
model.fit(
    X_train,
    y_train,
    batch_size=64,
    epochs=100,
    validation_data=(X_val, y_val),
    callbacks=callbacks,
)
model.save("nuclei.keras")
