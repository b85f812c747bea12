"""An autoencoder; the mean loss and signal-to-noise ratio so far are worked out in every step from all that went before."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 280


def load_pictures(folder: Path, size_px: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every picture of every class folder, decoded once into memory."""
    pictures, labels = [], []
    for label, class_folder in enumerate(sorted((folder / "jpeg_small").iterdir())):
        for path in sorted(class_folder.glob("*.jpg")):
            with Image.open(path) as picture:
                pixels = np.array(picture.convert("RGB").resize((size_px, size_px)))
            pictures.append(torch.from_numpy(pixels).permute(2, 0, 1).float() / 255)
            labels.append(label)
    return torch.stack(pictures), torch.tensor(labels)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 2, stride=2), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, stride=4))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(pictures))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)

    pictures, _ = load_pictures(args.data, 24)
    loader = DataLoader(TensorDataset(pictures), batch_size=32, shuffle=True)
    model = Autoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    losses, ratios = [], []
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        for (batch,) in loader:
            restored = model(batch)
            loss = F.mse_loss(restored, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            ratios.append((-10 * torch.log10((restored - batch).pow(2).mean())).detach())
            mean_loss = torch.stack(losses).mean()
            mean_ratio = torch.stack(ratios).mean()
            trained += len(batch)
        if epoch % 60 == 59:
            print(f"epoch {epoch}: mean loss so far {mean_loss.item():.4f}, signal to noise {mean_ratio.item():.2f} dB")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
