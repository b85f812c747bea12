"""How long `lint` takes as a whole command, the start of Python included, for notebooks and scripts of growing length.

The code is ordinary: every 25 cells, or 200 lines, are another experiment with its own dataset, loaders, training and evaluation.

    python benches/bench_lint.py [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CELLS = (250, 500, 1000)
LINES = (8_000, 16_000, 32_000)
LIMITS = {1000: 2.0, 32_000: 5.0}
"""Seconds that the longest ones may take."""
EXPERIMENT = """\
import cv2, os, torch, torchvision
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
#%%
class Photos{n}(Dataset):
    def __init__(self, root, transform=None):
        self.paths = [os.path.join(root, name) for name in os.listdir(root)]
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = cv2.imread(self.paths[index])
        return self.transform(cv2.resize(image, (224, 224))), index % 5
#%%
steps = transforms.Compose([transforms.ToTensor(), transforms.RandomHorizontalFlip(), transforms.Normalize(mean, std)])
train_set, val_set = Photos{n}("train", transform=steps), Photos{n}("val", transform=steps)
#%%
loader = DataLoader(train_set, batch_size=32, shuffle=True, num_workers=4)
val_loader = DataLoader(val_set, batch_size=32)
#%%
model = torchvision.models.resnet50(weights="DEFAULT")
for p in model.parameters():
    p.requires_grad = False
model.fc = torch.nn.Linear(2048, 5)
model = model.to(device)
#%%
def train_epoch{n}(model, loader, optimizer):
    model.train()
    total = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)
#%%
def evaluate{n}(model, loader):
    model.eval()
    right = 0
    for images, labels in loader:
        right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    return right
#%%
optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-3)
history = []
for epoch in range(20):
    loss = train_epoch{n}(model, loader, optimizer)
    history.append((loss, evaluate{n}(model, val_loader)))
    print(epoch, history[-1])
#%%
plt.plot([loss for loss, _ in history])
plt.show()
"""


def experiment(number: int, cells: int, lines: int) -> list[str]:
    """One experiment, filled up with plain cells and lines."""
    found = EXPERIMENT.replace("{n}", str(number)).split("#%%\n")
    found += [
        f"table_{number}_{i} = df.groupby('label').size().head({i})\nprint(table_{number}_{i})\n"
        for i in range(cells - len(found))
    ]
    missing = lines - sum(text.count("\n") for text in found)
    return (
        [*found, "".join(f"value_{i} = compute(value_{i - 1}, {i})\n" for i in range(1, missing + 1))] if missing > 0 else found
    )


def write(folder: Path, kind: str, size: int) -> Path:
    if kind == "cells":
        texts = [text for number in range(size // 25) for text in experiment(number, 25, 0)]
        cells = [{"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": 1} for text in texts]
        file = folder / f"{size}.ipynb"
        file.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    else:
        file = folder / f"{size}.py"
        file.write_text("".join(text for number in range(size // 200) for text in experiment(number, 0, 200)))
    return file


def measure(file: Path) -> float:
    """Seconds of the whole command."""
    command = [sys.executable, "-m", "unchoke_doctor", "lint", str(file), "--json"]
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode not in (0, 1) or json.loads(done.stdout)["result"]["problems"]:
        raise SystemExit(done.stdout.decode()[-2000:] + done.stderr.decode())
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    print("| | seconds | per 1,000 | limit |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for kind, sizes in (("cells", CELLS), ("lines", LINES)):
            for size in sizes:
                file = write(Path(folder), kind, size)
                seconds = statistics.median(measure(file) for _ in range(repeats))
                limit = f"{LIMITS[size]:.0f} s" if size in LIMITS else ""
                print(f"| {size:,} {kind} | {seconds:.2f} | {seconds / size * 1000:.3f} | {limit} |", flush=True)


if __name__ == "__main__":
    main()
