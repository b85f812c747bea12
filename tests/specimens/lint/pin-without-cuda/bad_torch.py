"""Bird call recogniser on precomputed log-mel patches; runs on the lab's MacBook."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

DATA = Path("xeno_patches")
device = torch.device("mps")


class Patches(Dataset):
    def __init__(self, split):
        self.mel = np.load(DATA / f"{split}_mel.npy")
        self.species = np.load(DATA / f"{split}_species.npy")

    def __len__(self):
        return self.species.shape[0]

    def __getitem__(self, index):
        patch = torch.from_numpy(self.mel[index].astype(np.float32))
        return patch.unsqueeze(0), int(self.species[index])


class CallNet(nn.Module):
    def __init__(self, n_species):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc = nn.Linear(64, n_species)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.mean(dim=(2, 3)))


def make_loaders():
    train = DataLoader(
        Patches("train"),
        batch_size=48,
        shuffle=True,
        num_workers=4,
        pin_memory=True,
    )
    valid = DataLoader(Patches("valid"), batch_size=192, num_workers=2, pin_memory=True)
    return train, valid


def train_epoch(model, loader, optimizer):
    model.train()
    for mel, species in loader:
        mel, species = mel.to(device), species.to(device)
        optimizer.zero_grad()
        F.cross_entropy(model(mel), species).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(mel.to(device)).argmax(1).cpu() == species).sum().item() for mel, species in loader)
    return hits / len(loader.dataset)


if __name__ == "__main__":
    train_loader, valid_loader = make_loaders()
    net = CallNet(n_species=61).to(device)
    opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        train_epoch(net, train_loader, opt)
        print(f"{epoch}: {accuracy(net, valid_loader):.3f}")
