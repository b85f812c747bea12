"""Train a small CNN on pictures that are turned at random, sharpened and brought to equal contrast."""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def sharpen(pixels, strength=0.02):
    """Undo a little lens blur in the frequency domain."""
    height, width = pixels.shape[:2]
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :])
    blur = np.exp(-((frequency * 6) ** 2))
    wiener = blur / (blur**2 + strength)
    return np.fft.ifft2(np.fft.fft2(pixels, axes=(0, 1)) * wiener[..., None], axes=(0, 1)).real


def equal_contrast(pixels):
    low, high = np.percentile(pixels, (1, 99), axis=(0, 1))
    return ((pixels - low) / (high - low + 1e-6)).clip(0, 1)


def centre(pixels, margin=16):
    """Without the corners that turning leaves black."""
    return np.ascontiguousarray(pixels[margin:-margin, margin:-margin])


def augment(image):
    turned = image.rotate(random.uniform(-20, 20), Image.BICUBIC)
    return centre(equal_contrast(sharpen(np.asarray(turned) / 255.0)))


class Pictures(Dataset):
    def __init__(self, files, transform):
        self.files = files
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as image:
            pixels = self.transform(image.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1).float(), int(self.files[index].parent.name[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    files = sorted((args.data / "jpeg_small").glob("*/*.jpg"))
    loader = DataLoader(Pictures(files, augment), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    samples = 0
    start = time.perf_counter()
    for epoch in range(10):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
            samples += len(labels)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
