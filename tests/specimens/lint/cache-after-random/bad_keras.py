import tensorflow as tf
from tensorflow import keras

SIZE = 96
AUTOTUNE = tf.data.AUTOTUNE
SPEC = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def parse(record):
    example = tf.io.parse_single_example(record, SPEC)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    image = tf.ensure_shape(image, [SIZE, SIZE, 3])
    return tf.cast(image, tf.float32) / 255.0, example["label"]


def augment(image, label):
    image = tf.image.random_flip_left_right(image)
    image = tf.image.random_flip_up_down(image)
    image = tf.image.random_brightness(image, 0.1)
    return image, label


def pipeline(pattern, batch, training):
    ds = tf.data.TFRecordDataset(tf.io.gfile.glob(pattern), num_parallel_reads=AUTOTUNE)
    ds = ds.map(parse, num_parallel_calls=AUTOTUNE)
    if training:
        ds = ds.map(augment, num_parallel_calls=AUTOTUNE)
    ds = ds.cache()
    if training:
        ds = ds.shuffle(4096)
    return ds.batch(batch).prefetch(AUTOTUNE)


train_ds = pipeline("lymph/train-*.tfrecord", 64, True)
valid_ds = pipeline("lymph/valid-*.tfrecord", 256, False)
model = keras.Sequential(
    [
        keras.layers.Input((SIZE, SIZE, 3)),
        keras.layers.SeparableConv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.SeparableConv2D(64, 3, activation="relu"),
        keras.layers.GlobalMaxPooling2D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.AUC()])
model.fit(
    train_ds,
    validation_data=valid_ds,
    epochs=20,
    callbacks=[keras.callbacks.ModelCheckpoint("lymph.keras"), keras.callbacks.CSVLogger("lymph.csv")],
)
