"""Chest X-ray pneumonia detection with a DenseNet; images are 224 px greyscale PNGs."""

from pathlib import Path

import torch
import torch.multiprocessing as mp
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models
from torchvision.transforms import functional as TF

mp.set_start_method("spawn", force=True)
mp.set_sharing_strategy("file_system")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Radiographs(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*/*.png"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        image = TF.to_tensor(Image.open(file).convert("L"))
        return image.expand(3, -1, -1), float(file.parent.name == "PNEUMONIA")


def train_epoch(model, loader, optimizer):
    model.train()
    for images, target in loader:
        logits = model(images.to(DEVICE)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, target.float().to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    model = models.densenet121(weights="DEFAULT")
    model.classifier = nn.Linear(model.classifier.in_features, 1)
    model.to(DEVICE)
    loader = DataLoader(Radiographs("chest_xray/train"), batch_size=24, shuffle=True, num_workers=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(8):
        train_epoch(model, loader, optimizer)
        torch.save(model.state_dict(), f"densenet_{epoch}.pt")


if __name__ == "__main__":
    main()
