"""Shape classifier. All images fit in memory, so they are decoded once and indexed directly."""
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from make_data import ensure


def load(root):
    xs, ys = [], []
    for y, folder in enumerate(sorted(root.iterdir())):
        for p in sorted(folder.glob("*.jpg")):
            xs.append(np.asarray(Image.open(p).convert("RGB")))
            ys.append(y)
    x = torch.from_numpy(np.stack(xs)).permute(0, 3, 1, 2).float() / 255
    return TensorDataset(x, torch.tensor(ys))


def net(n):
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, n),
    )


def main():
    torch.manual_seed(0)
    data = load(ensure("shapes"))
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=0, pin_memory=False)
    model = net(5)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    history = {"loss": [], "acc": []}
    seen, t0 = 0, time.time()
    for epoch in range(8):
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            history["loss"].append(loss.item())
            history["acc"].append((out.argmax(1) == y).float().mean().item())
            seen += len(x)
        n = len(loader)
        print(f"epoch {epoch} loss {np.mean(history['loss'][-n:]):.4f} acc {np.mean(history['acc'][-n:]):.3f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
