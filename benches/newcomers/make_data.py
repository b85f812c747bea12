"""Small data sets for the example scripts.  Everything lands in ./stranger-data
(relative to the current directory) and is made only once.

    python make_data.py            make everything
    from make_data import ensure   ensure("photos") -> pathlib.Path
"""
import csv
import os
import sqlite3
import sys
import wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

ROOT = Path("stranger-data")


def _photos(out, rng):
    classes = ["beach", "city", "desert", "forest", "lake", "snow"]
    for c, name in enumerate(classes):
        (out / name).mkdir(parents=True)
        base = np.array([[230, 200, 120], [120, 120, 130], [220, 170, 90],
                         [40, 110, 50], [50, 100, 190], [235, 240, 245]][c])
        for i in range(64):
            grad = np.linspace(0.6, 1.2, 96)[:, None, None]
            img = base[None, None] * grad + rng.normal(0, 18, (96, 128, 3))
            im = Image.fromarray(np.clip(img, 0, 255).astype(np.uint8))
            d = ImageDraw.Draw(im)
            for _ in range(4 + c):
                x, y, r = rng.integers(0, 128), rng.integers(0, 96), rng.integers(3, 14)
                d.ellipse([x - r, y - r, x + r, y + r], fill=tuple(int(v) for v in rng.integers(0, 255, 3)))
            im.save(out / name / f"{name}_{i:03d}.jpg", quality=88)


def _ratings(out, rng):
    out.mkdir(parents=True)
    n = 200_000
    u = (rng.zipf(1.3, n) * 2654435761 % 400_000).astype(np.int64)
    m = (rng.zipf(1.4, n) * 40503 % 150_000).astype(np.int64)
    dense = rng.normal(0, 1, (n, 8)).round(4)
    y = ((dense[:, 0] + 0.5 * dense[:, 3] + (u % 7 - 3) * 0.2 + rng.normal(0, 1, n)) > 0).astype(int)
    db = sqlite3.connect(out / "clicks.sqlite")
    cols = ", ".join(f"x{i} REAL" for i in range(8))
    db.execute(f"CREATE TABLE clicks (user_id INTEGER, item_id INTEGER, {cols}, clicked INTEGER)")
    db.executemany("INSERT INTO clicks VALUES (" + ",".join("?" * 11) + ")",
                   [(int(u[i]), int(m[i]), *map(float, dense[i]), int(y[i])) for i in range(n)])
    db.commit()
    db.close()


