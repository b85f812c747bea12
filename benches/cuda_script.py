"""A plain training script on a card, for trying `unchoke profile` there: JPEGs decoded in workers, ResNet-18, a read-back a step.

python benches/cuda_script.py [--steps 60] [--items 1]
"""

from __future__ import annotations

import argparse
import io
import time

import numpy as np
import timm
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, number: int) -> None:
        random = np.random.default_rng(0)
        self.files = []
        for _ in range(64):
            low = random.integers(0, 255, (24, 32, 3), dtype=np.uint8)
            photo = Image.fromarray(low).resize((640, 480), Image.Resampling.BICUBIC)
            data = io.BytesIO()
            photo.save(data, "JPEG", quality=90)
            self.files.append(data.getvalue())
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        photo = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB").resize((224, 224))
        return torch.from_numpy(np.asarray(photo).copy()).permute(2, 0, 1), index % 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--items", type=int, default=1)
    typed = parser.parse_args()
    device = torch.device("cuda")  # unchoke: ignore[hard-coded-cuda]  a script for cards
    network = timm.create_model("resnet18", num_classes=10).to(device)
    optimizer = torch.optim.AdamW(network.parameters())
    loader = DataLoader(Photos(typed.steps * 32), batch_size=64, num_workers=typed.workers, pin_memory=True)
    started = time.perf_counter()
    for _ in range(2):
        for photos, labels in loader:
            x = photos.to(device, non_blocking=True).float().div_(255)
            loss = torch.nn.functional.cross_entropy(network(x), labels.to(device, non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            for _ in range(typed.items):
                loss.item()  # unchoke: ignore[host-sync]  planted
    torch.cuda.synchronize()
    print(f"trained {typed.steps * 64} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
