"""Makes the small synthetic data sets used by the scripts, under ./stranger2-data."""
import json
import os
from pathlib import Path

import numpy as np

ROOT = Path("stranger2-data")


def _blobs(rng, size, n):
    yy, xx = np.mgrid[:size, :size]
    mask = np.zeros((size, size), bool)
    for _ in range(n):
        cy, cx, r = rng.integers(0, size), rng.integers(0, size), rng.integers(size // 20, size // 8)
        mask |= (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
    return mask


def cells(d):
    from PIL import Image
    rng = np.random.default_rng(0)
    (d / "images").mkdir(); (d / "masks").mkdir()
    for i in range(32):
        m = _blobs(rng, 384, 14)
        img = rng.normal(90, 12, (384, 384, 3)) + m[..., None] * np.array([60, 20, 40])
        Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(d / "images" / f"{i:03d}.png")
        Image.fromarray(m.astype(np.uint8) * 255).save(d / "masks" / f"{i:03d}.png")


def gestures(d):
    import pandas as pd
    rng = np.random.default_rng(1)
    y = rng.integers(0, 50, 20000)
    x = rng.normal(size=(50, 48))[y] + rng.normal(size=(20000, 48)) * 1.5
    df = pd.DataFrame(x.astype(np.float32).round(4), columns=[f"f{i}" for i in range(48)])
    df["label"] = y
    df.to_csv(d / "gestures.csv", index=False)


def reviews(d):
    rng = np.random.default_rng(2)
    with open(d / "reviews.jsonl", "w") as f:
        for _ in range(3000):
            y = int(rng.integers(0, 2))
            n = int(np.clip(rng.lognormal(2.9, 0.35), 5, 300))
            w = np.where(rng.random(n) < 0.2, rng.integers(0, 200, n) + 200 * y, rng.integers(400, 4000, n))
            f.write(json.dumps({"text": " ".join(f"w{k}" for k in w), "label": y}) + "\n")


def clips(d):
    from scipy.io import wavfile
    rng = np.random.default_rng(3)
    t = np.arange(16000) / 16000
    for i in range(120):
        y = i % 6
        s = np.sin(2 * np.pi * (200 + 150 * y) * t * (1 + 0.02 * rng.normal())) + 0.4 * rng.normal(size=t.size)
        wavfile.write(d / f"{y}_{i:03d}.wav", 16000, (s / 4 * 32767).clip(-32767, 32767).astype(np.int16))


def sensors(d):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(22000, 4, 32)).astype(np.float32)
    y = (rng.random(22000) < 0.15).astype(np.float32)
    x[y > 0, :2, 10:18] += 0.7
    np.savez(d / "sensors.npz", x=x, y=y)


def clouds(d):
    rng = np.random.default_rng(5)
    for i in range(120):
        y = i % 4
        p = rng.normal(size=(512, 3))
        p /= np.linalg.norm(p, axis=1, keepdims=True)
        p = p * [[1, 1, 1], [1, 1, .3], [1, .3, .3], [.6, 1, .1]][y] + rng.normal(size=p.shape) * 0.03
        np.save(d / f"{y}_{i:03d}.npy", p.astype(np.float32))


def shapes(d):
    from PIL import Image
    rng = np.random.default_rng(6)
    for y in range(5):
        (d / f"class{y}").mkdir()
        for i in range(64):
            g = np.sin(np.mgrid[:32, :32][0] * (0.3 + 0.2 * y) + rng.random() * 6)[..., None]
            img = 128 + 70 * g + rng.normal(0, 20, (32, 32, 3))
            Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(d / f"class{y}" / f"{i:03d}.jpg", quality=92)


def corpus(d):
    rng = np.random.default_rng(7)
    with open(d / "corpus.txt", "w") as f:
        for _ in range(2500):
            topic = int(rng.integers(0, 20))
            w = np.minimum(rng.zipf(1.25, 16), 200) + 200 * topic
            f.write(" ".join(f"t{k}" for k in w) + "\n")


def ratings(d):
    rng = np.random.default_rng(8)
    n = 60000
    np.savez(d / "ratings.npz", user=rng.integers(0, 200000, n), item=rng.integers(0, 5000, n),
             ctx=rng.normal(size=(n, 8)).astype(np.float32), click=(rng.random(n) < .3).astype(np.float32),
             stars=rng.uniform(1, 5, n).astype(np.float32))


KINDS = {f.__name__: f for f in (cells, gestures, reviews, clips, sensors, clouds, shapes, corpus, ratings)}


def ensure(kind):
    final = ROOT / kind
    if not final.exists():
        tmp = ROOT / f".{kind}.{os.getpid()}"
        tmp.mkdir(parents=True)
        KINDS[kind](tmp)
        try:
            tmp.rename(final)
        except OSError:  # another process was first
            pass
    return final


if __name__ == "__main__":
    for k in KINDS:
        print(ensure(k))
