import numpy as np
import pandas as pd
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

# hourly readings of 14 soil moisture probes -> irrigation need of the next day
WINDOW = 72
table = pd.read_csv("probes_hourly.csv", parse_dates=["time"]).set_index("time")
need = pd.read_csv("irrigation_mm.csv", parse_dates=["day"]).set_index("day")["mm"]

values = table.interpolate(limit=6).dropna().to_numpy("float32")
values = (values - values.mean(0)) / values.std(0)
days = len(values) // 24 - WINDOW // 24

X = np.stack([values[d * 24 : d * 24 + WINDOW] for d in range(days)])
y = need.to_numpy("float32")[WINDOW // 24 : WINDOW // 24 + days]
cut = int(0.8 * days)

train_ds = tf.data.Dataset.from_tensor_slices((X[:cut], y[:cut])).shuffle(cut).batch(32).prefetch(tf.data.AUTOTUNE)
val_ds = tf.data.Dataset.from_tensor_slices((X[cut:], y[cut:])).batch(128)

with tf.device("/GPU:0"):
    inputs = keras.Input((WINDOW, X.shape[-1]))
    h = layers.Bidirectional(layers.LSTM(48, return_sequences=True))(inputs)
    h = layers.LSTM(32)(h)
    h = layers.Dropout(0.2)(h)
    model = keras.Model(inputs, layers.Dense(1)(h))
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="huber", metrics=["mae"])

model.summary()
model.fit(train_ds, validation_data=val_ds, epochs=4)
print("days ahead error [mm]:", model.evaluate(val_ds, verbose=0)[1])
model.save("irrigation.keras")
