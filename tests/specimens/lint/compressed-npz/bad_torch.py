"""Nodule detection in CT sub-volumes written by an earlier step as .npz archives."""

import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Nodules(Dataset):
    def __init__(self, root, split_file):
        self.root = root
        with open(split_file) as handle:
            self.series = [line.strip() for line in handle if line.strip()]

    def __len__(self):
        return len(self.series)

    def __getitem__(self, index):
        archive = np.load(os.path.join(self.root, self.series[index] + ".npz"))
        volume = archive["volume"].astype(np.float32)
        volume = np.clip((volume + 1000.0) / 1400.0, 0.0, 1.0)
        return torch.from_numpy(volume)[None], torch.tensor(float(archive["nodule"]))


class Net3d(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv3d(1, width, 3, stride=2),
            nn.InstanceNorm3d(width),
            nn.ReLU(),
            nn.Conv3d(width, 2 * width, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
        )
        self.out = nn.Linear(2 * width, 1)

    def forward(self, x):
        return self.out(self.features(x).flatten(1)).squeeze(1)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Nodules("ct/blocks", "ct/train.txt"), batch_size=16, shuffle=True, num_workers=4)
    model = Net3d().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(20.0, device=device))
    for epoch in range(40):
        model.train()
        for volume, nodule in loader:
            loss = criterion(model(volume.to(device)), nodule.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.save({"epoch": epoch, "model": model.state_dict()}, "nodules.tmp")
        os.replace("nodules.tmp", "nodules.pt")


if __name__ == "__main__":
    main()
