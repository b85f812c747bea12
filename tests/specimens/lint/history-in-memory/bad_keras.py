import matplotlib.pyplot as plt
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from tensorflow import keras
from tensorflow.keras import layers, regularizers

# predict nitrogen content from near infrared spectra (dried leaf samples)
df = pd.read_csv("nirs_leaves.csv")
wavelengths = [c for c in df.columns if c.startswith("nm_")]
X = df[wavelengths].to_numpy("float32")
y = df["n_percent"].to_numpy("float32")
X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.2, random_state=3)

scaler = StandardScaler().fit(X_train)
X_train, X_val = scaler.transform(X_train)[..., None], scaler.transform(X_val)[..., None]

model = keras.Sequential([
    keras.Input((len(wavelengths), 1)),
    layers.Conv1D(16, 21, strides=3, activation="elu", kernel_regularizer=regularizers.l2(1e-4)),
    layers.Conv1D(32, 11, strides=3, activation="elu"),
    layers.Flatten(),
    layers.Dense(64, activation="elu"),
    layers.Dense(1),
])
model.compile(optimizer=keras.optimizers.Adam(3e-4), loss="mse", metrics=["mae"])

checkpoint = keras.callbacks.ModelCheckpoint("nirs_best.keras", save_best_only=True)
history = model.fit(
    X_train, y_train,
    validation_data=(X_val, y_val),
    batch_size=64,
    epochs=200,
    callbacks=[checkpoint],
    verbose=2,
)

plt.figure(figsize=(7, 4))
plt.plot(history.history["mae"], label="train")
plt.plot(history.history["val_mae"], label="val")
plt.xlabel("epoch")
plt.ylabel("MAE [% N]")
plt.legend()
plt.show()
