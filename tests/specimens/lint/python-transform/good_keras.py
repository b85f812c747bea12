import numpy as np
import tensorflow as tf

PALETTE = {(128, 64, 128): 0, (70, 70, 70): 1, (107, 142, 35): 2, (70, 130, 180): 3}


def lookup_table():
    table = np.full((256, 256, 256), 4, dtype=np.uint8)
    for (red, green, blue), index in PALETTE.items():
        table[red, green, blue] = index
    return table


class StreetScenes(tf.keras.utils.Sequence):
    """Prepared 256 x 512 arrays; the masks hold palette colours."""

    def __init__(self, images, masks, batch_size):
        super().__init__()
        self.images = np.load(images, mmap_mode="r")
        self.masks = np.load(masks, mmap_mode="r")
        self.batch_size = batch_size
        self.order = np.random.permutation(len(self.images))
        self.table = lookup_table()

    def __len__(self):
        return len(self.order) // self.batch_size

    def encode(self, mask):
        return self.table[mask[..., 0], mask[..., 1], mask[..., 2]]

    def signs_only(self, mask, colours):
        keep = np.zeros(mask.shape[:2], dtype=bool)
        for colour in colours:
            keep |= (mask == np.array(colour)).all(axis=-1)
        return keep

    def __getitem__(self, index):
        chosen = np.sort(self.order[index * self.batch_size : (index + 1) * self.batch_size])
        x = self.images[chosen].astype("float32") / 255.0
        y = np.empty(x.shape[:3], dtype=np.uint8)
        for slot, mask in enumerate(self.masks[chosen]):
            y[slot] = self.encode(mask)
            y[slot][self.signs_only(mask, [(220, 220, 0), (250, 170, 30)])] = 3
        return x, y

    def on_epoch_end(self):
        np.random.shuffle(self.order)


def build(classes=5):
    inputs = tf.keras.Input((256, 512, 3))
    x = inputs
    for filters in (16, 32, 64):
        for dilation in (1, 2):
            x = tf.keras.layers.Conv2D(filters, 3, padding="same", dilation_rate=dilation, activation="relu")(x)
    return tf.keras.Model(inputs, tf.keras.layers.Conv2D(classes, 1, activation="softmax")(x))


model = build()
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
train = StreetScenes("streets/train_x.npy", "streets/train_y.npy", 8)
valid = StreetScenes("streets/val_x.npy", "streets/val_y.npy", 32)
model.fit(train, validation_data=valid, epochs=3)
model.save("streets.keras")
