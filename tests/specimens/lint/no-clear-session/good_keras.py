"""Five folds of a small network over spectra that were measured in the field."""

import numpy as np
from sklearn.model_selection import KFold
from tensorflow import keras
from tensorflow.keras import callbacks, layers

SPECTRA = np.load("spectra.npy")
YIELD = np.load("yield.npy")


def build(rate):
    model = keras.Sequential()
    model.add(layers.Input((SPECTRA.shape[1], 1)))
    for width in (32, 64, 128):
        model.add(layers.Conv1D(width, 5, activation="relu"))
        model.add(layers.MaxPooling1D())
    model.add(layers.GlobalAveragePooling1D())
    model.add(layers.Dense(1))
    model.compile(optimizer=keras.optimizers.Adam(rate), loss="mae")
    return model


scores = []
for fold, (train, valid) in enumerate(KFold(5, shuffle=True, random_state=1).split(SPECTRA)):
    keras.backend.clear_session()
    model = build(1e-3)
    model.fit(
        SPECTRA[train],
        YIELD[train],
        epochs=40,
        batch_size=128,
        callbacks=[callbacks.BackupAndRestore(f"fold_{fold}"), callbacks.CSVLogger(f"fold_{fold}.csv")],
    )
    scores.append(model.evaluate(SPECTRA[valid], YIELD[valid], batch_size=512))
print("mean absolute error", np.mean(scores))
