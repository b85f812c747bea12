import csv

import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

PATCH = 128
BATCH = 64


def read_index(name):
    paths, tops, lefts, labels = [], [], [], []
    with open(name, newline="") as handle:
        for row in csv.DictReader(handle):
            paths.append("herbarium/sheets/" + row["sheet"] + ".jpg")
            tops.append(int(row["top"]))
            lefts.append(int(row["left"]))
            labels.append(int(row["organ"]))
    return paths, tops, lefts, labels


def cut(path, top, left, label):
    sheet = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    patch = tf.image.crop_to_bounding_box(sheet, top, left, PATCH, PATCH)
    return tf.cast(patch, tf.float32) / 255.0, label


def context(path, label):
    photo = tf.image.decode_png(tf.io.read_file(path), channels=3)
    photo = photo[::8, ::8]
    photo = tf.ensure_shape(photo, [PATCH, PATCH, 3])
    return tf.cast(photo, tf.float32) / 255.0, label


patches = (
    tf.data.Dataset.from_tensor_slices(read_index("herbarium/patches.csv"))
    .shuffle(20000)
    .map(cut, num_parallel_calls=tf.data.AUTOTUNE)
)
with open("herbarium/leaves.txt") as listing:
    leaves = [line.split() for line in listing]
scans = tf.data.Dataset.from_tensor_slices(([leaf[0] for leaf in leaves], [int(leaf[1]) for leaf in leaves]))
scans = scans.map(context, num_parallel_calls=tf.data.AUTOTUNE)
train = tf.data.Dataset.sample_from_datasets([patches, scans]).batch(BATCH).prefetch(2)

model = models.Sequential(
    [
        layers.Input((PATCH, PATCH, 3)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(6),
    ]
)
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(train, epochs=8, callbacks=[callbacks.ModelCheckpoint("organ.keras"), callbacks.CSVLogger("organ.csv")])
