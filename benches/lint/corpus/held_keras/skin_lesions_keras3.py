"""Dermoscopy lesions, 7 classes. EfficientNetV2-B0, Keras 3 (TensorFlow backend).

python skin_lesions_keras3.py --raw data/derm_raw --work data/derm_small
"""
import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from keras import layers
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from sklearn.model_selection import GroupShuffleSplit

CLASSES = ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]
SIDE = 224
BATCH = 32
EPOCHS = 30

if not os.path.exists("runs/derm"):
    os.makedirs("runs/derm")


def shades_of_grey(arr, p=6):
    """Colour constancy; the clinics used different lamps."""
    arr = arr.astype(np.float32)
    out = np.empty_like(arr)
    for ch in range(3):
        norm = np.power(np.mean(np.power(arr[..., ch], p)), 1.0 / p)
        out[..., ch] = arr[..., ch] / max(norm, 1e-6)
    out *= 128.0 / max(out.mean(), 1e-6)
    return np.clip(out, 0, 255).astype(np.uint8)


def prepare_one(job):
    """Shrink one photo to a .npy; returns (image id, error text or '')."""
    src, dst = job
    if os.path.exists(dst):
        return src.stem, ""
    try:
        with Image.open(src) as im:
            im = im.convert("RGB")
            s = min(im.size)
            left, top = (im.width - s) // 2, (im.height - s) // 2
            im = im.crop((left, top, left + s, top + s)).resize((SIDE, SIDE), Image.BICUBIC)
            arr = shades_of_grey(np.asarray(im))
    except OSError as err:
        return src.stem, str(err)
    tmp = dst.with_suffix(".part.npy")
    np.save(tmp, arr)
    os.replace(tmp, dst)
    return src.stem, ""


def prepare(raw, work, df):
    work.mkdir(parents=True, exist_ok=True)
    jobs = [(raw / f"{i}.jpg", work / f"{i}.npy") for i in df["image_id"]]
    with ProcessPoolExecutor() as ex:
        done = list(ex.map(prepare_one, jobs, chunksize=16))
    bad = pd.DataFrame([d for d in done if d[1]], columns=["image_id", "error"])
    bad.to_csv("runs/derm/unreadable.csv", index=False)
    print(f"{len(done) - len(bad)} ready, {len(bad)} unreadable (see runs/derm/unreadable.csv)")
    return df[~df["image_id"].isin(bad["image_id"])].reset_index(drop=True)


class LesionBatches(keras.utils.PyDataset):
    """Reads the prepared 224 px arrays. Flips only; the rest is in the model."""

    def __init__(self, df, work, batch_size, train=False, **kwargs):
        super().__init__(**kwargs)
        self.files = [str(work / f"{i}.npy") for i in df["image_id"]]
        self.y = df["dx"].map(CLASSES.index).to_numpy()
        self.batch_size = batch_size
        self.train = train
        self.order = np.arange(len(self.files))

    def __len__(self):
        return int(np.ceil(len(self.files) / self.batch_size))

    def __getitem__(self, b):
        idx = self.order[b * self.batch_size:(b + 1) * self.batch_size]
        x = np.stack([np.load(self.files[j]) for j in idx])
        if self.train:
            if np.random.rand() < 0.5:
                x = x[:, ::-1]
            if np.random.rand() < 0.5:
                x = x[:, :, ::-1]
        return np.ascontiguousarray(x, dtype=np.float32), self.y[idx]

    def on_epoch_end(self):
        if self.train:
            np.random.shuffle(self.order)


def build_model():
    aug = keras.Sequential([
        layers.RandomRotation(0.25, fill_mode="reflect"),
        layers.RandomZoom(0.15),
        layers.RandomContrast(0.2),
        layers.GaussianNoise(4.0),
    ], name="aug")
    base = keras.applications.EfficientNetV2B0(include_top=False, input_shape=(SIDE, SIDE, 3), pooling="avg")
    inp = keras.Input((SIDE, SIDE, 3))
    x = base(aug(inp))
    x = layers.Dropout(0.4)(x)
    out = layers.Dense(len(CLASSES), activation="softmax", dtype="float32")(x)
    return keras.Model(inp, out)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--raw", type=Path, required=True)
    ap.add_argument("--work", type=Path, required=True)
    ap.add_argument("--eager", action="store_true")
    args = ap.parse_args()

    df = pd.read_csv(args.raw / "metadata.csv").drop_duplicates("image_id")
    print(df["dx"].value_counts())
    df = prepare(args.raw, args.work, df)

    # the same lesion can have several photos -> split by lesion
    tr, rest = next(GroupShuffleSplit(1, test_size=0.3, random_state=3).split(df, groups=df["lesion_id"]))
    rest_df = df.iloc[rest]
    va, te = next(GroupShuffleSplit(1, test_size=0.5, random_state=3).split(rest_df, groups=rest_df["lesion_id"]))

    train = LesionBatches(df.iloc[tr], args.work, BATCH, train=True, workers=4, use_multiprocessing=True)
    valid = LesionBatches(rest_df.iloc[va], args.work, BATCH * 4, workers=2)
    test = LesionBatches(rest_df.iloc[te], args.work, BATCH * 4)

    counts = df.iloc[tr]["dx"].value_counts()
    weights = {CLASSES.index(c): float(np.sqrt(counts.max() / counts[c])) for c in counts.index}

    model = build_model()
    model.compile(
        optimizer=keras.optimizers.AdamW(3e-4, weight_decay=1e-4),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        run_eagerly=args.eager,
    )
    callbacks = [
        keras.callbacks.BackupAndRestore("runs/derm/backup"),
        keras.callbacks.ModelCheckpoint("runs/derm/best.keras", monitor="val_loss", save_best_only=True),
        keras.callbacks.CSVLogger("runs/derm/log.csv", append=True),
        keras.callbacks.ReduceLROnPlateau(patience=3, factor=0.3),
    ]
    hist = model.fit(train, validation_data=valid, epochs=EPOCHS, class_weight=weights, callbacks=callbacks)

    fig, ax = plt.subplots(1, 2, figsize=(10, 4))
    ax[0].plot(hist.history["loss"]); ax[0].plot(hist.history["val_loss"])
    ax[1].plot(hist.history["accuracy"]); ax[1].plot(hist.history["val_accuracy"])
    fig.savefig("runs/derm/curves.png", dpi=120)

    best = keras.models.load_model("runs/derm/best.keras")
    prob = best.predict(test)
    pred = prob.argmax(1)
    print("balanced accuracy", balanced_accuracy_score(test.y, pred))
    print(pd.DataFrame(confusion_matrix(test.y, pred), CLASSES, CLASSES))


if __name__ == "__main__":
    main()
