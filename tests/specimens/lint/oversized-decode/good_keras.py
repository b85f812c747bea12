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
    window = tf.stack([top, left, PATCH, PATCH])
    patch = tf.image.decode_and_crop_jpeg(tf.io.read_file(path), window, channels=3)
    return tf.cast(patch, tf.float32) / 255.0, label


def context(path, label):
    photo = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, ratio=8)
    photo = tf.ensure_shape(photo, [PATCH, PATCH, 3])
    return tf.cast(photo, tf.float32) / 255.0, label


def specimen(path, label):
    """Laid face down on the scanner, so mirrored."""
    image = tf.io.decode_png(tf.io.read_file(path), channels=4)
    image = tf.image.random_crop(image[..., :3], [PATCH, PATCH, 3])
    return tf.cast(image[:, ::-1], tf.float32) / 255.0, label


def read_listing(name):
    with open(name) as listing:
        lines = [line.split() for line in listing]
    return [line[0] for line in lines], [int(line[1]) for line in lines]


patches = tf.data.Dataset.from_tensor_slices(read_index("herbarium/patches.csv")).shuffle(20000)
patches = patches.map(cut, num_parallel_calls=tf.data.AUTOTUNE)
leaves = tf.data.Dataset.from_tensor_slices(read_listing("herbarium/leaves.txt"))
leaves = leaves.map(context, num_parallel_calls=tf.data.AUTOTUNE)
loose = tf.data.Dataset.from_tensor_slices(read_listing("herbarium/loose_144px.txt"))
loose = loose.map(specimen, num_parallel_calls=tf.data.AUTOTUNE)
train = tf.data.Dataset.sample_from_datasets([patches, leaves, loose]).batch(BATCH).prefetch(2)

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
