"""Milk yield regression from cow collar accelerometer windows."""

import argparse
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def best_device():
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


class Collars(Dataset):
    """Windows of 600 x 3 values and the yield of the milking after them."""

    def __init__(self, stem):
        self.stem = stem
        self.yields = np.load(f"{stem}_yield.npy").astype(np.float32)
        self.windows = None

    def __len__(self):
        return len(self.yields)

    def __getitem__(self, i):
        if self.windows is None:
            self.windows = np.load(f"{self.stem}_windows.npy", mmap_mode="r")
        return np.array(self.windows[i].T, dtype=np.float32), self.yields[i]


def loaders(device, workers):
    make = partial(DataLoader, num_workers=workers, persistent_workers=workers > 0)
    train = make(Collars("train"), batch_size=128, shuffle=True, drop_last=True, pin_memory=device.type == "cuda")
    valid = make(Collars("valid"), batch_size=512, pin_memory=torch.cuda.is_available())
    return train, valid


def network():
    return nn.Sequential(
        nn.Conv1d(3, 32, 15, stride=3), nn.ReLU(), nn.Conv1d(32, 64, 9, stride=3), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--weights")
    args = parser.parse_args()

    device = best_device()
    train, valid = loaders(device, args.workers)
    # the herd's reference windows are few and stay in memory
    reference = DataLoader(Collars("reference"), batch_size=512, pin_memory=False)

    model = network()
    if args.weights:
        model.load_state_dict(torch.load(args.weights, map_location=torch.device("cpu"), weights_only=True))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    for epoch in range(4):
        model.train()
        for window, litres in train:
            loss = nn.functional.smooth_l1_loss(model(window.to(device)), litres.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        model.eval()
        with torch.inference_mode():
            for name, loader in (("valid", valid), ("reference", reference)):
                off = sum((model(w.to(device)) - l.to(device)).abs().sum().item() for w, l in loader)
                print(f"epoch {epoch} {name}: {off / len(loader.dataset):.2f} l")


if __name__ == "__main__":
    main()
