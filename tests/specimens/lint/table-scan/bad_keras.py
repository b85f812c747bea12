"""Bird calls as spectrograms, several notes of experts for each."""

import numpy as np
import pandas as pd
import tensorflow as tf
from tensorflow.keras import callbacks, layers, models

NOTES = pd.read_csv("notes.csv")
NAMES = sorted(NOTES["call"].unique())


class Calls(tf.keras.utils.PyDataset):
    def __init__(self, names, batch, **kwargs):
        super().__init__(**kwargs)
        self.names, self.batch = names, batch

    def __len__(self):
        return len(self.names) // self.batch

    def one(self, name):
        votes = NOTES.loc[NOTES["call"] == name, "a":"l"].to_numpy()
        return np.load(f"calls/{name}.npy"), votes.mean(axis=0)

    def __getitem__(self, index):
        names = self.names[index * self.batch : (index + 1) * self.batch]
        pairs = [self.one(name) for name in names]
        return np.stack([call for call, _ in pairs]), np.stack([vote for _, vote in pairs])


model = models.Sequential([layers.Input((128, 256, 1)), layers.Conv2D(16, 3), layers.GlobalMaxPooling2D(), layers.Dense(12)])
model.compile(optimizer="adam", loss="mse")
model.fit(
    Calls(NAMES, 32, workers=4),
    epochs=20,
    callbacks=[callbacks.BackupAndRestore("backup"), callbacks.CSVLogger("birds.csv")],
)
