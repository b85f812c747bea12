"""Crater depth from elevation patches of one HDF5 file; each worker opens the file for itself."""

import functools
import os

import h5py
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import default_collate
from torchvision import transforms


def centre(patch):
    return patch - patch.mean()


def collate(samples, dtype):
    patches, depths = default_collate(samples)
    return patches.to(dtype), depths.to(dtype)


class CraterPatches(Dataset):
    def __init__(self, path, transform):
        self.path = path
        self.file = None
        with h5py.File(path, "r") as file:
            depths = file["depth"][:]
            names = [name.decode() for name in file["name"][:]]
        self.order = sorted(range(len(names)), key=lambda i: names[i])
        self.depths = torch.from_numpy(depths).float()
        self.transform = transform

    def __len__(self):
        return len(self.order)

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        row = self.order[i]
        patch = torch.from_numpy(self.file["elevation"][row]).float().unsqueeze(0)
        return self.transform(patch), self.depths[row]


def save(state, path):
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def main(path="craters.h5", epochs=20):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = transforms.Compose([transforms.Lambda(centre), transforms.RandomHorizontalFlip()])
    loader = DataLoader(
        CraterPatches(path, transform),
        batch_size=128,
        shuffle=True,
        num_workers=4,
        collate_fn=functools.partial(collate, dtype=torch.float32),
    )
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5, stride=2), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 1), nn.Flatten(0)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda epoch: 0.9**epoch)
    for epoch in range(epochs):
        for patches, depths in loader:
            loss = nn.functional.mse_loss(model(patches.to(device)), depths.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        save({"model": model.state_dict(), "epoch": epoch}, "craters.pt")


if __name__ == "__main__":
    main()
