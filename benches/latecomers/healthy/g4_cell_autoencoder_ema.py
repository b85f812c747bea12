"""Crop autoencoder with an exponential moving average, a generator as loader and a step schedule."""
import copy
import math
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image

from make_data import ensure

STEPS, BATCH, CROP = 60, 8, 64


def crops(images, rng):
    while True:
        batch = np.empty((BATCH, CROP, CROP, 3), dtype=np.uint8)
        for b in range(BATCH):
            img = images[rng.integers(len(images))]
            t, l = rng.integers(0, img.shape[0] - CROP, 2)
            batch[b] = img[t:t + CROP, l:l + CROP]
        yield torch.from_numpy(batch).permute(0, 3, 1, 2).float().div_(255)


def model_fn(w=24):
    return nn.Sequential(
        nn.Conv2d(3, w, 3, 1, 1), nn.SiLU(), nn.Conv2d(w, 2 * w, 3, 2, 1), nn.SiLU(),
        nn.Conv2d(2 * w, 2 * w, 3, 1, 1), nn.SiLU(), nn.Conv2d(2 * w, 4 * w, 3, 2, 1), nn.SiLU(),
        nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1), nn.SiLU(),
        nn.ConvTranspose2d(2 * w, w, 4, 2, 1), nn.SiLU(), nn.Conv2d(w, 3, 3, 1, 1),
    )


@torch.no_grad()
def ema_update(ema, model, decay=0.99):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p, 1 - decay)


def main():
    torch.manual_seed(0)
    images = [np.asarray(Image.open(p)) for p in sorted((ensure("cells") / "images").glob("*.png"))]
    stream = crops(images, np.random.default_rng(0))
    model = model_fn()
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / STEPS)))
    held_out = next(stream)
    t0 = time.time()
    for step in range(1, STEPS + 1):
        x = next(stream)
        loss = nn.functional.mse_loss(model(x), x)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        ema_update(ema, model)
        if step % 20 == 0:
            with torch.no_grad():
                val = nn.functional.mse_loss(ema(held_out), held_out)
            print(f"step {step} train {loss.item():.4f} ema {val.item():.4f}")
    print(f"trained {STEPS * BATCH} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
