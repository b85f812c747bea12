"""Predicts redshift from five-band galaxy cutouts kept in one HDF5 file."""

import argparse

import h5py
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms


class GalaxyCutouts(Dataset):
    def __init__(self, path, transform=None):
        self.file = h5py.File(path, "r")
        self.redshift = torch.from_numpy(self.file["redshift"][:]).float()
        self.transform = transform

    def __len__(self):
        return len(self.redshift)

    def __getitem__(self, i):
        cutout = torch.from_numpy(self.file["cutouts"][i]).float()
        if self.transform is not None:
            cutout = self.transform(cutout)
        return cutout, self.redshift[i]


stretch = transforms.Compose([
    transforms.Lambda(lambda x: torch.asinh(x / 0.01)),
    transforms.RandomHorizontalFlip(),
    transforms.RandomVerticalFlip(),
])


class PhotoZ(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(5, width, 3, padding=1), nn.GELU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.head = nn.Linear(2 * width, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="cutouts.h5")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    data = GalaxyCutouts(args.data, stretch)
    train = Subset(data, range(0, len(data) * 9 // 10))
    loader = DataLoader(train, batch_size=256, shuffle=True, num_workers=4, drop_last=True)
    model = PhotoZ().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for x, z in loader:
            loss = nn.functional.huber_loss(model(x.to(device)), z.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "done")
    torch.save(model.state_dict(), "photoz.pt")


if __name__ == "__main__":
    main()
