"""Pollen grain classification; the grains were cut out and stored as 96 x 96 arrays."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.tensorboard import SummaryWriter

BATCH_SIZE = 64
NUM_WORKERS = 4
EPOCHS = 12


class Grains(Dataset):
    def __init__(self, split, flip=False):
        self.grains = np.load(f"pollen/{split}.npy")
        self.taxa = np.load(f"pollen/{split}_taxa.npy").astype("int64")
        self.flip = flip

    def __len__(self):
        return len(self.taxa)

    def __getitem__(self, i):
        grain = torch.from_numpy(self.grains[i]).float().div(255).unsqueeze(0)
        if self.flip and torch.rand(()) < 0.5:
            grain = grain.flip(-1)
        return grain, self.taxa[i]


def get_loaders():
    train_loader = DataLoader(Grains("train", flip=True), batch_size=BATCH_SIZE, shuffle=True, num_workers=NUM_WORKERS)
    val_loader = DataLoader(Grains("val"), batch_size=BATCH_SIZE, shuffle=False, num_workers=NUM_WORKERS)
    test_loader = DataLoader(
        Grains("test"),
        batch_size=BATCH_SIZE,
        num_workers=NUM_WORKERS,
    )
    return train_loader, val_loader, test_loader


def make_model(taxa=37):
    def stage(n_in, n_out):
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)]

    stages = stage(1, 32) + stage(32, 64) + stage(64, 128)
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, taxa))


@torch.inference_mode()
def accuracy(model, loader, device):
    model.eval()
    right = 0
    for grains, taxa in loader:
        right += (model(grains.to(device)).argmax(1) == taxa.to(device)).sum().item()
    return right / len(loader.dataset)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, val_loader, test_loader = get_loaders()
    model = make_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4)
    writer = SummaryWriter("runs/pollen")
    os.makedirs("weights", exist_ok=True)

    for epoch in range(EPOCHS):
        model.train()
        for grains, taxa in train_loader:
            loss = nn.functional.cross_entropy(model(grains.to(device)), taxa.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        writer.add_scalar("val/accuracy", accuracy(model, val_loader, device), epoch)
        torch.save(model.state_dict(), f"weights/pollen_{epoch:03d}.pt")

    print("test accuracy:", accuracy(model, test_loader, device))


if __name__ == "__main__":
    main()
