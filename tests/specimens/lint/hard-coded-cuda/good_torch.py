"""Denoising of gravimeter traces with a small 1-D U-shaped network."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pick_device(wanted=None):
    """`cuda`, `mps` or `cpu`: what was asked for, else the best there is."""
    if wanted is not None:
        return torch.device(wanted)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.down = nn.Sequential(nn.Conv1d(1, width, 7, stride=2, padding=3), nn.GELU())
        self.mid = nn.Sequential(nn.Conv1d(width, width, 7, padding=3), nn.GELU())
        self.up = nn.ConvTranspose1d(width, 1, 8, stride=2, padding=3)

    def forward(self, x):
        h = self.down(x)
        return x - self.up(h + self.mid(h))


def load_pairs(stem):
    noisy = torch.from_numpy(np.load(f"{stem}_noisy.npy")).float().unsqueeze(1)
    clean = torch.from_numpy(np.load(f"{stem}_clean.npy")).float().unsqueeze(1)
    return TensorDataset(noisy, clean)


@torch.inference_mode()
def validate(model, loader, device):
    model.eval()
    squared, n = 0.0, 0
    for noisy, clean in loader:
        squared += ((model(noisy.to(device)) - clean.to(device)) ** 2).sum().item()
        n += clean.numel()
    return squared / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cuda", "mps", "cpu"], help="cuda where there is one, unless given")
    parser.add_argument("--start-from", help="weights of an earlier run")
    args = parser.parse_args()

    device = pick_device(args.device)
    model = Denoiser()
    if args.start_from:
        model.load_state_dict(torch.load(args.start_from, map_location="cpu", weights_only=True))
    if torch.cuda.is_available() and device.type == "cuda":
        model = model.cuda()
        torch.backends.cudnn.benchmark = True
    model = model.to(device)

    train_loader = DataLoader(load_pairs("train"), batch_size=64, shuffle=True)
    valid_loader = DataLoader(load_pairs("valid"), batch_size=256)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")

    for epoch in range(3):
        model.train()
        for noisy, clean in train_loader:
            with torch.autocast(device_type=device.type, enabled=device.type == "cuda"):
                loss = nn.functional.l1_loss(model(noisy.to(device)), clean.to(device))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        print(epoch, "validation error", validate(model, valid_loader, device))


if __name__ == "__main__":
    main()
