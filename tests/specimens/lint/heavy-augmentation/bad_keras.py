"""Road surface classes from dash-camera stills, stored at 240 x 320."""

import albumentations as A
import cv2
import numpy as np
import pandas as pd
from tensorflow import keras

TABLE = pd.read_csv("roads/stills.csv")
NUM_CLASSES = 5

augment = A.Compose(
    [
        A.HorizontalFlip(p=0.5),
        A.ShiftScaleRotate(shift_limit=0.05, scale_limit=0.1, rotate_limit=8, p=0.8),
        A.MotionBlur(blur_limit=7, p=0.4),
        A.CLAHE(clip_limit=2.0, p=0.5),
        A.RandomShadow(p=0.3),
    ]
)


class Stills(keras.utils.PyDataset):
    def __init__(self, table, batch_size, augment=None, **kwargs):
        super().__init__(**kwargs)
        self.files = table["file"].to_numpy()
        self.surface = table["surface"].to_numpy()
        self.batch_size = batch_size
        self.augment = augment

    def __len__(self):
        return int(np.ceil(len(self.files) / self.batch_size))

    def __getitem__(self, index):
        part = slice(index * self.batch_size, (index + 1) * self.batch_size)
        batch = []
        for file in self.files[part]:
            still = cv2.cvtColor(cv2.imread("roads/" + file), cv2.COLOR_BGR2RGB)
            if self.augment is not None:
                still = self.augment(image=still)["image"]
            batch.append(still.astype("float32") / 127.5 - 1.0)
        return np.stack(batch), self.surface[part]


train = Stills(TABLE[TABLE.split == "train"], 24, augment, workers=4)
valid = Stills(TABLE[TABLE.split == "valid"], 96)
network = keras.applications.MobileNetV3Small(
    (240, 320, 3), include_preprocessing=False, weights=None, classes=NUM_CLASSES
)
network.compile(keras.optimizers.SGD(0.02, momentum=0.9), "sparse_categorical_crossentropy", ["accuracy"])
network.fit(train, validation_data=valid, epochs=4)
