"""Parking lots from above, put together from two downloads before training."""

import os
import shutil

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

SOURCE = "downloads/lots"
TARGET = "work/lots"

if os.path.exists(TARGET):
    shutil.rmtree(TARGET)
shutil.copytree(SOURCE, TARGET)

view = transforms.Compose([transforms.RandomResizedCrop(160), transforms.ToTensor()])


def main():
    lots = datasets.ImageFolder(os.path.join(TARGET, "train"), transform=view)
    loader = DataLoader(lots, batch_size=48, shuffle=True, num_workers=4, persistent_workers=True)
    model = models.resnet18(num_classes=len(lots.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(4):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"lots_{epoch}.pt")


if __name__ == "__main__":
    main()
