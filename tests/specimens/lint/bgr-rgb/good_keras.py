import os

import cv2
import numpy as np
from tensorflow.keras.applications.resnet50 import ResNet50, preprocess_input
from tensorflow.keras.layers import Dense
from tensorflow.keras.models import Model
from tensorflow.keras.utils import Sequence, load_img, to_categorical


def read_rgb(path):
    return cv2.cvtColor(cv2.imread(path, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


class FlowerSequence(Sequence):
    """Photographs already stored at 224 x 224."""

    def __init__(self, files, labels, batch_size, folder="flowers/224"):
        super().__init__()
        self.files, self.labels = np.array(files), np.array(labels)
        self.batch_size = batch_size
        self.folder = folder

    def __len__(self):
        return int(np.ceil(len(self.files) / self.batch_size))

    def __getitem__(self, idx):
        sl = slice(idx * self.batch_size, (idx + 1) * self.batch_size)
        batch = np.empty((len(self.files[sl]), 224, 224, 3), dtype="float32")
        for i, name in enumerate(self.files[sl]):
            batch[i] = read_rgb(os.path.join(self.folder, name))
            outline = cv2.imread(os.path.join(self.folder, "outline", name), 0)
            batch[i][outline == 0] = 0
        return preprocess_input(batch), to_categorical(self.labels[sl], 102)


def read_split(path):
    files, labels = [], []
    with open(path) as f:
        for line in f:
            name, label = line.split()
            files.append(name)
            labels.append(int(label))
    return files, labels


def label_film(source, target, text):
    film = cv2.VideoCapture(source)
    writer = cv2.VideoWriter(target, cv2.VideoWriter_fourcc(*"mp4v"), 25, (640, 360))
    ok, frame = film.read()
    while ok:
        writer.write(cv2.putText(frame, text, (20, 40), cv2.FONT_HERSHEY_SIMPLEX, 1, (0, 0, 255)))
        ok, frame = film.read()
    film.release()
    writer.release()


train = FlowerSequence(*read_split("flowers/train.txt"), batch_size=32)
valid = FlowerSequence(*read_split("flowers/valid.txt"), batch_size=128)
backbone = ResNet50(weights="imagenet", include_top=False, pooling="avg")
model = Model(backbone.input, Dense(102, activation="softmax")(backbone.output))
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
model.fit(train, validation_data=valid, epochs=4)
model.save("flowers_resnet50.keras")

photo = np.array(load_img("flowers/garden.png", target_size=(224, 224)), dtype="float32")
species = int(model.predict(preprocess_input(photo[None])).argmax())
label_film("flowers/garden.mp4", "flowers/garden_labelled.mp4", f"species {species}")
