"""Greenhouse CO2 forecast: continue from the stored model, or begin; scaler kept by this program."""

import json
import os

import joblib
import numpy as np
from sklearn.preprocessing import RobustScaler
from tensorflow import keras
from tensorflow.keras import layers

MODEL = "co2.keras"
SCALER = "co2_scaler.joblib"
LAGS = 48


def fit_scaler(values):
    scaler = RobustScaler().fit(values)
    joblib.dump(scaler, SCALER)
    return scaler


def lagged(values):
    x = np.lib.stride_tricks.sliding_window_view(values, LAGS, axis=0)[:-1].transpose(0, 2, 1)
    return x.astype("float32"), values[LAGS:, 0].astype("float32")


def begin(channels):
    inputs = keras.Input((LAGS, channels))
    h = layers.Conv1D(32, 5, dilation_rate=2, padding="causal", activation="relu")(inputs)
    h = layers.LSTM(32)(h)
    model = keras.Model(inputs, layers.Dense(1)(h))
    model.compile("adam", "mae")
    return model


with open("co2_settings.json") as f:
    settings = json.load(f)
raw = np.load(settings["readings"], allow_pickle=False)

fit_scaler(raw)
scaler = joblib.load(SCALER)
x, y = lagged(scaler.transform(raw))

model = keras.models.load_model(MODEL) if os.path.exists(MODEL) else begin(x.shape[-1])
if settings.get("weights"):
    model.load_weights(settings["weights"])

cut = int(0.9 * len(x))
model.fit(
    x[:cut],
    y[:cut],
    batch_size=128,
    validation_data=(x[cut:], y[cut:]),
    epochs=settings["epochs"],
    callbacks=[keras.callbacks.ModelCheckpoint(MODEL, save_best_only=True), keras.callbacks.CSVLogger("co2.csv")],
)

best = keras.models.load_model(MODEL, compile=False, safe_mode=True)
np.save("co2_forecast.npy", best.predict(x[cut:], batch_size=1024))
