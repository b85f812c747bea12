# Roof solar panels: 3-class segmentation (background, thermal panel, PV panel)
# custom loop because I want the dice term + per-class weights
import json
import os
import random
import sys
import time

import numpy as np
import tensorflow as tf
from PIL import Image
from tensorflow.keras import layers

tf.debugging.enable_check_numerics()
# got NaNs once with lr 1e-2, 3e-4 is ok

IMG_DIR = "data/roofs/images"
MSK_DIR = "data/roofs/masks_rgb"
SIZE = 256
BATCH = 12
EPOCHS = 40
LR = 3e-4
PALETTE = {(0, 0, 0): 0, (255, 128, 0): 1, (0, 80, 255): 2}
CLASS_W = tf.constant([0.3, 2.0, 1.0])

random.seed(11)
tf.random.set_seed(11)

names = sorted(os.path.splitext(f)[0] for f in os.listdir(IMG_DIR) if f.endswith(".jpg"))
names = [n for n in names if os.path.exists(os.path.join(MSK_DIR, n + ".png"))]
if not names:
    sys.exit("no image/mask pairs found")
random.shuffle(names)
cut = int(0.85 * len(names))
train_names, val_names = names[:cut], names[cut:]
print(len(train_names), "train", len(val_names), "val")


def colours_to_ids(rgb):
    h, w, _ = rgb.shape
    ids = np.zeros((h, w), np.int32)
    for i in range(h):
        for j in range(w):
            ids[i, j] = PALETTE.get(tuple(rgb[i, j]), 0)
    return ids


def pairs(which, shuffle):
    which = list(which)
    if shuffle:
        random.shuffle(which)
    for n in which:
        img = Image.open(os.path.join(IMG_DIR, n + ".jpg")).convert("RGB")
        img = img.resize((SIZE, SIZE), Image.BILINEAR)
        msk = Image.open(os.path.join(MSK_DIR, n + ".png")).convert("RGB")
        msk = msk.resize((SIZE, SIZE), Image.NEAREST)
        yield np.asarray(img, np.float32) / 255.0, colours_to_ids(np.asarray(msk))


def flip(img, msk):
    if tf.random.uniform(()) < 0.5:
        img = tf.reverse(img, [1])
        msk = tf.reverse(msk, [1])
    if tf.random.uniform(()) < 0.5:
        img = tf.reverse(img, [0])
        msk = tf.reverse(msk, [0])
    return img, msk


SIG = (
    tf.TensorSpec((SIZE, SIZE, 3), tf.float32),
    tf.TensorSpec((SIZE, SIZE), tf.int32),
)
train_ds = tf.data.Dataset.from_generator(lambda: pairs(train_names, True), output_signature=SIG)
train_ds = train_ds.map(flip, num_parallel_calls=tf.data.AUTOTUNE)
train_ds = train_ds.batch(BATCH, drop_remainder=True).prefetch(2)

val_ds = tf.data.Dataset.from_generator(lambda: pairs(val_names, False), output_signature=SIG)
val_ds = val_ds.batch(BATCH * 2).prefetch(2)


def conv_block(x, f):
    for _ in range(2):
        x = layers.Conv2D(f, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.ReLU()(x)
    return x


def unet(n_classes=3, width=32):
    inp = layers.Input((SIZE, SIZE, 3))
    skips, x = [], inp
    for k in range(4):
        x = conv_block(x, width * 2 ** k)
        skips.append(x)
        x = layers.MaxPool2D()(x)
    x = conv_block(x, width * 16)
    for k in reversed(range(4)):
        x = layers.Conv2DTranspose(width * 2 ** k, 2, strides=2)(x)
        x = layers.Concatenate()([x, skips[k]])
        x = conv_block(x, width * 2 ** k)
    return tf.keras.Model(inp, layers.Conv2D(n_classes, 1)(x))


with tf.device("/GPU:0"):
    model = unet()
optimizer = tf.keras.optimizers.Adam(LR)


def seg_loss(y, logits):
    ce = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    ce = tf.reduce_mean(ce * tf.gather(CLASS_W, y))
    p = tf.nn.softmax(logits)
    t = tf.one_hot(y, 3)
    inter = tf.reduce_sum(p * t, [1, 2])
    dice = (2 * inter + 1) / (tf.reduce_sum(p, [1, 2]) + tf.reduce_sum(t, [1, 2]) + 1)
    return ce + 1 - tf.reduce_mean(dice[:, 1:])


def evaluate(ds):
    miou = tf.keras.metrics.MeanIoU(3)
    loss = tf.keras.metrics.Mean()
    for x, y in ds:
        logits = model(x, training=False)
        loss.update_state(seg_loss(y, logits))
        miou.update_state(y, tf.argmax(logits, -1))
    return float(loss.result()), float(miou.result())


os.makedirs("runs/solar", exist_ok=True)
best = 0.0
log = []
for epoch in range(EPOCHS):
    t0 = time.time()
    running, n = 0.0, 0
    for step, (x, y) in enumerate(train_ds):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = seg_loss(y, logits)
        grads = tape.gradient(loss, model.trainable_variables)
        grads, _ = tf.clip_by_global_norm(grads, 1.0)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        running += float(loss)
        n += 1
        if step % 50 == 0:
            print(f"  {epoch:02d}/{step:04d}  {loss.numpy():.4f}")

    val_loss, val_iou = evaluate(val_ds)
    print(f"epoch {epoch}: train {running / max(n, 1):.4f} val {val_loss:.4f} mIoU {val_iou:.3f} ({time.time() - t0:.0f}s)")
    log.append({"epoch": epoch, "train": running / max(n, 1), "val": val_loss, "miou": val_iou})

    model.save_weights("runs/solar/last.weights.h5")
    if val_iou > best:
        best = val_iou
        model.save_weights("runs/solar/tmp_best.weights.h5")
        os.replace("runs/solar/tmp_best.weights.h5", "runs/solar/best.weights.h5")

with open("runs/solar/log.json", "w") as fh:
    json.dump(log, fh, indent=1)
print("best mIoU", best)
