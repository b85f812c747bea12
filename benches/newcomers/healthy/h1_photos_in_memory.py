"""Scene classifier. The photos are few and small, so they are decoded once and kept as uint8."""
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from make_data import ensure


def load(root, size=64):
    paths = sorted(root.glob("*/*.jpg"))
    classes = sorted({p.parent.name for p in paths})
    pixels = np.empty((len(paths), 3, size, size), np.uint8)
    for i, p in enumerate(paths):
        with Image.open(p) as im:
            pixels[i] = np.asarray(im.convert("RGB").resize((size, size))).transpose(2, 0, 1)
    labels = torch.tensor([classes.index(p.parent.name) for p in paths])
    return torch.from_numpy(pixels), labels, classes


def net(classes, w=24):
    def block(i, o, s):
        return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    return nn.Sequential(
        block(3, w, 1), block(w, 2 * w, 2), block(2 * w, 2 * w, 1), block(2 * w, 4 * w, 2), block(4 * w, 4 * w, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, classes),
    )


def prepare(batch):
    return batch.float().sub_(115.0).div_(64.0).contiguous(memory_format=torch.channels_last)


@torch.inference_mode()
def accuracy(model, x, y):
    model.eval()
    hits = sum((model(prepare(a)).argmax(1) == b).sum() for a, b in zip(x.split(64), y.split(64)))
    model.train()
    return hits.item() / len(y)


def main(epochs=5, batch=32):
    torch.manual_seed(0)
    x, y, classes = load(ensure("photos"))
    perm = torch.randperm(len(x))
    train, val = perm[:320], perm[320:]
    model = net(len(classes)).to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)

    t0, n = time.time(), 0
    for epoch in range(epochs):
        for idx in train[torch.randperm(len(train))].split(batch):
            xb = prepare(x[idx])
            if torch.rand(()) < 0.5:
                xb = xb.flip(3)
            loss = F.cross_entropy(model(xb), y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            n += len(idx)
        print(f"epoch {epoch}: loss {loss.item():.3f} val acc {accuracy(model, x[val], y[val]):.3f}")
    print(f"trained {n} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
