"""Road surface roughness from in-car microphone spectrograms."""

import time

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18

NUM_EPOCHS = 60
LR = 0.02


class Spectrograms(Dataset):
    def __init__(self, split):
        self.split = split
        self.roughness = np.load(f"roads/{split}_iri.npy").astype(np.float32)
        self.frames = None

    def __len__(self):
        return len(self.roughness)

    def __getitem__(self, i):
        if self.frames is None:
            self.frames = np.load(f"roads/{self.split}.npy", mmap_mode="r")
        return torch.from_numpy(np.array(self.frames[i], dtype=np.float32))[None], self.roughness[i]


def build():
    net = resnet18(weights=None, num_classes=1)
    net.conv1 = nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
    return net


@torch.no_grad()
def validate(net, loader, device):
    net.eval()
    off = 0.0
    for frames, iri in loader:
        off += (net(frames.to(device)).squeeze(1) - iri.to(device)).abs().sum().item()
    return off / len(loader.dataset)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Spectrograms("train"), batch_size=96, shuffle=True, num_workers=6)
    val_loader = DataLoader(Spectrograms("val"), batch_size=384, num_workers=6)

    net = build().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    scheduler = CosineAnnealingLR(optimizer, T_max=NUM_EPOCHS)
    criterion = nn.SmoothL1Loss()

    for epoch in range(NUM_EPOCHS):
        began = time.time()
        net.train()
        for frames, iri in train_loader:
            optimizer.zero_grad()
            loss = criterion(net(frames.to(device)).squeeze(1), iri.to(device))
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch:3d}  val {validate(net, val_loader, device):.3f} m/km  {time.time() - began:.0f} s")

    torch.save(net.state_dict(), "roughness_resnet18.pth")


if __name__ == "__main__":
    main()