def _reviews(out, rng):
    out.mkdir(parents=True)
    pos = "good great lovely fine superb tasty quick friendly clean bright".split()
    neg = "bad awful slow dirty rude cold stale broken dull late".split()
    fill = [f"word{i}" for i in range(1500)]
    with open(out / "reviews.csv", "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["text", "label"])
        for _ in range(2400):
            y = int(rng.integers(0, 2))
            n = int(np.clip(rng.lognormal(3.0, 0.5), 5, 120))
            words = [fill[int(rng.integers(0, len(fill)))] for _ in range(n)]
            for _ in range(2 + n // 10):
                words[int(rng.integers(0, n))] = (pos if y else neg)[int(rng.integers(0, 10))]
            w.writerow([" ".join(words), y])


def _clips(out, rng):
    out.mkdir(parents=True)
    rows = []
    t = np.arange(16000) / 16000
    for i in range(320):
        y = i % 8
        f0 = 150 * (y + 1) * (1 + 0.05 * rng.normal())
        sig = np.sin(2 * np.pi * f0 * t) + 0.5 * np.sin(4 * np.pi * f0 * t) + 0.3 * rng.normal(size=t.size)
        pcm = (sig / 2.5 * 28000).clip(-32000, 32000).astype("<i2")
        with wave.open(str(out / f"clip_{i:04d}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(16000)
            w.writeframes(pcm.tobytes())
        rows.append((f"clip_{i:04d}.wav", f"key{y}"))
    with open(out / "labels.csv", "w", newline="") as f:
        csv.writer(f).writerows([("file", "label"), *rows])


def _meter(out, rng):
    out.mkdir(parents=True)
    n = 6000
    t = np.arange(n)
    cols = {"load": 50 + 20 * np.sin(2 * np.pi * t / 24) + 8 * np.sin(2 * np.pi * t / 168) + rng.normal(0, 2, n),
            "temp": 12 + 9 * np.sin(2 * np.pi * t / 24 + 1) + rng.normal(0, 1, n),
            "wind": np.abs(rng.normal(5, 2, n)),
            "holiday": (t // 24 % 7 >= 5).astype(float)}
    with open(out / "meter.csv", "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["hour", *cols])
        for i in range(n):
            w.writerow([i, *(f"{c[i]:.3f}" for c in cols.values())])


def _cells(out, rng):
    (out / "images").mkdir(parents=True)
    (out / "masks").mkdir()
    for i in range(96):
        img = rng.normal(90, 20, (128, 128, 3))
        mask = Image.new("L", (128, 128), 0)
        d = ImageDraw.Draw(mask)
        for _ in range(28):
            k = int(rng.integers(1, 4))
            x, y = rng.integers(8, 120, 2)
            r = int(rng.integers(3, 8))
            d.ellipse([int(x) - r, int(y) - r, int(x) + r, int(y) + r], fill=k)
        m = np.array(mask)
        for k, col in ((1, (60, -20, 0)), (2, (-20, 70, 10)), (3, (0, 10, 90))):
            img[m == k] += col
        Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(out / "images" / f"{i:03d}.png")
        mask.save(out / "masks" / f"{i:03d}.png")


def _glyphs(out, rng):
    out.mkdir(parents=True)
    for i in range(2400):
        im = Image.new("L", (32, 32), 0)
        d = ImageDraw.Draw(im)
        x, y = (int(v) for v in rng.integers(4, 16, 2))
        s = int(rng.integers(8, 14))
        [d.rectangle, d.ellipse][i % 2]([x, y, x + s, y + s], outline=255, width=2)
        im.save(out / f"{i:05d}.png")


def _patches(out, rng):
    out.mkdir(parents=True)
    n, k = 36_000, 200
    proto = rng.normal(0, 1, (k, 24, 24)).astype(np.float32)
    y = rng.integers(0, k, n)
    x = np.empty((n, 24, 24), np.uint8)
    for i in range(0, n, 2000):
        z = proto[y[i:i + 2000]] * 40 + 128 + rng.normal(0, 30, (len(y[i:i + 2000]), 24, 24))
        x[i:i + 2000] = z.clip(0, 255)
    np.save(out / "patches.npy", x)
    with open(out / "patches.csv", "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["row", "identity"])
        w.writerows((i, f"id_{c:03d}") for i, c in enumerate(y))


def _papers(out, rng):
    out.mkdir(parents=True)
    n, k = 1400, 7
    y = rng.integers(0, k, n)
    same = y[:, None] == y[None]
    a = rng.random((n, n)) < np.where(same, 0.012, 0.001)
    src, dst = np.nonzero(np.triu(a, 1))
    np.savetxt(out / "edges.csv", np.stack([src, dst], 1), fmt="%d", delimiter=",")
    feat = (rng.random((n, 300)) < 0.03).astype(np.float32)
    for c in range(k):
        feat[y == c, c * 20:(c + 1) * 20] += rng.random((int((y == c).sum()), 20)) < 0.12
    np.savez_compressed(out / "nodes.npz", x=feat, y=y)


MAKERS = {"photos": _photos, "ratings": _ratings, "reviews": _reviews, "clips": _clips, "meter": _meter,
          "cells": _cells, "glyphs": _glyphs, "patches": _patches, "papers": _papers}


def ensure(kind):
    """Path of the data set, made first if it is not there yet."""
    out = ROOT / kind
    if not (out / ".done").exists():
        tmp = ROOT / f".{kind}.{os.getpid()}"
        MAKERS[kind](tmp, np.random.default_rng(sum(kind.encode())))
        (tmp / ".done").touch()
        tmp.rename(out)
    return out


if __name__ == "__main__":
    for name in sys.argv[1:] or MAKERS:
        print(name, ensure(name))
