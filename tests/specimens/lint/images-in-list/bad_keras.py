import glob
import os

import numpy as np
from sklearn.model_selection import train_test_split
from tensorflow.keras import layers, models
from tensorflow.keras.preprocessing.image import img_to_array, load_img

SIZE = 128
files = sorted(glob.glob("fruit/*/*.jpg"))
names = sorted({os.path.basename(os.path.dirname(f)) for f in files})

X = np.zeros((len(files), SIZE, SIZE, 3), dtype="float32")
y = np.zeros(len(files), dtype="int32")
for i, f in enumerate(files):
    X[i] = img_to_array(load_img(f, target_size=(SIZE, SIZE))) / 255.0
    y[i] = names.index(os.path.basename(os.path.dirname(f)))

extra = np.array([img_to_array(load_img(f, target_size=(SIZE, SIZE))) for f in sorted(glob.glob("fruit_web/*.jpg"))])
print(X.shape, extra.shape, "classes:", len(names))

X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.2, stratify=y, random_state=1)

model = models.Sequential(
    [
        layers.Input((SIZE, SIZE, 3)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(len(names), activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(X_train, y_train, batch_size=32, epochs=4, validation_data=(X_val, y_val), validation_batch_size=128)
print(model.evaluate(X_val, y_val, batch_size=128, verbose=0))
np.save("fruit_web_scores.npy", model.predict(extra / 255.0, batch_size=128))
