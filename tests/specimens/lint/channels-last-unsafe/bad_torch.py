"""Grape bunch counting on prepared 160-pixel crops (uint8 arrays on disk)."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Bunches(Dataset):
    def __init__(self, split):
        self.pixels = np.load(f"bunches/{split}.npy")
        self.counts = np.load(f"bunches/{split}_counts.npy").astype(np.float32)

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        pixels = torch.from_numpy(self.pixels[i]).permute(2, 0, 1)
        return pixels.float() / 255, self.counts[i]


def block(n_in, n_out):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(block(3, 32), block(32, 64), block(64, 96), block(96, 96))
        self.regressor = nn.Sequential(nn.Linear(96 * 10 * 10, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x):
        x = self.features(x)
        x = x.view(x.size(0), -1)
        return self.regressor(x).squeeze(1)


def train_one_epoch(model, loader, optimizer):
    model.train()
    for pixels, counts in loader:
        pixels = pixels.to(DEVICE, memory_format=torch.channels_last)
        loss = nn.functional.poisson_nll_loss(model(pixels), counts.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def mean_error(model, loader):
    model.eval()
    error = torch.zeros((), device=DEVICE)
    for pixels, counts in loader:
        error += (model(pixels.to(DEVICE)).exp() - counts.to(DEVICE)).abs().sum()
    return error.item() / len(loader.dataset)


def main():
    train = DataLoader(Bunches("train"), batch_size=64, shuffle=True, num_workers=4)
    valid = DataLoader(Bunches("valid"), batch_size=256, num_workers=4)
    model = Counter().to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(4):
        train_one_epoch(model, train, optimizer)
        print(epoch, round(mean_error(model, valid), 2))


if __name__ == "__main__":
    main()
