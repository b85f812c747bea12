import glob
import os

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from sklearn.model_selection import train_test_split
from tensorflow.keras import layers, models
from tensorflow.keras.preprocessing.image import img_to_array, load_img

SIZE = 128
files = sorted(glob.glob("fruit/*/*.jpg"))
names = sorted({os.path.basename(os.path.dirname(f)) for f in files})
labels = [names.index(os.path.basename(os.path.dirname(f))) for f in files]
train_files, val_files, y_train, y_val = train_test_split(files, labels, test_size=0.2, stratify=labels, random_state=1)


def load(path, label):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, [SIZE, SIZE]) / 255.0, label


def dataset(paths, targets, batch, cache):
    data = tf.data.Dataset.from_tensor_slices((paths, targets)).map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return data.cache(cache).batch(batch).prefetch(tf.data.AUTOTUNE)


examples = []
for f in files[:9]:
    examples.append(img_to_array(load_img(f, target_size=(SIZE, SIZE))))
plt.imshow(np.hstack(examples).astype("uint8"))
plt.savefig("fruit.png")

bytes_on_disk = np.array([os.path.getsize(f) for f in files])
print(len(files), "photographs of", bytes_on_disk.mean() / 1e3, "kB")

model = models.Sequential(
    [
        layers.Input((SIZE, SIZE, 3)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(len(names), activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
train = dataset(train_files, y_train, 32, "fruit_train.cache")
val = dataset(val_files, y_val, 128, "fruit_val.cache")
model.fit(train, validation_data=val, epochs=4)
scores = []
for batch, _ in val:
    scores.append(model.predict_on_batch(batch))
np.save("fruit_scores.npy", np.concatenate(scores))
