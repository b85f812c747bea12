"""Nodule detection in CT sub-volumes; blocks lie as plain .npy files and are mapped."""

import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def unpack(root, series):
    """The archives as delivered, to one plain array each."""
    for name in series:
        archive = np.load(os.path.join(root, name + ".npz"))
        np.save(os.path.join(root, name + ".npy"), archive["volume"])


class Nodules(Dataset):
    def __init__(self, root, split_file):
        self.root = root
        with open(split_file) as handle:
            self.series = [line.strip() for line in handle if line.strip()]
        summary = np.load(os.path.join(root, "summary.npz"))
        self.mean, self.std = float(summary["mean"]), float(summary["std"])
        self.labels = dict(zip(summary["series"].tolist(), summary["nodule"].tolist(), strict=True))

    def __len__(self):
        return len(self.series)

    def __getitem__(self, index):
        name = self.series[index]
        volume = np.load(os.path.join(self.root, name + ".npy"), mmap_mode="r")
        volume = (np.array(volume, dtype=np.float32) - self.mean) / self.std
        return torch.from_numpy(volume)[None], torch.tensor(float(self.labels[name]))


def build(width=16):
    return nn.Sequential(
        nn.Conv3d(1, width, 3, stride=2),
        nn.InstanceNorm3d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(width, 1),
    )


@torch.inference_mode()
def score(model, loader, device):
    model.eval()
    return np.concatenate([model(volume.to(device)).squeeze(1).cpu().numpy() for volume, _ in loader])


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, held = Nodules("ct/blocks", "ct/train.txt"), Nodules("ct/blocks", "ct/held.txt")
    unpack("ct/blocks", train.series + held.series)
    loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=4)
    model = build().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(20.0, device=device))
    for epoch in range(40):
        model.train()
        for volume, nodule in loader:
            loss = criterion(model(volume.to(device)).squeeze(1), nodule.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.save({"epoch": epoch, "model": model.state_dict()}, "nodules.tmp")
        os.replace("nodules.tmp", "nodules.pt")
    scores = score(model, DataLoader(held, batch_size=64, num_workers=4), device)
    np.savez_compressed("held_scores.npz", series=np.array(held.series), score=scores)


if __name__ == "__main__":
    main()
