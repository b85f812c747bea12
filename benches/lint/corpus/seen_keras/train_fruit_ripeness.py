"""Ripeness of tomatoes (5 stages) from pictures of the grading belt.

    python train_fruit_ripeness.py --data /data/tomato --out runs/eff0

The pictures are 2448x2048, so the first run makes copies of 256 px a side under
<data>/small256 and the training reads those.
"""
import argparse
import csv
import os
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pandas as pd
from tensorflow import keras
from tensorflow.keras.applications.efficientnet import EfficientNetB0, preprocess_input

SIDE = 256
CROP = 224
STAGES = ["green", "breaker", "turning", "pink", "red"]


def make_small(job):
    """Returns (name, error or None)."""
    src, dst = job
    if os.path.exists(dst):
        return src, None
    img = cv2.imread(src)
    if img is None:
        return src, "cannot be read"
    img = cv2.resize(img, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    tmp = dst[:-4] + ".part.jpg"
    cv2.imwrite(tmp, img, [cv2.IMWRITE_JPEG_QUALITY, 95])
    os.replace(tmp, dst)
    return src, None


def prepare(df, data):
    small = os.path.join(data, "small256")
    os.makedirs(small, exist_ok=True)
    jobs = [(os.path.join(data, "belt", f), os.path.join(small, os.path.splitext(f)[0] + ".jpg")) for f in df["file"]]
    failed = set()
    with ThreadPoolExecutor(8) as ex:
        for src, err in ex.map(make_small, jobs):
            if err:
                print(src, err)
                failed.add(src)
    with open(os.path.join(data, "unreadable.csv"), "w", newline="") as fh:
        csv.writer(fh).writerows([[f] for f in sorted(failed)])
    df = df.assign(small=[dst for _, dst in jobs])
    return df[[src not in failed for src, _ in jobs]].reset_index(drop=True)


class BeltSequence(keras.utils.Sequence):
    def __init__(self, df, batch_size, train):
        self.files = df["small"].tolist()
        self.y = df["stage"].map(STAGES.index).to_numpy()
        self.batch_size = batch_size
        self.train = train
        self.rng = np.random.default_rng(4)
        self.order = np.arange(len(self.files))
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self.files) // self.batch_size)

    def on_epoch_end(self):
        if self.train:
            self.rng.shuffle(self.order)

    def _one(self, path):
        img = cv2.imread(path)
        if img is None:
            raise IOError(path)
        img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
        if self.train:
            y, x = self.rng.integers(0, SIDE - CROP, 2)
            img = img[y:y + CROP, x:x + CROP]
            if self.rng.random() < 0.5:
                img = img[:, ::-1]
        else:
            o = (SIDE - CROP) // 2
            img = img[o:o + CROP, o:o + CROP]
        return img

    def __getitem__(self, k):
        rows = self.order[k * self.batch_size:(k + 1) * self.batch_size]
        x = np.empty((len(rows), CROP, CROP, 3), "float32")
        for n, i in enumerate(rows):
            x[n] = self._one(self.files[i])
        return preprocess_input(x), self.y[rows]


def build():
    base = EfficientNetB0(include_top=False, weights="imagenet", input_shape=(CROP, CROP, 3), pooling="avg")
    base.trainable = False
    inp = keras.Input((CROP, CROP, 3))
    x = base(inp, training=False)
    x = keras.layers.Dropout(0.3)(x)
    out = keras.layers.Dense(len(STAGES), activation="softmax")(x)
    return keras.Model(inp, out), base


def compile_(model, lr):
    model.compile(keras.optimizers.Adam(lr), loss="sparse_categorical_crossentropy", metrics=["accuracy"])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", default="runs/eff0")
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)

    df = pd.read_csv(os.path.join(args.data, "belt.csv"))
    print(df["stage"].value_counts())
    df = prepare(df, args.data)
    last_days = sorted(df["day"].unique())[-4:]
    val = df[df["day"].isin(last_days)]
    train = df[~df["day"].isin(last_days)]

    train_seq = BeltSequence(train, args.batch, train=True)
    val_seq = BeltSequence(val, 2 * args.batch, train=False)

    model, base = build()
    compile_(model, 1e-3)
    model.fit(train_seq, validation_data=val_seq, epochs=2)

    base.trainable = True
    compile_(model, 5e-5)
    history = model.fit(
        train_seq,
        validation_data=val_seq,
        epochs=30,
        workers=6,
        use_multiprocessing=True,
        callbacks=[
            keras.callbacks.BackupAndRestore(os.path.join(args.out, "backup")),
            keras.callbacks.ModelCheckpoint(os.path.join(args.out, "best.h5"), save_best_only=True),
            keras.callbacks.CSVLogger(os.path.join(args.out, "log.csv"), append=True),
        ],
    )
    print("best val accuracy", max(history.history["val_accuracy"]))

    model.load_weights(os.path.join(args.out, "best.h5"))
    p = model.predict(val_seq)
    out = val.assign(pred=[STAGES[k] for k in p.argmax(1)])
    out.to_csv(os.path.join(args.out, "val_pred.csv"), index=False)
    print(pd.crosstab(out["stage"], out["pred"]))


if __name__ == "__main__":
    main()
